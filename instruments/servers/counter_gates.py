"""A NIC port's counters of wrong bits as a gate: what lies between two readings of them.

A gate is only as good as its counters: where they wrapped, stood at their top, began anew or
may not have been refreshed yet, the count says so and bounds nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from instruments.capabilities import ErrorCount, FecSide
from instruments.clock import Clock, Span
from instruments.errors import CANNOT, DeniedError
from instruments.servers.commands import Reading
from instruments.servers.nic import Nic

T = TypeVar("T")


class CounterGate:
    """A gate on counters that never stop.

    Args:
        began: between which stamps it was opened.
        duration: for how many ns.
        clock: the bench's clock.
        counted: asks the counters what they counted since.
    """

    def __init__(
        self, began: Span, duration: int, clock: Clock, counted: Callable[[], ErrorCount]
    ) -> None:
        self._over = began.latest + duration
        self._clock = clock
        self._counted = counted

    def result(self) -> ErrorCount:
        """Wait until the time is over and read the counters."""
        self._clock.sleep(self._over - self._clock.now())
        return self._counted()

    def now(self) -> ErrorCount:
        """What was counted so far."""
        return self._counted()

    def stop(self) -> ErrorCount:
        """What was counted so far; the counters themselves never stop."""
        return self._counted()


class PortCounters(ABC, Generic[T]):
    """What counts the wrong bits of one NIC port, and tells it when it is asked.

    Args:
        name: the port's name for people.
        nic: the tools of its server.
        device: what these tools call the port.
        fec: which side of forward error correction.
        rate_bps: bits a second that it receives.
        clock: the bench's clock.
    """

    slack = 1_000_000_000
    """How old a counter may be that is told, in ns (a guess)."""

    def __init__(
        self, name: str, nic: Nic, device: str, fec: FecSide, rate_bps: float, clock: Clock
    ) -> None:
        self.name = name
        self.bits_per_second = rate_bps
        self._nic = nic
        self._device = device
        self._fec = fec
        self._after = fec == "after"
        self._clock = clock

    def count(self, *, duration: int) -> CounterGate:
        """Read the counters now, and again `duration` ns later.

        Raises `DeniedError` where they tell no such errors.
        """
        first = self._read()
        if lacking := self._lacking(first.value):
            text, command = lacking
            raise DeniedError(self.name, code=CANNOT, text=text, command=command)
        return CounterGate(
            first.at, duration, self._clock, lambda: self._between(first, self._read())
        )

    @abstractmethod
    def _read(self) -> Reading[T]:
        """What they show now."""

    @abstractmethod
    def _lacking(self, value: T) -> tuple[str, str] | None:
        """What is not told that would be needed, and which command showed that."""

    @abstractmethod
    def _between(self, first: Reading[T], last: Reading[T]) -> ErrorCount:
        """What was counted from one reading to another."""
