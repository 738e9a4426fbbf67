"""Published systems: folders of this package, and entry points of others (docs/systems.md).

As with drivers, a new folder in a checkout is found without declaring it or installing it again.
"""

import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from lightrig.instruments.core.entry_points import entries
from lightrig.testbeds import LightrigError

if TYPE_CHECKING:
    from lightrig.harness.bench import Fabric

GROUP = "lightrig.systems"
"""Entry points of other packages in this group name a `System` each."""
_PACKAGE = "lightrig.harness.systems"


class SystemRegistryError(LightrigError):
    """An entry point of `lightrig.systems` does not name a usable system."""


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
        faults: that are made in a simulation, such as `cut:5s,step=4`.
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
    faults: Sequence[str] = ()


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


@dataclass(frozen=True, slots=True)
class System:
    """One published system: what the generic parts of the harness may load of it.

    Everything but the name is optional. A part is named as `package.module:attribute` and is
    imported when it is first needed, so that an installed system costs nothing where it is not
    used.

    Attributes:
        name: the name in `lightrig claims NAME`, and in the `system:` of a testbed file.
        title: how the paper calls itself.
        published: the file of published values.
        claims: the mapping of names to functions that compute what the paper prints.
        sections: the sections of the report that only this system has, a sequence of
            `lightrig.harness.report.sections.Section`.
        fixtures: the module with the system's own pytest fixtures, a plugin that is loaded when a
            testbed is given; it may implement `pytest_lightrig_unavailable` for them.
        generator: the typer command that `lightrig generate NAME` runs.
        quantities: the quantities that only this system records.
        orchestrator: what `lightrig orchestrate NAME` places jobs by, a function of a testbed
            or `Wiring` that returns a `lightrig.harness.orchestration.Layout`.
        structure: what reads a testbed file that has the sizes of such a fabric instead of its
            parts, a function of its path and a `Vocabulary` that returns a
            `lightrig.harness.orchestration.wiring.Structure` or raises `TestbedError`.
        trainer: what `lightrig train` runs on a testbed of this system, a function of a `Fabric`, a
            `TrainingRequest` and a function that receives what ranks print; it returns a
            `TrainingReport`.
    """

    name: str
    title: str
    published: Path | None = None
    claims: str | None = None
    sections: str | None = None
    fixtures: str | None = None
    generator: str | None = None
    quantities: str | None = None
    orchestrator: str | None = None
    structure: str | None = None
    trainer: str | None = None

    @property
    def built_in(self) -> bool:
        """Whether the system is one of Lightrig's own."""
        return __name__.partition(".")[0] == (self.quantities or "").partition(".")[0]

    def load(self, part: str) -> Any:
        """Import and return one part, such as `claims`; None where the system has none.

        Raises `SystemRegistryError` where the part is named and cannot be imported.
        """
        reference: str | None = getattr(self, part)
        if reference is None:
            return None
        try:
            return pkgutil.resolve_name(reference)
        except (ImportError, AttributeError, ValueError) as error:
            raise SystemRegistryError(
                f"system {self.name}: {part} {reference!r} cannot be loaded: {error}"
            ) from error


@cache
def installed_systems() -> Mapping[str, System]:
    """Return the installed systems by name, in alphabetical order.

    A system of an installed package replaces Lightrig's of the same name. Raises
    `SystemRegistryError` for a folder or an entry point that names no system, or another one.
    """
    folders = pkgutil.iter_modules(import_module(_PACKAGE).__path__)
    shipped = [
        EntryPoint(folder.name, f"{_PACKAGE}.{folder.name}:SYSTEM", GROUP)
        for folder in folders
        if folder.ispkg
    ]
    # Those of Lightrig itself are left over from an installation of an earlier version.
    installed = [entry for entry in entries(GROUP).values() if not entry.value.startswith(_PACKAGE)]
    found = {entry.name: _load(entry) for entry in (*shipped, *installed)}
    return dict(sorted(found.items()))


def _load(entry: EntryPoint) -> System:
    try:
        system = entry.load()
    except (ImportError, AttributeError) as error:
        raise SystemRegistryError(
            f"system {entry.name}: {entry.value} cannot be loaded: {error}\n"
            f"  try       let its module have SYSTEM = System(name={entry.name!r}, ...) "
            "(docs/systems.md)"
        ) from error
    if not isinstance(system, System) or system.name != entry.name:
        raise SystemRegistryError(
            f"system {entry.name}: {entry.value} is not a System of this name"
        )
    return system
