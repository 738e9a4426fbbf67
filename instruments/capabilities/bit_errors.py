"""Who counts wrong bits."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from instruments.capabilities.instruments import Identified
from instruments.clock import Span


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """What was counted while a gate was open.

    Attributes:
        began: between which stamps the gate opened.
        ended: between which stamps it closed.
        bits: how many bits were compared.
        errors: how many of them were wrong.
        sync_lost: whether the pattern was not followed all the time; the counts bound nothing then.
        clock_lost: whether the signal's clock, or the link, was lost.
        void: why the counts bound nothing, where it is neither of these: counters began anew.
    """

    began: Span
    ended: Span
    bits: int
    errors: int
    sync_lost: bool
    clock_lost: bool
    void: str | None = None


class PendingCount(Protocol):
    """A gate that is open."""

    def result(self) -> ErrorCount:
        """Wait until the gate has closed and read the counts."""

    def now(self) -> ErrorCount:
        """The counts so far; the gate stays open."""

    def stop(self) -> ErrorCount:
        """Close the gate at once and read the counts."""


class BitErrorTester(Identified, Protocol):
    """A pattern generator and an error detector; its channels are numbered from 1."""

    def prepare(self, channel: int, *, pattern: str, bits_per_second: float) -> None:
        """Send and expect `pattern` (`PRBS7`, `PRBS13Q`, `PRBS31`, ...) at a bit rate.

        Raises `DeniedError` for what the tester cannot do.
        """

    def align(self, channel: int) -> None:
        """Find threshold and phase; raises `NotDoneError` if the tester finds none."""

    def count(self, channel: int, *, duration: int) -> PendingCount:
        """Open the gate for `duration` ns; returns when the tester has begun."""


class ErrorCounter(Protocol):
    """Counts wrong bits among those that it receives: a tester's channel, a NIC port."""

    @property
    def name(self) -> str:
        """What counts, for people: `ber.1`, `server0.nic0.p0`."""

    @property
    def bits_per_second(self) -> float:
        """How many bits it compares; of symbols, how many symbols."""

    @property
    def slack(self) -> int:
        """For how many ns of a gate bits may be missing that were not lost: stale counters."""

    def count(self, *, duration: int) -> PendingCount:
        """Open the gate for `duration` ns; returns when it is open."""


FecSide = Literal["before", "after"]
"""Whether errors are counted before forward error correction, or those that it leaves."""


@runtime_checkable
class PortErrorCounters(Protocol):
    """A server whose NIC ports count wrong bits."""

    def port_errors(self, port: str, netdev: str, fec: FecSide, rate_bps: float) -> ErrorCounter:
        """What the port's own counters say: wrong bits before FEC, wrong symbols after it.

        port: its name for people. rate_bps: bits a second that it receives.
        """

    def firmware_errors(
        self, port: str, device: str, fec: FecSide, rate_bps: float
    ) -> ErrorCounter:
        """What the NIC's firmware says: wrong bits before FEC, and those that it leaves.

        device: the port's RDMA device.
        """

    def pattern_errors(
        self, port: str, device: str, pattern: str, rate_bps: float
    ) -> AbstractContextManager[ErrorCounter]:
        """Send and check a test pattern for as long as the context lasts; the link is down then.

        device: the port's RDMA device.
        """
