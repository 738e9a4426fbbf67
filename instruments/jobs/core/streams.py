"""Exchanges of blocks over one connection between two servers."""

from dataclasses import dataclass

from lightrig.instruments.clock import Span


@dataclass(frozen=True, slots=True)
class StreamState:
    """State of the exchanges of one connection.

    Attributes:
        exchanges: how many have ended.
        wrong: how many of their answers were not as they have to be.
        slow: when those that took 1 ms and more began and ended, on the bench's clock.
        durations: of these, in ns, by the one clock of the server that sent.
        began: when the present exchange began.
        error: the error that ended them, with its name; empty without.
        failed: when, or None.
        rto: present retransmission timeout of the kernel, in ns; None where the connection is over.
        ends: when the exchanges at the first end, or of the first rank, ended; empty where unknown.
        retransmitted: when the kernels of the ends had sent segments again; empty where unknown.
        reformed: when the ranks that go on had left others behind, or taken them back, in order.
        warned: when the library warned of something; empty where unknown.
        groups: the ranks that go on, in the groups in which they do; empty where unknown.
    """

    exchanges: int
    wrong: int
    slow: tuple[tuple[Span, Span], ...]
    durations: tuple[int, ...]
    began: Span
    error: str
    failed: Span | None
    rto: int | None
    ends: tuple[Span, ...] = ()
    retransmitted: tuple[Span, ...] = ()
    reformed: tuple[Span, ...] = ()
    groups: frozenset[frozenset[str]] = frozenset()
    warned: tuple[Span, ...] = ()
