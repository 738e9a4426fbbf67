"""A file of published values: what a paper prints, where, and how our rows answer it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import Field

from harness.claims.computed import computable
from testbeds.findings import Findings
from testbeds.limits import LimitError, Unit, format_value, parse_value
from testbeds.parsing import read_as
from testbeds.parts import Part

PUBLISHED = Path(__file__).parents[2] / "results" / "published"
"""The project's own files."""

Statistic: TypeAlias = Literal["median", "mean", "p99"]
Pick: TypeAlias = Literal["worst", "turn"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure as it is printed, and the values, in `unit`, that its digits stand for.

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
    """Which rows answer a claim, and which statistic of them.

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
class Beside:
    """Something of ours that is told beside a figure which it cannot answer.

    says: what it is. testbed: that it was measured on. lookup: which rows, and which statistic
    of them. stated: whether it is rather the value that the last row states, with its interval.
    """

    says: str
    testbed: str
    lookup: Lookup
    stated: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of a paper with its figure.

    source: section, figure or table. note: what to know when comparing. erratum: what is wrong
    with the figure as printed. unmeasured: why nothing of ours can answer it. ours: what does.
    computed: the name of what computes it, where arithmetic answers it. line: where the file
    states it. beside: what else of ours there is, which is another thing and gives no verdict.
    """

    name: str
    says: str
    figure: Figure
    source: str
    note: str | None
    erratum: str | None
    unmeasured: str | None
    ours: Lookup | None
    computed: str | None
    line: int
    beside: tuple[Beside, ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """The claims of one paper; `testbed` is the one of ours that answers them."""

    path: Path
    system: str
    paper: str
    testbed: str
    claims: tuple[Claim, ...]


class HoldsPart(Part):
    """From which value to which the digits of a printed figure reach; one end may be absent."""

    start: str | float | None = Field(None, alias="from")
    to: str | float | None = None


class LookupPart(Part):
    """Which rows answer a claim."""

    quantity: str
    since: str | None = None
    statistic: Statistic
    conditions: dict[str, str | int | bool] = Field(default_factory=dict)
    pick: Pick = "worst"
    testbed: str | None = None


class BesidePart(Part):
    """Something of ours that is no answer."""

    says: str
    testbed: str
    quantity: str
    statistic: Statistic | Literal["stated"]
    conditions: dict[str, str | int | bool] = Field(default_factory=dict)


class ClaimPart(Part):
    """One claim."""

    says: str
    printed: str
    holds: HoldsPart
    source: str
    note: str | None = None
    erratum: str | None = None
    unmeasured: str | None = None
    computed: str | None = None
    ours: LookupPart | None = None
    beside: list[BesidePart] = Field(default_factory=list)


class PublishedDocument(Part):
    """The claims of one paper."""

    system: str
    paper: str
    testbed: str
    claims: dict[str, ClaimPart]


def known_systems(folder: Path = PUBLISHED) -> list[str]:
    """The systems that `folder` has a file for."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_published(path: Path) -> Published:
    """Read a file of published values.

    Raises `testbeds.TestbedError` with every problem that was found, each with line and column.
    """
    document, located, findings = read_as(PublishedDocument, path)
    claims = []
    for name, part in document.claims.items():
        figure = _figure(name, part, findings)
        _check_answers(document.system, name, part, findings)
        if figure is not None:
            line = located.place(("claims", name), of_key=True).line
            lookup = None if part.ours is None else Lookup(**part.ours.model_dump())
            told = part.note, part.erratum, part.unmeasured
            claims.append(
                Claim(
                    name,
                    part.says,
                    figure,
                    part.source,
                    *told,
                    lookup,
                    part.computed,
                    line,
                    tuple(map(_beside, part.beside)),
                )
            )
    findings.raise_if_any()
    return Published(path, document.system, document.paper, document.testbed, tuple(claims))


def _beside(part: BesidePart) -> Beside:
    stated = part.statistic == "stated"
    statistic: Statistic = "median" if part.statistic == "stated" else part.statistic
    lookup = Lookup(part.quantity, None, statistic, part.conditions, "worst")
    return Beside(part.says, part.testbed, lookup, stated)


def _check_answers(system: str, name: str, part: ClaimPart, findings: Findings) -> None:
    """At most one thing answers a claim, and what computes it is known."""
    if part.ours is not None and part.unmeasured is not None:
        findings.add(("claims", name, "unmeasured"), "nothing is unmeasured that `ours` answers")
    if part.computed is None:
        return
    keys = ("claims", name, "computed")
    if part.ours is not None or part.unmeasured is not None:
        other = "ours" if part.ours is not None else "unmeasured"
        findings.add(keys, f"found beside `{other}`, expected one of the two")
    known = computable(system)
    if part.computed not in known:
        offered = ", ".join(sorted(known)) or "nothing"
        findings.add(keys, f"found {part.computed!r}, but what {system} computes is: {offered}")


def _figure(name: str, part: ClaimPart, findings: Findings) -> Figure | None:
    quantity = part.ours.quantity if part.ours else ""
    ends: dict[str, float] = {}
    units: list[Unit] = []
    for key, text in (("from", part.holds.start), ("to", part.holds.to)):
        if text is None:
            continue
        try:
            ends[key], unit = parse_value(quantity, key, text)
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
