"""Suspected causes: what is wrong, joined over the cabling to the fewest components.

Each piece of evidence names the components of which any one alone would explain it. The component
that explains most of it and least of what is as ever is a suspected cause, together with those that
the evidence cannot tell from it; what it explains is taken away, and the rest is joined again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from markupsafe import Markup

from lightrig.harness.components import Components, LabComponent
from lightrig.harness.findings import (
    CLOCK,
    FACTOR,
    FAILED,
    MOST_NAMED,
    OF_SERIES,
    ROCE_MOVED,
    SWAPPED_FIBERS,
    Finding,
    next_step,
    places,
)
from lightrig.harness.record import TestOutcome
from lightrig.harness.record.run_folder import load_findings
from lightrig.harness.report.card_names import card_name
from lightrig.harness.report.frames import RunFrame, TestbedFrame, natural
from lightrig.harness.report.markup import test_link
from lightrig.harness.report.templates import render_macro
from lightrig.testbeds import Testbed
from lightrig.testbeds.intervals import interval

CERTAIN = frozenset((CLOCK, ROCE_MOVED, SWAPPED_FIBERS))
"""Kinds of findings that stand on a card also where no test failed."""

MOST_STEPS = 2
"""Most pieces of advice of its findings that a card repeats."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A finding, and in which nights.

    family: what it is compared with, a key of the components of those that are as ever. test: that
    it made fail. since: date of the first night. nights: in a row. confirmed: by later nights.
    command: that measures it again. link: address of its rows or its test. looked: the last night
    that looked for it, where later ones did not.
    """

    finding: Finding
    family: Hashable
    test: str = ""
    since: str = ""
    nights: int = 1
    confirmed: bool = False
    command: str = ""
    link: str = ""
    looked: str = ""

    @property
    def text(self) -> str:
        """The observation."""
        test = self.test.rpartition("::")[2]
        return f"{test} failed: {self.finding.evidence}" if test else self.finding.evidence

    @property
    def name(self) -> str:
        """A name made of the finding's kind and components: each night the same, without spaces.

        A test's failure without components has its test in their place.
        """
        parts = [*map(str, self.finding.components)]
        return card_name(self.finding.kind, parts or [self.test.rpartition("::")[2] or "nowhere"])

    @property
    def size(self) -> str:
        """The size with its interval; a change has a sign."""
        found = self.finding
        if found.value is None or found.lower is None or found.upper is None:
            return ""
        unit = "" if found.unit == FACTOR else found.unit
        lower, upper = found.lower, found.upper
        if lower == upper:  # one reading: its digits say nothing of how well it is known
            lower, upper = sorted((0.995 * lower, 1.005 * upper))
        written = interval(lower, upper, unit, found.value)
        size = written.value
        if found.unit == FACTOR:
            size = f"\N{MULTIPLICATION SIGN} {size}"
        elif found.kind in OF_SERIES:
            sign = "+" if found.value > 0 else "\N{MINUS SIGN}"
            size = f"{sign}{size.removeprefix('-')}"
        return f"{size} ({written.ends})" if found.lower < found.upper else size


@dataclass(frozen=True, slots=True)
class Cause:
    """Components that the evidence cannot tell from each other; none if it locates nothing.

    news: what else was new in its first night, and may explain it. where: to find the components.
    parts: of plans of which ports were out of service, how many took part.
    remarks: sentences on what it rests on.
    """

    components: tuple[LabComponent, ...]
    evidence: tuple[Evidence, ...]
    news: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def since(self) -> str:
        """Date of the first night, or empty."""
        return min((one.since for one in self.evidence if one.since), default="")

    @property
    def name(self) -> str:
        """The name of its oldest part, which it keeps when others join."""
        return min(self.evidence, key=lambda one: (one.since, one.name)).name

    @property
    def nights(self) -> int:
        """Number of nights in a row."""
        return max(one.nights for one in self.evidence)

    @property
    def confirmed(self) -> bool:
        """Whether later nights confirm any of the evidence."""
        return any(one.confirmed for one in self.evidence)

    @property
    def commands(self) -> tuple[str, ...]:
        """Commands that measure the evidence again, once each."""
        return tuple(dict.fromkeys(one.command for one in self.evidence if one.command))

    @property
    def meanwhile(self) -> tuple[str, ...]:
        """Lines of the servers' kernels from the times of the tests, once each."""
        lines = (line for one in self.evidence for line in one.finding.meanwhile)
        return tuple(dict.fromkeys(lines))

    @property
    def title(self) -> str:
        """The components as text."""
        if not self.components:
            return "place unknown"
        if SWAPPED_FIBERS in self._kinds:
            return f"two of {len(self.components)} fibers, swapped"
        if len(self.components) > MOST_NAMED:
            return f"place unknown: one of {len(self.components)} components"
        return " or ".join(sorted(map(str, self.components)))

    @property
    def next_step(self) -> str:
        """The step by which the components can be told apart, or the suspicion be settled.

        What the findings themselves advise, the first two of them; else what such components need.
        """
        advised = dict.fromkeys(one.finding.advice for one in self.evidence if one.finding.advice)
        return "; ".join([*advised][:MOST_STEPS]) or next_step(self.components, self._kinds)

    @property
    def _kinds(self) -> set[str]:
        return {one.finding.kind for one in self.evidence}


def stored_findings(test: TestOutcome) -> list[Finding]:
    """Return the findings that a test's outcome has in its journal."""
    return [Finding.of_document(one) for one in test.details.get("findings", ())]


def recorded_findings(test: TestOutcome) -> list[Finding]:
    """Return what a failed test found wrong; of an older version's journal, its sentence alone."""
    if found := stored_findings(test):
        return found
    sentence = str(test.details.get("why", "")).partition("\n")[0].removeprefix("AssertionError: ")
    return [Finding(FAILED, sentence or "without a reason")]


def as_ever(
    findings: Iterable[Finding], subjects: Iterable[str], components: Components
) -> list[frozenset[LabComponent]]:
    """Return the components of each measured subject apart from those that findings are about."""
    named = components.named(subject for one in findings for subject in one.subjects)
    found = map(components.cleared_by, dict.fromkeys(subjects))
    return [each for each in found if named.isdisjoint(each)]


def find_causes(
    evidence: Sequence[Evidence],
    healthy: Mapping[Hashable, Sequence[frozenset[LabComponent]]],
    components: Components,
) -> list[Cause]:
    """Return the suspected causes, the one with most evidence first; those not located are last.

    healthy: by family, the components of each series that shows nothing. A component is suspected
    only where it explains more evidence than it has series that show nothing. A finding without
    components may be one of any of the testbed's `components`.
    """
    left = _Left(evidence, healthy, components.all())
    causes = []
    while explained := left.explained_best():
        chosen = max(explained.values(), key=lambda each: (len(each), [-at for at in each]))
        alike = [name for name, each in explained.items() if each == chosen]
        alike.sort(key=lambda one: natural(str(one)))
        # A link stands for its two ports, their fibers and connectors.
        alike = [name for name in alike if name.kind == "link"] or alike
        evident = _once(evidence[at] for at in chosen)
        if exchanged := [one for one in evident if one.finding.kind == SWAPPED_FIBERS]:
            # Two of them have the fault, not any one alone, whatever else one of them explains.
            alike = [*dict.fromkeys(name for one in exchanged for name in one.finding.components)]
        causes.append(Cause(tuple(alike), evident, where=places(alike, components)))
        left.remove(chosen)
    if left.places:
        causes.append(Cause((), _once(evidence[at] for at in left.places)))
    return causes


def _once(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Return the evidence; a sentence on several of the components counts once."""
    return tuple({one.text: one for one in evidence}.values())


class _Left:
    """The evidence that no cause explains yet, by the components that would explain it.

    whole: the components that may explain a finding which names none.

    Attributes:
        places: those of the evidence, in order.
    """

    def __init__(
        self,
        evidence: Sequence[Evidence],
        healthy: Mapping[Hashable, Sequence[frozenset[LabComponent]]],
        whole: frozenset[LabComponent],
    ) -> None:
        self._evidence, self._healthy = evidence, healthy
        self._candidates = [frozenset(one.finding.components) or whole for one in evidence]
        self.places = dict.fromkeys(range(len(evidence)))
        self._explained: dict[LabComponent, dict[int, None]] = {}
        for at, candidates in enumerate(self._candidates):
            for name in candidates:
                self._explained.setdefault(name, {})[at] = None
        self._families = Counter(one.family for one in evidence)
        # By how much each component explains more evidence than series that show nothing.
        self._scores = {name: len(places) for name, places in self._explained.items()}
        for family in self._families:
            self._clear(family, -1)

    def explained_best(self) -> dict[LabComponent, tuple[int, ...]]:
        """Return the places that each component of the greatest score explains; none below 1."""
        best = max(self._scores.values(), default=0)
        if best <= 0:
            return {}
        names = (name for name, score in self._scores.items() if score == best)
        return {name: tuple(self._explained[name]) for name in names}

    def remove(self, places: Iterable[int]) -> None:
        """Take away what is explained."""
        for at in places:
            del self.places[at]
            for name in self._candidates[at]:
                self._scores[name] -= 1
                del self._explained[name][at]
                if not self._explained[name]:
                    del self._explained[name], self._scores[name]
            family = self._evidence[at].family
            self._families[family] -= 1
            if not self._families[family]:
                self._clear(family, 1)

    def _clear(self, family: Hashable, by: int) -> None:
        """Change the scores of what a family's series that show nothing speak for."""
        for each in self._healthy.get(family, ()):
            for name in each & self._scores.keys():
                self._scores[name] += by


def found_at_begin(folder: Path, testbeds: Iterable[str]) -> dict[str, list[Finding]]:
    """Return what a run found wrong with its testbeds before their first tests.

    folder: the run's. Raises `RecordError` for a file that is damaged or cannot be read.
    """
    return {
        name: [Finding.of_document(one) for one in load_findings(folder, name) or ()]
        for name in testbeds
    }


def parts_of_plans(header: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return how many ports of plans a run was over, by testbed, as its header has it."""
    return {name: one.get("plans", ()) for name, one in header.get("out", {}).items()}


def run_causes(
    tests: Iterable[TestOutcome],
    testbeds: Mapping[str, Testbed],
    run: RunFrame,
    found: Mapping[str, Sequence[Finding]] = MappingProxyType({}),
    parts: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Markup:
    """Return the cards of one run: of what its failed tests found wrong.

    found: what was wrong before the first test, by testbed. parts: how many ports of its plans took
    part, as the run's header has it.
    """
    cards = []
    frames = {frame.name: frame for frame in run.testbeds}
    names = dict.fromkeys([*testbeds, *frames])
    for testbed in names:
        frame = frames.get(testbed, TestbedFrame(testbed, ()))
        components = Components(testbeds.get(testbed))
        evidence = [Evidence(one, ("begin", one.kind)) for one in found.get(testbed, ())]
        healthy: dict[Hashable, list[frozenset[LabComponent]]] = {}
        rows = {test.name: test for test in frame.tests}
        for ended in tests:
            name = ended.nodeid
            parameters = name.partition("[")[2].rstrip("]").replace("/", "-").split("-")
            alone = len(names) == 1 or testbed in parameters
            if not (name in rows or alone):
                continue
            if ended.outcome not in {"failed", "error"}:
                certain = [one for one in stored_findings(ended) if one.kind in CERTAIN]
                evidence += [Evidence(one, ("noticed", one.kind)) for one in certain]
                continue
            command, link = str(ended.details.get("command", "")), test_link(name)
            findings, family = recorded_findings(ended), ("failed", name)
            evidence += [
                Evidence(one, family, name, command=command, link=link) for one in findings
            ]
            series = rows[name].series if name in rows else {}
            subjects = [subject for one in series.values() for subject in one.subject]
            healthy[family] = as_ever(findings, subjects, components)
        causes = find_causes(evidence, healthy, components)
        of_plans = tuple(parts.get(testbed, ()))
        causes = [replace(cause, parts=of_plans) for cause in causes]
        cards.append((testbed, frame.simulated, causes))
    return render_causes(cards)


def render_causes(found: Sequence[tuple[str, bool, Sequence[Cause]]]) -> Markup:
    """Return the cards of testbeds, each with its name and whether it was simulated."""
    return render_macro("causes", "causes", [one for one in found if one[2]])
