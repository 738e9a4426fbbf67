"""Stages of a reconfiguration: which change of which signal each one is.

The only definition of each stage. Measurements choose their moments by it, a simulated world states
its ground truth by it, and quantities, pages and docs take their words from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from lightrig.instruments.clock import Span

StageName: TypeAlias = Literal[
    "acknowledged",
    "los",
    "datagrams_lost",
    "firmware_down",
    "carrier_down",
    "signal_recovered",
    "firmware_up",
    "carrier_up",
    "first_datagram",
]
Signal: TypeAlias = Literal["acknowledged", "light", "firmware", "carrier", "datagram"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventStage:
    """One stage of a reconfiguration.

    Of an event as a whole, what comes up counts when the last subject has it, what goes down when
    the first has lost it: the time between the two is the whole interruption.

    Attributes:
        name: of the quantity; with "reconfiguration." before it, of the event as a whole.
        signal: what changes.
        up: whether it comes up.
        counts: which change, where one subject has several within its watch: the "first" or the
            "last" one, or that of the "longest" interruption.
        subject: what has the stage.
        meaning: the change of one subject, as a noun phrase or clause.
        whole: the same of the event as a whole.
        aliases: former names.
        title: what a person reads in its place, where the name says too little.
    """

    name: StageName
    signal: Signal
    up: bool
    counts: Literal["first", "last", "longest"]
    subject: Literal["switch", "egress", "NIC port"]
    meaning: str
    whole: str
    aliases: tuple[str, ...] = ()
    title: str = ""

    def choose(self, moments: Sequence[T]) -> T:
        """Return the one of several such changes of a subject, in order of time, that counts.

        Not for a stage of the longest interruption, which single changes do not show.
        """
        return moments[-1 if self.counts == "last" else 0]


class Watch(NamedTuple):
    """For how long a subject was watched in an event, on the bench's clock.

    Attributes:
        since: the first change that counts is not before, in ns.
        until: a change before `earliest` was seen, and one after `latest` was not.
    """

    since: int
    until: Span


ACKNOWLEDGED = EventStage(
    name="acknowledged",
    signal="acknowledged",
    up=True,
    counts="last",  # a change may take several commands
    subject="switch",
    meaning="the switch acknowledged its last command",
    whole="every switch acknowledged its commands",
)
LOS = EventStage(
    name="los",
    signal="light",
    up=False,
    counts="first",
    subject="egress",
    meaning="loss of signal",
    whole="loss of signal on the first egress",
    aliases=("light_gone",),
    title="loss of signal",
)
DATAGRAMS_LOST = EventStage(
    name="datagrams_lost",
    signal="datagram",
    up=False,
    counts="longest",
    subject="NIC port",
    meaning="first datagram that did not arrive, of the longest interruption",
    whole="first datagram that did not arrive",
    title="first lost datagram",
)
FIRMWARE_DOWN = EventStage(
    name="firmware_down",
    signal="firmware",
    up=False,
    counts="first",
    subject="NIC port",
    meaning="firmware reports the link down",
    whole="firmware reports the link down, on the first NIC port",
)
CARRIER_DOWN = EventStage(
    name="carrier_down",
    signal="carrier",
    up=False,
    counts="first",
    subject="NIC port",
    meaning="the kernel reports no carrier",
    whole="the kernel reports no carrier, on the first NIC port",
)
SIGNAL_RECOVERED = EventStage(
    name="signal_recovered",
    signal="light",
    up=True,
    counts="last",
    subject="egress",
    meaning="optical power is back, the last time that the event's watch saw it come",
    whole="optical power is back, on the last egress",
    aliases=("light_back",),
)
FIRMWARE_UP = EventStage(
    name="firmware_up",
    signal="firmware",
    up=True,
    counts="last",
    subject="NIC port",
    meaning="firmware reports the link up, the last time that the event's watch saw it come up",
    whole="firmware reports the link up, on the last NIC port",
)
CARRIER_UP = EventStage(
    name="carrier_up",
    signal="carrier",
    up=True,
    counts="last",
    subject="NIC port",
    meaning="the kernel reports carrier, the last time that the event's watch saw it come up",
    whole="the kernel reports carrier, on the last NIC port",
)
FIRST_DATAGRAM = EventStage(
    name="first_datagram",
    signal="datagram",
    up=True,
    counts="longest",
    subject="NIC port",
    meaning="first datagram after the longest interruption",
    whole="first datagram after the loss, on the last NIC port",
)

STAGES: Mapping[str, EventStage] = MappingProxyType(
    {
        stage.name: stage
        for stage in (
            *(ACKNOWLEDGED, LOS, DATAGRAMS_LOST, FIRMWARE_DOWN, CARRIER_DOWN),
            *(SIGNAL_RECOVERED, FIRMWARE_UP, CARRIER_UP, FIRST_DATAGRAM),
        )
    }
)
"""Every stage by its name, in their usual order."""

_BY_SIGNAL = {(stage.signal, stage.up): stage for stage in STAGES.values()}


def stage_of(signal: Signal, *, up: bool) -> EventStage:
    """Return the stage in which a signal comes up or goes down."""
    return _BY_SIGNAL[signal, up]
