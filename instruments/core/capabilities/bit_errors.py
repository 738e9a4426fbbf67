"""Counting of bit errors."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities.instruments import Identified


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """The counts of one gate.

    Attributes:
        began: between which stamps the gate opened.
        ended: between which stamps it closed.
        bits: how many bits were compared.
        errors: how many of them were wrong.
        sync_lost: whether synchronization with the pattern was lost; the counts bound nothing then.
        clock_lost: whether the signal's clock, or the link, was lost.
        void: why else the counts bound nothing, such as counters that were reset; None if they do.
        most_bits: how many may have been compared, where `bits` is the least number by the time
            between two readings; None where `bits` was counted.
    """

    began: Span
    ended: Span
    bits: int
    errors: int
    sync_lost: bool
    clock_lost: bool
    void: str | None = None
    most_bits: int | None = None


class PendingCount(Protocol):
    """A gate that is open."""

    def result(self) -> ErrorCount:
        """Wait until the gate has closed and read the counts."""

    def now(self) -> ErrorCount:
        """Return the counts so far; the gate stays open."""

    def stop(self) -> ErrorCount:
        """Close the gate at once and read the counts."""


class BitErrorTester(Identified, Protocol):
    """A pattern generator and an error detector; its channels are numbered from 1."""

    def prepare(self, channel: int, *, pattern: str, bits_per_second: float) -> None:
        """Send and expect `pattern` (`PRBS7`, `PRBS13Q`, `PRBS31`, ...) at a bit rate.

        Raises `DeniedError` for a pattern or rate that the tester does not have.
        """

    def align(self, channel: int) -> None:
        """Search threshold and phase; raises `NotDoneError` where there are none."""

    def count(self, channel: int, *, duration: int) -> PendingCount:
        """Open the gate for `duration` ns; returns when the tester has begun."""


class ErrorCounter(Protocol):
    """A receiver that counts bit errors: a channel of a tester, a NIC port."""

    @property
    def name(self) -> str:
        """Name of the receiver: `ber.1`, `server0.nic0.p0`."""

    @property
    def bits_per_second(self) -> float:
        """Number of bits compared per second; of symbols, the number of symbols."""

    @property
    def slack(self) -> int:
        """Part of a gate, in ns, whose bits may be missing since counters update late."""

    def count(self, *, duration: int) -> PendingCount:
        """Open the gate for `duration` ns; returns when it is open."""


FecSide = Literal["before", "after"]
"""Whether errors are counted before or after forward error correction."""

ErrorUnit = Literal["bits", "symbols", "codewords"]
"""Unit of comparison: bits, symbols of the FEC, or its code words."""


class FecCounter(ErrorCounter, Protocol):
    """An error counter whose unit depends on what the driver counts."""

    @property
    def unit(self) -> ErrorUnit:
        """The unit, once the first gate was opened."""


@dataclass(frozen=True, slots=True)
class SymbolErrorHistogram:
    """Code words of one gate by their number of symbol errors.

    Attributes:
        began: between which stamps the gate opened.
        ended: between which stamps it closed.
        bins: least and greatest number of symbol errors, and code words.
        uncorrectable: code words that could not be corrected; they are in no bin.
        codewords: all code words of the gate.
        symbols: symbols of a code word, 528 or 544.
        correctable: symbol errors that the code corrects in one.
        void: why the counts bound nothing, such as a link that was down; None if they do.
    """

    began: Span
    ended: Span
    bins: tuple[tuple[int, int, int], ...]
    uncorrectable: int
    codewords: int
    symbols: int
    correctable: int
    void: str | None = None


class PendingHistogram(Protocol):
    """A gate that is open."""

    def result(self) -> SymbolErrorHistogram:
        """Wait until the gate has closed and read the counts."""


class HistogramCounter(Protocol):
    """A NIC port whose driver counts code words by their number of symbol errors."""

    @property
    def name(self) -> str:
        """Name of the port: `server0.nic0.p0`."""

    def count(self, *, duration: int) -> PendingHistogram:
        """Open the gate for `duration` ns; raises `DeniedError` where nothing is counted."""


@runtime_checkable
class HasFecHistograms(Protocol):
    """A server whose NIC ports may count code words by their number of symbol errors."""

    def fec_histogram(self, port: str, netdev: str, rate_bps: float) -> HistogramCounter:
        """Return a counter that reads the kernel's histogram, for any driver that has one."""


@runtime_checkable
class PortErrorCounters(Protocol):
    """A server whose NIC ports count bit errors."""

    def port_errors(self, port: str, netdev: str, fec: FecSide, rate_bps: float) -> ErrorCounter:
        """Return a counter that reads the port's counters: bits before FEC, symbols after it.

        port: its name in reports. rate_bps: bits per second that it receives.
        """

    def fec_errors(self, port: str, netdev: str, fec: FecSide, rate_bps: float) -> FecCounter:
        """Return a counter that reads the kernel's standard FEC counters, for any driver."""

    def firmware_errors(
        self, port: str, device: str, fec: FecSide, rate_bps: float
    ) -> ErrorCounter:
        """Return a counter that reads the NIC's firmware, before or after FEC.

        device: the port's RDMA device.
        """

    def pattern_errors(
        self, port: str, device: str, pattern: str, rate_bps: float
    ) -> AbstractContextManager[ErrorCounter]:
        """Send and check a test pattern for as long as the context lasts; the link is down then.

        device: the port's RDMA device.
        """
