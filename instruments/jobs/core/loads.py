"""Loads of single directions of links: what is asked of whoever makes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lightrig.testbeds import Port
from lightrig.testbeds.plans import direction_subject


@dataclass(frozen=True, order=True, slots=True)
class Flow:
    """One direction of a link: from one NIC port to another."""

    source: Port
    sink: Port

    def __str__(self) -> str:
        return direction_subject(self.source, self.sink, self.source)


@dataclass(frozen=True, slots=True)
class FlowRate:
    """What a flow carried while all flows of its load ran.

    Attributes:
        bps: in bit/s; None where they did not run side by side for half of the time.
        waited: greatest share of that time in which a sending program waited for a processor.
    """

    bps: float | None
    waited: float = 0.0


class Load(Protocol):
    """Something that loads directions of links, one alone or several at once."""

    def rates(self, flows: Sequence[Flow]) -> list[FlowRate]:
        """Run flows at once; return what each carried. Raises `InstrumentError`."""
