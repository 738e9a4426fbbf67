"""The quantities of the generic measurements, in the order in which they are shown."""

from collections.abc import Iterator

from lightrig.harness.quantities.optical import MATRIX_LOSSES, OPTICAL
from lightrig.harness.quantities.quantity import Quantity, duration
from lightrig.instruments.core.stages import STAGES
from lightrig.testbeds.baselines import Rule

RECONFIGURATION = "Reconfiguration"
OUTAGE = "Outage"
COLLECTIVES = "Collectives"
RECOVERY = "Traffic under reconfiguration"
RDMA = "RDMA"
CLOSURE = "Closure"
HARNESS = "Cost of the harness"

_HEADLINES = frozenset(("acknowledged", "signal_recovered", "carrier_up", "first_datagram"))


def _stages() -> Iterator[Quantity]:
    for stage in STAGES.values():
        yield Quantity(
            name=f"reconfiguration.{stage.name}",
            unit="ns",
            meaning=f"from the command until {stage.whole}",
            better="lower" if stage.up else None,
            combine="greatest" if stage.up else "least",
            section=RECONFIGURATION,
            terminal="headline" if stage.name in _HEADLINES else "shown",
            aliases=tuple(f"reconfiguration.{alias}" for alias in stage.aliases),
        )
    for stage in STAGES.values():
        yield Quantity(
            name=stage.name,
            unit="ns",
            meaning=f"one {stage.subject}: {stage.meaning}",
            better="lower" if stage.up else None,
            combine="greatest" if stage.up else "least",
            section=RECONFIGURATION,
            terminal="hidden",
            aliases=stage.aliases,
        )


def _closure(name: str, meaning: str, *aliases: str) -> Quantity:
    return Quantity(
        name=name,
        unit="1",
        meaning=meaning,
        better="higher",
        section=CLOSURE,
        baseline=None,
        terminal="hidden",
        aliases=aliases,
    )


DECLARED: tuple[Quantity, ...] = (
    *_stages(),
    Quantity(
        name="watched",
        unit="ns",
        meaning="from the command until the watch of a server's links or a switch's light ended",
        section=RECONFIGURATION,
        combine="none",
        baseline=None,
        terminal="hidden",
    ),
    Quantity(
        name="outage.carrier",
        unit="ns",
        meaning="from the first loss of carrier at one NIC port to its last return, with its flaps",
        better="lower",
        section=OUTAGE,
        terminal="hidden",
    ),
    Quantity(
        name="outage.datagram",
        unit="ns",
        meaning="time without datagrams at one NIC port, by stages",
        better="lower",
        section=OUTAGE,
        terminal="hidden",
    ),
    Quantity(
        name="outage.flap",
        unit="ns",
        meaning="time without carrier at one NIC port whose link had come up before in the event",
        better="lower",
        section=OUTAGE,
        terminal="hidden",
    ),
    Quantity(
        name="outage.packets",
        unit="ns",
        meaning="longest interruption of numbered datagrams in any link direction",
        better="lower",
        section=OUTAGE,
        terminal="hidden",
    ),
    *OPTICAL,
    duration("collective.time", "duration of one operation", COLLECTIVES),
    Quantity(
        name="collective.algorithm_bandwidth",
        unit="bit/s",
        meaning="size of an operation by its duration",
        better="higher",
        section=COLLECTIVES,
    ),
    Quantity(
        name="collective.bus_bandwidth",
        unit="bit/s",
        meaning="rate on each link of a ring that explains the duration, as in nccl-tests",
        better="higher",
        section=COLLECTIVES,
    ),
    Quantity(
        name="collective.fitted_bus_bandwidth",
        unit="bit/s",
        meaning="bus bandwidth of unlimited size, from a line through all sizes",
        better="higher",
        section=COLLECTIVES,
        baseline=Rule(minimum=1),
    ),
    Quantity(
        name="collective.latency",
        unit="ns",
        meaning="duration of an operation of size zero, from a line through all sizes",
        better="lower",
        section=COLLECTIVES,
        baseline=Rule(minimum=1),
    ),
    Quantity(
        name="collective.utilization",
        unit="share",
        meaning="bus bandwidth of the largest size as a share of the line rate",
        better="higher",
        section=COLLECTIVES,
        aliases=("collective.use",),
    ),
    Quantity(
        name="recovery.survived",
        unit="1",
        meaning="1 where every rank continued through the change, else 0",
        better="higher",
        section=RECOVERY,
        title="survived",
        baseline=None,
    ),
    duration(
        "recovery.routed",
        "from the command until the servers have routes over the new links",
        RECOVERY,
        title="routes set",
    ),
    duration(
        "recovery.first_collective",
        "from the command until the first all-reduce that began after it is done",
        RECOVERY,
        title="first all-reduce",
    ),
    duration("recovery.interruption", "longest time between two all-reduces that ended", RECOVERY),
    Quantity(
        name="recovery.bus_bandwidth",
        unit="bit/s",
        meaning="bus bandwidth of one all-reduce around the change",
        better="higher",
        combine="none",
        section=RECOVERY,
        baseline=None,
        terminal="hidden",
    ),
    duration("rdma.latency", "median latency of RDMA messages in one direction", RDMA),
    duration(
        "rdma.latency_p99", "99th percentile of the latency of RDMA messages in one direction", RDMA
    ),
    Quantity(
        name="rdma.bandwidth",
        unit="bit/s",
        meaning="average bandwidth of RDMA over one link",
        better="higher",
        section=RDMA,
    ),
    Quantity(
        name="rdma.utilization",
        unit="share",
        meaning="bandwidth of RDMA over one link as a share of the line rate",
        better="higher",
        section=RDMA,
        aliases=("rdma.use",),
    ),
    duration(
        "rdma.recovered", "from the command until the first RDMA operation over a new link", RDMA
    ),
    *(
        _closure(
            f"closure.{stage.name}",
            f"share of the intervals of {stage.name} that contain the true time",
            *(f"closure.{alias}" for alias in stage.aliases),
        )
        for stage in STAGES.values()
    ),
    _closure("closure.latency", "share of the times after the command that contain the true one"),
    _closure("closure.outage_packets", "share of the outages that contain the true one"),
    _closure("closure.switching", "share of the switching times that contain the true one"),
    *(
        _closure(f"closure.{name}", f"share of the intervals of {name} that contain the true one")
        for name, _, _ in MATRIX_LOSSES
    ),
    _closure("closure.path_change", "share of the dark times that contain the true one"),
    *(
        _closure(
            f"closure.outage_{kind}", f"share of the outages of {kind}s that contain the true one"
        )
        for kind in ("carrier", "datagram")
    ),
    _closure("closure.outage_flap", "share of the flaps whose ends contain true moments"),
    _closure("closure.bit_errors", "share of the counts that agree with the true error ratio"),
    _closure("closure.frame_loss_ratio", "share of the bounds that hold the true frame loss"),
    _closure("loss.closure", "share of the losses whose interval contains the true one"),
    _closure("loss.path_closure", "share of the path losses whose interval contains the true one"),
    Quantity(
        name="harness.carrier_stamp",
        unit="ns",
        meaning="from a change of carrier in the kernel until its time stamp",
        better="lower",
        section=HARNESS,
        baseline=None,
        terminal="hidden",
    ),
    Quantity(
        name="harness.netlink_delay",
        unit="ns",
        meaning="delay of netlink's announcement of a carrier after its reading in sysfs",
        better="lower",
        section=HARNESS,
        baseline=None,
        terminal="hidden",
    ),
    Quantity(
        name="harness.outage_error",
        unit="ns",
        meaning="difference of an outage by datagrams from that of the true links or carriers",
        better="lower",
        section=HARNESS,
        baseline=None,
        terminal="hidden",
    ),
)
