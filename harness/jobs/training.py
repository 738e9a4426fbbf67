"""Training scripts on circuits: what is asked of a system's trainer, and what it reports."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from lightrig.testbeds import LightrigError

if TYPE_CHECKING:
    from lightrig.harness.bench import Fabric
    from lightrig.harness.jobs.predicted_steps import PredictedStep


class TrainingRequestError(LightrigError):
    """A training request that does not fit the testbed, before anything has run."""


RESULTS = r"\bloss\b\D*?([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan\b|inf\b))"
"""The numbers of a training script that are compared by default: what follows the word loss."""

Printed: TypeAlias = Callable[[str, int, str], None]
"""Receives the part of a training run, such as "on circuits", a rank and a line that it printed."""


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """A training script and how to run it.

    Attributes:
        source, name, arguments: of the script.
        parallel: degrees of parallelism by name, pipeline stages as `pp`; empty: what fits.
        mode: when circuits are requested.
        results: regular expression of the numbers that are compared between runs.
        ranks: how many; None: one on each NIC of the testbed.
        also: degrees of further sizes in which to run it, each on the first servers.
        max_restarts: how often the script is started again after a failure.
        spares: servers to which ranks may move when the script is started again.
        faults: that are made in a simulation, such as `cut:5s,step=4`.
        predicted: receives the predicted step of the run on circuits, or why there is none, before
            that run begins.
    """

    source: str
    name: str
    arguments: Sequence[str]
    parallel: Mapping[str, int]
    mode: Literal["default", "provisioning"]
    results: str
    ranks: int | None = None
    also: Sequence[Mapping[str, int]] = ()
    max_restarts: int = 0
    spares: Sequence[str] = ()
    faults: Sequence[str] = ()
    predicted: "Callable[[PredictedStep | str], None]" = field(
        default=lambda step: None, compare=False
    )


class TrainingReport(Protocol):
    """Cost of circuits to a training script."""

    @property
    def as_printed_before(self) -> bool:
        """Whether the ranks printed the same numbers on circuits as without."""

    def document(self) -> Mapping[str, Any]:
        """Return all of it as JSON has it."""

    def lines(self) -> Iterator[str]:
        """Yield what a person reads."""


class Trainer(Protocol):
    """Runs a training script on the circuits of a fabric."""

    def __call__(
        self, fabric: "Fabric", request: TrainingRequest, printed: Printed
    ) -> TrainingReport:
        """Run the script; the caller restores the fabric.

        Raises `TrainingRequestError`, and `LightrigError` for what goes wrong later.
        """
