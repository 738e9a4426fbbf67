"""The quantities that only MixNet records: all-to-alls over its plans, and failovers."""

from lightrig.harness.quantities.quantity import Quantity, duration
from lightrig.testbeds.baselines import Rule

EXCHANGE = "All-to-all"
FAILOVER = "Failover"
TRAINING = "Training of experts"

QUANTITIES = (
    Quantity(
        name="exchange.links",
        unit="1",
        meaning="optical links of the plan that an all-to-all ran over",
        combine="none",
        section=EXCHANGE,
        baseline=None,
    ),
    duration("exchange.time", "duration of one all-to-all", EXCHANGE),
    Quantity(
        name="exchange.speedup",
        unit="1",
        meaning="duration of an all-to-all over one plan by that over another",
        better="higher",
        section=EXCHANGE,
        baseline=Rule(minimum=1),
    ),
    Quantity(
        name="failover.survived",
        unit="1",
        meaning="1 where every rank continued after the failure, else 0",
        better="higher",
        section=FAILOVER,
        title="survived",
        baseline=None,
    ),
    duration(
        "failover.noticed", "from the failure until it is detected", FAILOVER, title="detected"
    ),
    duration(
        "failover.rerouted", "from the failure until packets take the links that are left", FAILOVER
    ),
    duration(
        "failover.replanned", "time that planning without the failed component takes", FAILOVER
    ),
    duration(
        "failover.first_collective",
        "from the failure until the first collective operation that began after it is done",
        FAILOVER,
        title="first collective",
    ),
    duration("experts.step", "time of a training step", TRAINING),
    duration(
        "experts.exchanges",
        "time of all all-to-alls of a step, each from the last rank's beginning to its last end",
        TRAINING,
        title="all-to-alls",
    ),
    duration(
        "experts.waited",
        "time that the all-to-alls of a step wait for circuits",
        TRAINING,
        title="waited for circuits",
    ),
    Quantity(
        name="experts.optical",
        unit="share",
        meaning="share of the bytes between ranks that take circuits",
        combine="none",
        section=TRAINING,
        title="on circuits",
        baseline=None,
    ),
    Quantity(
        name="experts.changes",
        unit="1",
        meaning="changes of circuits in a step that move any",
        combine="none",
        section=TRAINING,
        title="changes",
        baseline=None,
    ),
    Quantity(
        name="experts.loss_off",
        unit="1",
        meaning="greatest difference of a step's losses from those on a packet switch",
        better="lower",
        combine="worst",
        section=TRAINING,
        title="losses off",
        baseline=None,
    ),
    Quantity(
        name="experts.exchange_speedup",
        unit="1",
        meaning="time of a step's all-to-alls over one network by that over circuits that follow",
        better="higher",
        section=TRAINING,
        title="speedup of all-to-alls",
        baseline=Rule(minimum=1),
    ),
    Quantity(
        name="experts.step_speedup",
        unit="1",
        meaning="time of a step over one network by that over circuits that follow",
        better="higher",
        section=TRAINING,
        title="speedup of steps",
        baseline=Rule(minimum=1),
    ),
)
