"""RDMA between two NIC ports: what is asked of whoever measures it, and what comes back."""

from dataclasses import dataclass
from typing import Protocol

from lightrig.instruments.clock import Span


@dataclass(frozen=True, slots=True)
class RdmaLatency:
    """One-way times of messages of `size` bytes, in ns.

    Attributes:
        typical_ns: the median of `iterations` messages.
        p99_ns: what 99 % of them did not exceed; None where the tool does not say.
        gid_index: index of the RoCE address that the tool chose; None where it does not say.
        at: from before it was asked for to after it was known.
    """

    size: int
    iterations: int
    typical_ns: int
    p99_ns: int | None
    at: Span
    gid_index: int | None = None


@dataclass(frozen=True, slots=True)
class RdmaBandwidth:
    """Return the average rate of messages of `size` bytes, in bit/s; else as `RdmaLatency`."""

    size: int
    iterations: int
    average_bps: float
    at: Span
    gid_index: int | None = None


DEFAULT_TIMEOUT = 60_000_000_000
"""Time allowed for a measurement where that of a server's tools is not longer, in ns."""


class RdmaLink(Protocol):
    """Two ends that can be asked for both; see `instruments.servers.rdma_pair`."""

    @property
    def retry_ns(self) -> int:
        """Time for which a message is retransmitted before the ends give up, in ns."""

    def latency(self, size: int, iterations: int, *, timeout: int | None = None) -> RdmaLatency:
        """Of `iterations` messages of `size` bytes; raises `InstrumentError`, `ToolOutputError`."""

    def bandwidth(self, size: int, iterations: int, *, timeout: int | None = None) -> RdmaBandwidth:
        """Of `iterations` messages of `size` bytes; raises the same."""
