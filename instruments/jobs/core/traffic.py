"""Traffic that goes on while something is done to the fabric: plain values and Protocols."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lightrig.instruments.clock import Span


@dataclass(frozen=True, slots=True)
class Traffic:
    """All-reduces that followed each other without a pause.

    Attributes:
        ranks: the server of each rank, in ring order.
        size: of each all-reduce, in bytes.
        operations: by server, from when to when each operation lasted there, on the bench's
            clock: bounds on its begin, bounds on its end.
        wrong: values that were not as expected, of all ranks.
        failures: by server, what ended its traffic, if it was not asked to end.
        tool: who ran it, with its version.
    """

    ranks: tuple[str, ...]
    size: int
    operations: Mapping[str, tuple[tuple[Span, Span], ...]]
    wrong: int
    failures: Mapping[str, str]
    tool: str

    def completed(self) -> list[tuple[Span, Span]]:
        """Each operation that all ranks completed: when the first began, when the last had ended.

        Of each bound the latest is taken for the end, the earliest for the begin.
        """
        each = zip(*(self.operations[rank] for rank in self.ranks), strict=False)
        return [
            (
                Span(min(b.earliest for b, _ in o), min(b.latest for b, _ in o)),
                Span(max(e.earliest for _, e in o), max(e.latest for _, e in o)),
            )
            for o in each
        ]


class RunningTraffic(Protocol):
    """Traffic that was started."""

    def stop(self) -> Traffic:
        """Let every rank end after the operation it is in, and hand over what was seen.

        Traffic that has failed is no error here: `Traffic.failures` tells of it. Raises
        `CollectiveFailedError` for a rank that answers no more.
        """


class TrafficSource(Protocol):
    """Servers that can keep a collective going."""

    def start(self, ranks: Sequence[str], size: int) -> RunningTraffic:
        """Begin all-reduces of `size` bytes among `ranks`; returns once all have joined.

        Raises `CollectiveFailedError` where they do not find each other.
        """


class AbandonableTraffic(RunningTraffic, Protocol):
    """Traffic that need not be waited for when one of its servers is dead."""

    def abandon(self) -> Traffic:
        """End it at once, in the middle of an operation; what the ranks that still live saw.

        They keep their programs and can join others. Raises `CollectiveFailedError` for a rank
        that answers no more.
        """


@runtime_checkable
class MortalTrafficSource(Protocol):
    """Servers that can keep a collective going until one of them dies."""

    def start(self, ranks: Sequence[str], size: int) -> AbandonableTraffic:
        """See `TrafficSource`."""

    def kill(self, server: str) -> None:
        """End the program of one server, without a word to the others."""
