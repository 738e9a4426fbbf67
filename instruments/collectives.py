"""Collectives over the fabric: what is asked of whoever runs them, and what comes back.

Plain values and one Protocol, so that nccl-tests on GPUs and Gloo in network namespaces are
two answers to the same question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from instruments.clock import Span
from instruments.errors import InstrumentError
from testbeds.flows import Collective

DEFAULT_TIMEOUT = 120_000_000_000
"""How long a sweep may take, in ns; a collective over a link that is down never ends."""


class CollectiveFailedError(InstrumentError):
    """A collective ended with an error, or did not end."""


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """What is to be run.

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
