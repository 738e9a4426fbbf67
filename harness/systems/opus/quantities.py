"""The quantities that only Opus records; docs/training.md says how each is measured."""

from lightrig.harness.quantities.quantity import Quantity, duration

TRAINING = "Training"
CONTROL = "Opus control plane"
RAILS = "Training on photonic rails"


def _interval(name: str, meaning: str) -> Quantity:
    return Quantity(
        name=f"rails.{name}",
        unit="ns",
        meaning=meaning,
        combine="none",
        section=RAILS,
        baseline=None,
        terminal="hidden",
    )


QUANTITIES = (
    duration("training.step", "from the end of one training step to the end of the next", TRAINING),
    Quantity(
        name="training.loss",
        unit="1",
        meaning="loss that one rank reports for one training step",
        combine="none",
        section=TRAINING,
        baseline=None,
    ),
    Quantity(
        name="training.loss_off_mesh",
        unit="1",
        meaning="difference of a loss from that of the same step on a full mesh",
        better="lower",
        section=TRAINING,
        baseline=None,
    ),
    duration(
        "opus.rewiring",
        "from the command to a switch until its new circuits are read back",
        CONTROL,
    ),
    Quantity(
        name="opus.reconfiguration_time",
        unit="ns",
        meaning="T_reconfig: from the command to a switch until its links are up again",
        better="lower",
        section=CONTROL,
        aliases=("opus.change",),
    ),
    Quantity(
        name="opus.reconfigurations",
        unit="1",
        meaning="changes of parallelism of one stage's circuits in one training step",
        better="lower",
        section=CONTROL,
    ),
    duration("opus.wait", "wait of one operation of one rank for its topology", CONTROL),
    duration("opus.waited", "wait of the first operation of a phase for its circuits", CONTROL),
    duration(
        "opus.waited_a_step",
        "mean over steps of what the phases of a step wait for their circuits",
        CONTROL,
    ),
    Quantity(
        name="opus.wait_bound",
        unit="ns",
        meaning="longest wait that T_reconfig, or max(0, T_reconfig - T_window), allows",
        better="lower",
        section=CONTROL,
        aliases=("opus.waited_at_most",),
    ),
    duration(
        "opus.step_at_most",
        "duration of a step on a full mesh plus the waits that are allowed",
        CONTROL,
    ),
    Quantity(
        name="opus.control",
        unit="share",
        meaning="share of a step that control adds where switching takes no time, at most",
        better="lower",
        section=CONTROL,
    ),
    Quantity(
        name="opus.incident",
        unit="1",
        meaning="1 for each retry, fallback or refused change of the controller",
        better="lower",
        combine="sum",
        section=CONTROL,
        baseline=None,
    ),
    _interval("traffic", "duration of one rank's operation"),
    _interval("switch", "duration of one change of a switch"),
    _interval("light", "time without optical power at one egress"),
    _interval("carrier", "time without carrier at one NIC port"),
)
