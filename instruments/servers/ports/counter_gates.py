"""Gates on a NIC port's error counters: the difference of two readings.

A gate is only as good as its counters: if they wrapped, saturated, were reset or may not have been
updated yet, the count is void and bounds nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import ErrorCount, FecSide
from lightrig.instruments.core.errors import CANNOT, DeniedError
from lightrig.instruments.servers.host.commands import Reading
from lightrig.instruments.servers.ports.nic import Nic

T = TypeVar("T")
C = TypeVar("C")


class CounterGate(Generic[C]):
    """A gate on free-running counters.

    Args:
        began: stamps before and after its opening.
        duration: its length in ns.
        clock: the bench's clock.
        counted: reads the counters and returns the difference since the opening.
    """

    def __init__(self, began: Span, duration: int, clock: Clock, counted: Callable[[], C]) -> None:
        self._over = began.latest + duration
        self._clock = clock
        self._counted = counted

    def result(self) -> C:
        """Wait for the end of the gate and read the counters."""
        self._clock.sleep(self._over - self._clock.now())
        return self._counted()

    def now(self) -> C:
        """Return the count so far."""
        return self._counted()

    def stop(self) -> C:
        """Return the count so far; the counters are free-running."""
        return self._counted()


class PortCounters(ABC, Generic[T]):
    """Error counters of one NIC port, read on request.

    Args:
        name: the port's name for people.
        nic: the tools of its server.
        device: the port's name for these tools.
        fec: before or after forward error correction.
        rate_bps: received bit rate.
        clock: the bench's clock.
    """

    slack = 1_000_000_000
    """Age that a reading of a counter may have, in ns (a guess)."""

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

    def count(self, *, duration: int) -> CounterGate[ErrorCount]:
        """Read the counters now, and again `duration` ns later.

        Raises `DeniedError` if the port has no such counters.
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
        """Read the counters."""

    @abstractmethod
    def _lacking(self, value: T) -> tuple[str, str] | None:
        """Return what is missing, and the command that shows it; None if nothing is."""

    @abstractmethod
    def _between(self, first: Reading[T], last: Reading[T]) -> ErrorCount:
        """Return the difference of two readings."""
