"""Files of published values: the printed figure, its source, and the rows that answer it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from pydantic import Field

from lightrig.harness.claims.computed import computed_by
from lightrig.harness.quantities import find
from lightrig.harness.systems.registry import installed_systems
from lightrig.testbeds.base import Part
from lightrig.testbeds.findings import Findings
from lightrig.testbeds.limits import LimitError, Unit, format_value, parse_value
from lightrig.testbeds.parsing import read_as
from lightrig.testbeds.quantities import Share

PUBLISHED = Path(__file__).parents[2] / "published"
"""The project's own files."""

Statistic: TypeAlias = Literal["median", "mean", "p99"]
Pick: TypeAlias = Literal["worst", "turn"]
Basis: TypeAlias = Literal["modelled", "emulated", "printed", "released", "fitted"]
"""The ground of a computed value.

modelled: our algorithms or models, from what the paper describes. emulated: its control plane, run
in virtual time. printed: arithmetic on the paper's own numbers and formulas. released: recordings
that the authors released. fitted: inputs that the paper does not print, chosen so that its figure
comes out.
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure as it is printed, and the values in `unit` that its digits stand for.

    `low` or `high` is infinite where the paper states a bound.
    """

    printed: str
    low: float
    high: float
    unit: Unit

    def __str__(self) -> str:
        return self.printed


@dataclass(frozen=True, slots=True)
class Lookup:
    """The rows that answer a claim, and their statistic.

    since: a quantity of the same subject and event that the time is counted from; None for the
        command. conditions: those that a row must have. pick: what stands for an event with
        several subjects: the worst one, or each in its turn, one an event. testbed: whose rows they
    are, where it is not the paper's usual one.
    """

    quantity: str
    since: str | None
    statistic: Statistic
    conditions: Mapping[str, str | int | bool]
    pick: Pick
    testbed: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimContext:
    """A related measurement of ours, which is shown with a claim but does not answer it.

    statement: what it is. testbed: where it was measured. lookup: its rows and their statistic.
    stated: whether to take value and interval of the last row instead of a statistic.
    """

    statement: str
    testbed: str
    lookup: Lookup
    stated: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of a paper with its figure.

    source: section, figure or table. note: a remark on the comparison. erratum: the error in the
    figure as printed. unmeasured: why this harness cannot answer it. ours: the rows that do.
    computed: the name of the function that computes it. basis: its ground. tolerance: share of the
    printed value by which ours may be off and still agree. line: its line in the file. related:
    other measurements of ours, without a verdict.
    """

    name: str
    statement: str
    figure: Figure
    source: str
    note: str | None
    erratum: str | None
    unmeasured: str | None
    ours: Lookup | None
    computed: str | None
    basis: Basis | None
    tolerance: float
    line: int
    related: tuple[ClaimContext, ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """The claims of one paper; `testbed` is the one of ours that answers them."""

    path: Path
    system: str
    paper: str
    testbed: str
    claims: tuple[Claim, ...]


class HoldsPart(Part):
    """The range that the digits of a printed figure stand for; one end may be absent."""

    start: str | float | None = Field(None, alias="from")
    to: str | float | None = None


class LookupPart(Part):
    """The rows that answer a claim."""

    quantity: str
    since: str | None = None
    statistic: Statistic
    conditions: dict[str, str | int | bool] = Field(default_factory=dict)
    pick: Pick = "worst"
    testbed: str | None = None


class ClaimContextPart(Part):
    """A related measurement, which does not answer the claim."""

    statement: str = Field(alias="says")
    testbed: str
    quantity: str
    statistic: Statistic | Literal["stated"]
    conditions: dict[str, str | int | bool] = Field(default_factory=dict)


class ClaimPart(Part):
    """One claim."""

    statement: str = Field(alias="says")
    printed: str
    holds: HoldsPart
    source: str
    note: str | None = None
    erratum: str | None = None
    unmeasured: str | None = None
    computed: str | None = None
    basis: Basis | None = None
    tolerance: Share | None = None
    ours: LookupPart | None = None
    related: list[ClaimContextPart] = Field(default_factory=list, alias="beside")


class PublishedDocument(Part):
    """The claims of one paper; `basis` and `tolerance` are those of claims that have none."""

    system: str
    paper: str
    testbed: str
    basis: Basis | None = None
    tolerance: Share = 0.0
    claims: dict[str, ClaimPart]


def published_files() -> dict[str, Path]:
    """Return the file of published values of each system, by the system's name.

    Those of the installed systems, and the project's own, some of which come before their system.
    """
    found = {path.stem: path for path in PUBLISHED.glob("*.yaml")}
    for name, system in installed_systems().items():
        if system.published is not None:
            found[name] = system.published
    return dict(sorted(found.items()))


def load_published(path: Path) -> Published:
    """Read a file of published values.

    Raises `testbeds.TestbedError` with every problem that was found, each with line and column.
    """
    document, located, findings = read_as(PublishedDocument, path)
    claims = []
    for name, part in document.claims.items():
        figure = _figure(name, part, findings)
        basis = part.basis or document.basis
        _check_answers(document.system, name, part, basis, findings)
        if figure is not None:
            line = located.place(("claims", name), of_key=True).line
            lookup = None if part.ours is None else Lookup(**part.ours.model_dump())
            remarks = part.note, part.erratum, part.unmeasured
            claims.append(
                Claim(
                    name,
                    part.statement,
                    figure,
                    part.source,
                    *remarks,
                    lookup,
                    part.computed,
                    None if part.computed is None else basis,
                    document.tolerance if part.tolerance is None else part.tolerance,
                    line,
                    tuple(map(_context, part.related)),
                )
            )
    findings.raise_if_any()
    return Published(path, document.system, document.paper, document.testbed, tuple(claims))


def _context(part: ClaimContextPart) -> ClaimContext:
    stated = part.statistic == "stated"
    statistic: Statistic = "median" if part.statistic == "stated" else part.statistic
    lookup = Lookup(part.quantity, None, statistic, part.conditions, "worst")
    return ClaimContext(part.statement, part.testbed, lookup, stated)


def _check_answers(
    system: str, name: str, part: ClaimPart, basis: Basis | None, findings: Findings
) -> None:
    """Check that at most one answer is stated, and that a computed one is known with its basis."""
    if part.ours is not None and part.unmeasured is not None:
        findings.add(("claims", name, "unmeasured"), "a claim with `ours` is not unmeasured")
    if part.computed is None:
        if part.basis is not None:
            findings.add(("claims", name, "basis"), "only a claim with `computed` has a basis")
        return
    keys = ("claims", name, "computed")
    if basis is None:
        findings.add(keys, f"found no `basis`, expected one of {', '.join(get_args(Basis))}")
    if part.ours is not None or part.unmeasured is not None:
        answer = "ours" if part.ours is not None else "unmeasured"
        findings.add(keys, f"found beside `{answer}`, expected one of the two")
    if system not in installed_systems():
        found = ", ".join(installed_systems())
        findings.add(keys, f"no system {system!r} is installed; there are: {found}")
        return
    known = computed_by(system)
    if part.computed not in known:
        offered = ", ".join(sorted(known)) or "nothing"
        findings.add(keys, f"found {part.computed!r}, but what {system} computes is: {offered}")


def _figure(name: str, part: ClaimPart, findings: Findings) -> Figure | None:
    quantity = part.ours.quantity if part.ours else ""
    declared = find(quantity)
    ends: dict[str, float] = {}
    units: list[Unit] = []
    for key, text in (("from", part.holds.start), ("to", part.holds.to)):
        if text is None:
            continue
        try:
            ends[key], unit = parse_value(quantity, key, text, declared.unit if declared else None)
        except LimitError as error:
            findings.add(("claims", name, "holds", key), str(error))
            return None
        units.append(unit)
    keys = ("claims", name, "holds")
    if not ends:
        findings.add(keys, "found neither 'from' nor 'to', expected at least one")
        return None
    if len(set(units)) > 1:
        findings.add(keys, f"found two units, {' and '.join(units)}, expected one")
        return None
    low, high = ends.get("from", -inf), ends.get("to", inf)
    if low > high:
        first, last = format_value(units[0], low), format_value(units[0], high)
        findings.add(keys, f"found {first} to {last}, expected the lower value first")
        return None
    return Figure(part.printed, low, high, units[0])
