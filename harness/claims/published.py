"""Files of published values: the printed figure, its source, and the rows that answer it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from pydantic import Field

from lightrig.harness.claims.computed import computed_by
from lightrig.harness.quantities.registry import find
from lightrig.harness.system_registry import installed_systems
from lightrig.testbeds.base import Part
from lightrig.testbeds.findings import Findings
from lightrig.testbeds.limits import LimitError, Unit, format_value, parse_value
from lightrig.testbeds.parsing import read_as
from lightrig.testbeds.quantities import Share

PUBLISHED = Path(__file__).parents[2] / "published"
"""The project's own files."""

Statistic: TypeAlias = Literal["median", "mean", "p99"]
Pick: TypeAlias = Literal["worst", "turn"]
Basis: TypeAlias = Literal["computed", "emulated", "printed", "released", "fitted"]
"""The ground of a computed value.

computed: by a path that contains neither the printed figure nor the paper's formula for it; the
claim names the path. emulated: its control plane, run in virtual time. printed: constants, and
arithmetic on the paper's own numbers and formulas. released: recordings that the authors released.
fitted: inputs that the paper does not print, chosen so that its figure comes out.
"""
SHOWN = "as described"
"""The figure of a mechanism for which the paper prints none."""


@dataclass(frozen=True, slots=True)
class PrintedFigure:
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
    figure as printed, by an argument that does not rest on our reading. difference: why the value
    here differs from the figure. unmeasured: why this harness cannot answer it. ours: the rows that
    do. computed: the name of the function that computes it. basis: its ground. path: the
    independent path of a computed value. tested: whether tests marked with the claim answer it.
    same_as: the claim whose value answers this one too. undecided: why a value of ours supports no
    verdict. tolerance: share of the printed value by which ours may be off and still agree, where
    it is not that of its kind, with its reason.
    line: its line in the file. related: other measurements of ours, without a verdict.
    """

    name: str
    statement: str
    figure: PrintedFigure
    source: str
    note: str | None
    erratum: str | None
    difference: str | None
    unmeasured: str | None
    ours: Lookup | None
    computed: str | None
    basis: Basis | None
    path: str | None
    tested: bool
    same_as: str | None
    undecided: str | None
    tolerance: tuple[float, str] | None
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


class TolerancePart(Part):
    """A tolerance that is not the rule of its kind, and why."""

    share: Share
    reason: str


class ClaimPart(Part):
    """One claim."""

    statement: str = Field(alias="says")
    printed: str = SHOWN
    holds: HoldsPart | None = None
    source: str
    note: str | None = None
    erratum: str | None = None
    difference: str | None = None
    unmeasured: str | None = None
    computed: str | None = None
    basis: Basis | None = None
    path: str | None = None
    tested: bool = False
    same_as: str | None = None
    undecided: str | None = None
    tolerance: TolerancePart | None = None
    ours: LookupPart | None = None
    related: list[ClaimContextPart] = Field(default_factory=list, alias="beside")


class PublishedDocument(Part):
    """The claims of one paper; `basis` is that of claims that have none.

    paths: independent paths of computed values, each described in a sentence, by name.
    """

    system: str
    paper: str
    testbed: str
    basis: Basis | None = None
    paths: dict[str, str] = Field(default_factory=dict)
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
        basis = None if part.computed is None else part.basis or document.basis
        _check_answers(document, name, part, basis, findings)
        if figure is not None:
            exception = part.tolerance
            claims.append(
                Claim(
                    name,
                    part.statement,
                    figure,
                    part.source,
                    note=part.note,
                    erratum=part.erratum,
                    difference=part.difference or _of_repeated(document, part),
                    unmeasured=part.unmeasured,
                    ours=None if part.ours is None else Lookup(**part.ours.model_dump()),
                    computed=part.computed,
                    basis=basis,
                    path=None if part.path is None else document.paths.get(part.path),
                    tested=part.tested,
                    same_as=part.same_as,
                    undecided=part.undecided,
                    tolerance=None if exception is None else (exception.share, exception.reason),
                    line=located.place(("claims", name), of_key=True).line,
                    related=tuple(map(_context, part.related)),
                )
            )
    findings.raise_if_any()
    return Published(path, document.system, document.paper, document.testbed, tuple(claims))


def _of_repeated(document: PublishedDocument, part: ClaimPart) -> str | None:
    """Return the reason of a difference that is stated with the claim which this one repeats."""
    same = None if part.same_as is None else document.claims.get(part.same_as)
    return None if same is None else same.difference


def _context(part: ClaimContextPart) -> ClaimContext:
    stated = part.statistic == "stated"
    statistic: Statistic = "median" if part.statistic == "stated" else part.statistic
    lookup = Lookup(part.quantity, None, statistic, part.conditions, "worst")
    return ClaimContext(part.statement, part.testbed, lookup, stated)


def _check_answers(
    document: PublishedDocument, name: str, part: ClaimPart, basis: Basis | None, findings: Findings
) -> None:
    """Check that one answer is stated, that it is known, and that a computed one has its path."""
    answers = [
        key
        for key in ("ours", "computed", "tested", "same_as", "unmeasured")
        if getattr(part, key) not in (None, False)
    ]
    if len(answers) > 1:
        both = " and ".join(f"`{key}`" for key in answers)
        findings.add(("claims", name, answers[1]), f"found {both}, expected one answer")
    if part.same_as is not None:
        same = document.claims.get(part.same_as)
        if same is None or same.same_as is not None or part.same_as == name:
            found = f"found {part.same_as!r}, expected another claim with its own answer"
            findings.add(("claims", name, "same_as"), found)
    if part.path is not None and part.path not in document.paths:
        offered = ", ".join(sorted(document.paths)) or "nothing"
        keys = ("claims", name, "path")
        findings.add(keys, f"found {part.path!r}, but `paths` describes: {offered}")
    if part.computed is None:
        if part.basis is not None:
            findings.add(("claims", name, "basis"), "only a claim with `computed` has a basis")
        return
    keys = ("claims", name, "computed")
    if basis is None:
        findings.add(keys, f"found no `basis`, expected one of {', '.join(get_args(Basis))}")
    if (basis == "computed") != (part.path is not None):
        found = "no `path`" if part.path is None else f"`path` with the basis {basis!r}"
        findings.add(keys, f"found {found}; a claim of the basis 'computed' names its path")
    if document.system not in installed_systems():
        installed = ", ".join(installed_systems())
        findings.add(keys, f"no system {document.system!r} is installed; there are: {installed}")
        return
    known = computed_by(document.system)
    if part.computed not in known:
        offered = ", ".join(sorted(known)) or "nothing"
        found = f"found {part.computed!r}, but what {document.system} computes is: {offered}"
        findings.add(keys, found)


def _figure(name: str, part: ClaimPart, findings: Findings) -> PrintedFigure | None:
    quantity = part.ours.quantity if part.ours else ""
    declared = find(quantity)
    ends: dict[str, float] = {}
    units: list[Unit] = []
    if part.holds is None:
        if part.tested or part.same_as or part.unmeasured:
            return PrintedFigure(part.printed, 1.0, 1.0, "share")
        findings.add(("claims", name), "found no `holds`, expected the range of the figure")
        return None
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
    return PrintedFigure(part.printed, low, high, units[0])
