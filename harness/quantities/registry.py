"""All declared quantities: the generic ones, those of systems, and those of a user's conftest."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from lightrig.harness.quantities.declarations import CLOSURE, DECLARED, HARNESS
from lightrig.harness.quantities.quantity import Quantity, QuantityDeclarationError
from lightrig.harness.system_registry import installed_parts, installed_systems
from lightrig.packs import load_all
from lightrig.testbeds import LightrigError
from lightrig.testbeds.findings import did_you_mean
from lightrig.testbeds.limits import LimitedQuantity, QuantityNames


class UnknownQuantityError(LightrigError, LookupError):
    """No quantity of this name is declared."""


class Registry:
    """Quantities by name, and present names by alias.

    Filled when first asked: the quantities of systems need the installed entry points, and
    most programs that import this module never ask.
    """

    def __init__(self) -> None:
        self._filled = False
        self.stored: set[str] = set()
        self.by_name: dict[str, Quantity] = {}
        self.present: dict[str, str] = {}

    def filled(self) -> "Registry":
        """Return it with the quantities of Lightrig and of installed packs and systems."""
        if not self._filled:
            self.add(DECLARED)
            for _, quantities in installed_parts("quantities"):
                self.add(quantities)
            self._filled = True
        return self

    def add(self, quantities: Iterable[Quantity]) -> None:
        """Add quantities; raises `QuantityDeclarationError` for a name that is taken."""
        for one in quantities:
            known = self.by_name.get(one.name)
            if known == one:  # a conftest that is imported twice
                continue
            if one.name in self.stored:  # a declaration comes before what an old run kept of it
                self.remove(one.name)
            for name in (one.name, *one.aliases):
                if name in self.by_name or name in self.present:
                    raise QuantityDeclarationError(
                        f"the quantity {name!r} is declared already; choose another name"
                    )
            self.by_name[one.name] = one
            self.present |= dict.fromkeys(one.aliases, one.name)

    def remove(self, name: str) -> None:
        """Forget a quantity and its aliases."""
        self.stored.discard(name)
        for alias in self.by_name.pop(name).aliases:
            del self.present[alias]


REGISTRY = Registry()
"""What this process has declared, and what it has read with earlier runs."""


def declare(*quantities: Quantity) -> None:
    """Declare quantities of your own, as in a conftest.py; see docs/quantities.md.

    Raises `QuantityDeclarationError` for a name that is taken.
    """
    REGISTRY.filled().add(quantities)


def declare_stored(quantities: Iterable[Quantity]) -> None:
    """Declare quantities of an earlier run, except those whose names are taken."""
    registry = REGISTRY.filled()
    for one in quantities:
        taken = registry.by_name.keys() | registry.present.keys()
        if taken.isdisjoint((one.name, *one.aliases)):
            registry.add([one])
            registry.stored.add(one.name)


def declared_elsewhere() -> list[Quantity]:
    """Return the quantities that neither Lightrig nor its own systems declare."""
    known = set(DECLARED)
    for pack, quantities in load_all("quantities"):
        if pack.built_in:
            known.update(quantities)
    for system in installed_systems().values():
        if system.built_in:
            known.update(system.load("quantities") or ())
    return [one for one in all_quantities().values() if one not in known]


def all_quantities() -> Mapping[str, Quantity]:
    """Return every declared quantity by name, in the order of declaration."""
    return MappingProxyType(REGISTRY.filled().by_name)


def aliases() -> Mapping[str, str]:
    """Return the present name of each alias."""
    return MappingProxyType(REGISTRY.filled().present)


def current_name(name: str) -> str:
    """Return the present name of a quantity; `name` itself where it is no alias."""
    return REGISTRY.filled().present.get(name, name)


def find(name: str) -> Quantity | None:
    """Return the quantity of this name or alias, or None."""
    registry = REGISTRY.filled()
    return registry.by_name.get(registry.present.get(name, name))


def names_in_files() -> QuantityNames:
    """Return the name and unit of each quantity by every name that a file may use for it."""
    registry = REGISTRY.filled()
    found = {
        name: LimitedQuantity(name, one.unit, one.better, one.least, one.greatest)
        for name, one in registry.by_name.items()
    }
    return found | {alias: found[name] for alias, name in registry.present.items()}


def quantity(name: str) -> Quantity:
    """Return the quantity of this name or alias; raises `UnknownQuantityError`."""
    found = find(name)
    if found is None:
        raise UnknownQuantityError(
            f"no quantity {name!r} is declared{did_you_mean(name, sorted(all_quantities()))}"
        )
    return found


def quantity_of(name: str, unit: str) -> Quantity:
    """Return the quantity of recorded rows, whose declaration may be absent here.

    A report can be written where the conftest that declares a quantity is not installed. Its
    direction is not known then, but subjects of one event are still no independent samples.
    """
    found = find(name)
    if found is not None:
        return found
    try:
        return Quantity(name=name, unit=unit, meaning="", combine="greatest")
    except QuantityDeclarationError:  # a journal may hold any text as a name
        return Quantity(name="undeclared", unit=unit, meaning="", combine="greatest", title=name)


def is_of_harness(name: str, unit: str) -> bool:
    """Whether a quantity is about the harness or its simulation, and not about the lab."""
    return name == "watched" or quantity_of(name, unit).section in {CLOSURE, HARNESS}


def in_section(section: str) -> tuple[Quantity, ...]:
    """Return the quantities of a section of the report, in the order of declaration."""
    return tuple(one for one in all_quantities().values() if one.section == section)
