"""Anything that can be asked who it is, and what else is the same of all instruments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from instruments.clock import Span


@dataclass(frozen=True, slots=True)
class Identity:
    """Who answered: what an instrument says of itself."""

    manufacturer: str
    model: str
    serial: str
    firmware: str

    @property
    def simulated(self) -> bool:
        """Whether the instrument declares itself simulated, by a serial starting with SIM."""
        return self.serial.upper().startswith("SIM")

    def __str__(self) -> str:
        return f"{self.manufacturer} {self.model}, serial {self.serial}, firmware {self.firmware}"


class Identified(Protocol):
    """Anything that can say what it is."""

    @property
    def name(self) -> str:
        """Its name in the testbed."""

    def identity(self) -> Identity:
        """Ask it who it is."""

    def wire(self) -> Sequence[str]:
        """The last lines that went over its wire, oldest first, secrets masked."""

    def close(self) -> None:
        """End every session with it."""


@runtime_checkable
class Troubled(Protocol):
    """An instrument that keeps a list of what went wrong."""

    def troubles(self) -> Sequence[str]:
        """What stands in its error queue, oldest first; asking takes it out."""


@runtime_checkable
class Restorable(Protocol):
    """An instrument whose settings can be read, and put back later."""

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Read what is set at `channels`; calling what it returns puts that back."""


class Operation(Protocol):
    """A command that was sent and whose end can be waited for."""

    @property
    def sent(self) -> Span:
        """Between which stamps the command was written."""

    def done(self) -> Span:
        """Wait until the instrument has acknowledged; when that was."""
