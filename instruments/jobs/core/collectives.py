"""Collectives over the fabric: what is asked of whoever runs them, and what comes back.

Plain values and one Protocol, so that nccl-tests on GPUs and Gloo in network namespaces are
two answers to the same question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lightrig.instruments.clock import Span
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.jobs.core.traffic import AbandonableTraffic
from lightrig.instruments.jobs.flows.bandwidth import Collective

DEFAULT_TIMEOUT = 120_000_000_000
"""Longest time of a sweep, in ns; a collective over a link that is down never ends."""


class CollectiveFailedError(InstrumentError):
    """A collective ended with an error, or did not end."""


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective to run.

    Attributes:
        collective: which one.
        ranks: the server of each rank, in ring order: rank i sends to rank i + 1. A server
            with several ranks stands here as often, side by side.
        sizes: in bytes, ascending, as nccl-tests counts them: the whole buffer of a rank, for
            `all_gather` the gathered one.
        warm_up: operations before those that are timed, of each size.
        iterations: operations that are timed, of each size.
    """

    collective: Collective
    ranks: tuple[str, ...]
    sizes: tuple[int, ...]
    warm_up: int = 5
    iterations: int = 20


@dataclass(frozen=True, slots=True)
class CollectiveMeasurement:
    """One size of one collective.

    Attributes:
        collective: which one.
        ranks: as in the call.
        size: in bytes, as in the call; a tool may have rounded it down to whole elements.
        times_ns: how long one operation took, at the slowest rank; each is a sample.
        averaged_over: how many operations each of `times_ns` is the mean of; 1 where every
            operation was timed.
        wrong: values that were not as expected; None where they were not checked.
        tool: who ran it, with its version, such as `nccl-tests 2.17.6`.
        environment: what was set and changes the figure: NCCL_* variables, the launcher.
        at: from before it was asked for to after it was known to have ended.
    """

    collective: Collective
    ranks: tuple[str, ...]
    size: int
    times_ns: tuple[int, ...]
    averaged_over: int
    wrong: int | None
    tool: str
    environment: Mapping[str, str]
    at: Span


@dataclass(frozen=True, slots=True)
class Exchange:
    """An all-to-all in which every rank has a share of its own for each other.

    Attributes:
        ranks: the server of each rank, each once.
        lanes: bytes from each rank to each other, ranks x ranks, of each lane: ways that are
            used side by side.
    """

    ranks: tuple[str, ...]
    lanes: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def size(self) -> int:
        """Bytes of all shares together."""
        return sum(size for lane in self.lanes for row in lane for size in row)


@dataclass(frozen=True, slots=True)
class ExchangeMeasurement:
    """An exchange that was run again and again.

    Attributes:
        exchange: what was asked for.
        times_ns: how long each operation took, at the slowest rank.
        wrong: values that were not as expected.
        tool: who ran it, with its version.
        at: from before it was asked for to after it was known to have ended.
    """

    exchange: Exchange
    times_ns: tuple[int, ...]
    wrong: int
    tool: str
    at: Span


class ExchangeRunner(Protocol):
    """Runs all-to-alls of unequal shares on servers."""

    def exchange(
        self, what: Exchange, *, warm_up: int, iterations: int, timeout: int = DEFAULT_TIMEOUT
    ) -> ExchangeMeasurement:
        """Run `what` to its end `iterations` times, within `timeout` ns.

        Raises `CollectiveFailedError` and `InstrumentError`, as `CollectiveRunner.run` does.
        """

    def start_exchange(self, what: Exchange) -> AbandonableTraffic:
        """Begin exchanges that follow each other; returns once all ranks have joined.

        Raises `CollectiveFailedError` where they do not find each other.
        """


class CollectiveRunner(Protocol):
    """Runs collectives on servers."""

    @property
    def simulated(self) -> bool:
        """Whether the times are a model's."""

    def run(
        self, call: CollectiveCall, *, timeout: int = DEFAULT_TIMEOUT
    ) -> Sequence[CollectiveMeasurement]:
        """Run `call` to its end, within `timeout` ns; one measurement for each size, in order.

        Raises:
            CollectiveFailedError: it ended with an error, or not in time.
            InstrumentError: a server could not be asked.
            ToolOutputError: what was printed cannot be read with certainty.
        """
