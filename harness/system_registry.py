"""Published systems: folders of this package, and entry points of others (docs/systems.md).

As with drivers, a new folder in a checkout is found without declaring it or installing it again.
"""

import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lightrig.instruments.core.entry_points import entries
from lightrig.packs import load_all, packs
from lightrig.testbeds import LightrigError, SizesOnlyError, TestbedError, Vocabulary

GROUP = "lightrig.systems"
"""Entry points of other packages in this group name a `System` each."""
_PACKAGE = "lightrig.harness.systems"


class SystemRegistryError(LightrigError):
    """An entry point of `lightrig.systems` does not name a usable system."""


class SizedFabric(Protocol):
    """A fabric that a file describes by its sizes, checked and never expanded whole."""

    name: str
    about: str
    notes: tuple[str, ...]

    def parts(self) -> Iterator[tuple[str, int, list[str]]]:
        """Yield each kind of part, how many of it there are, and what to say of them."""


@runtime_checkable
class PlannedFabric(SizedFabric, Protocol):
    """A fabric of stated sizes with plans, also for what has failed."""

    @property
    def plans(self) -> Sequence[str]:
        """Names of the plans."""

    def planned(self, plan: str, failed: Sequence[str]) -> tuple[bool, dict[str, Any]]:
        """Return whether a plan holds without what has failed, and what it sets; JSON.

        Raises `PlanError` for names that there are not.
        """

    def tell(self, document: Mapping[str, Any]) -> list[str]:
        """Return a document of `planned` as lines for a person to read."""


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
        rank_messages: what takes messages of the ranks of jobs of `orchestrator`, where ranks ask
            for circuits: a function of the `Orchestrator`, a file of what was heard and the
            `Control` by which it leads, that returns a
            `lightrig.harness.orchestration.rank_messages.RankMessages`.
        structure: what reads a testbed file that has the sizes of such a fabric instead of its
            parts, a function of its path and a `Vocabulary` that returns a
            `lightrig.harness.orchestration.wiring.Structure` or raises `TestbedError`.
        trainer: what `lightrig train` runs on a testbed of this system, a function of a `Fabric`, a
            `TrainingRequest` and a function that receives what ranks print; it returns a
            `TrainingReport` (`lightrig.harness.jobs.training`).
        served_fabric: what `lightrig train --socket` runs a script on, beside other jobs of the
            service of `orchestrator`: a function of a testbed, a `TrainingRequest`, the service's
            socket and what others are told, that returns a context manager of a `Fabric`.
        simulated_fabric: what `lightrig simulate WORKLOAD NAME:key=value` runs steps on, a function
            of a `lightrig.harness.workloads.fabrics.Options` that returns a `SimulatedFabric`.
        figures: the mapping of names to functions that return the series of the paper's figures,
            `lightrig.harness.claims.figures.curves.Figures`.
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
    rank_messages: str | None = None
    structure: str | None = None
    trainer: str | None = None
    served_fabric: str | None = None
    simulated_fabric: str | None = None
    figures: str | None = None

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

    A system of an installed package replaces Lightrig's of the same name. Where the pack of systems
    cannot be imported, it has none of its own. Raises
    `SystemRegistryError` for a folder or an entry point that names no system, or another one.
    """
    shipped = (
        []
        if packs()["systems"].problem
        else [
            EntryPoint(folder.name, f"{_PACKAGE}.{folder.name}:SYSTEM", GROUP)
            for folder in pkgutil.iter_modules(import_module(_PACKAGE).__path__)
            if folder.ispkg
        ]
    )
    # Those of Lightrig itself are left over from an installation of an earlier version.
    installed = [entry for entry in entries(GROUP).values() if not entry.value.startswith(_PACKAGE)]
    found = {entry.name: _load(entry) for entry in (*shipped, *installed)}
    return dict(sorted(found.items()))


def structure_of(file: Path, found: SizesOnlyError, vocabulary: Vocabulary) -> SizedFabric:
    """Read a file of which `load` raised `found`: the sizes of a fabric that a system builds.

    Raises `TestbedError`.
    """
    system = installed_systems().get(found.system or "")
    if system is None or system.structure is None:
        (place,) = found.problems
        problem = f"has the sizes of a fabric, which the system {found.system!r} does not build"
        raise TestbedError([replace(place, message=problem)])
    structure: SizedFabric = system.load("structure")(file, vocabulary)
    return structure


def installed_parts(part: str) -> Iterator[tuple[str, Any]]:
    """Yield the name of each pack, then of each system, that has a part, with the part.

    Raises `PackError` or `SystemRegistryError` for one that cannot be loaded.
    """
    yield from ((pack.name, loaded) for pack, loaded in load_all(part))
    for name, system in installed_systems().items():
        if (loaded := system.load(part)) is not None:
            yield name, loaded


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
