"""Suspected causes: what is wrong, joined over the cabling to the fewest components.

Each piece of evidence names the components of which any one alone would explain it. The component
that explains most of it and least of what is as ever is a suspected cause, together with those that
the evidence cannot tell from it; what it explains is taken away, and the rest is joined again.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from lightrig.harness.record import TestOutcome
from lightrig.harness.report.frames import RunFrame, TestbedFrame, natural
from lightrig.harness.report.markup import test_link
from lightrig.harness.report.templates import render_macro
from lightrig.harness.report.units import shown, span
from lightrig.testbeds import Port, Testbed

HARNESS = "the harness itself"
_WRONG_HARNESS = "the harness measured a simulated world wrong"
_NO_LIGHT = "no light"
"""Kind of a fault of loss matrices that the transmitter of the fiber explains too."""
_SWAPPED = "are their fibers swapped"
"""In the reason of links that stay down although light leads to all of them."""
_STUCK = "stuck monitor"
"""Kind of a fault of loss matrices that the port itself has, whatever light it gets."""
_LIGHT = ("acknowledged", "los", "signal_recovered")
"""Stages of whole events that servers have no part in."""
_MOST_NAMED = 8
"""Most components that a card lists; more are a place in the lab that is not located."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """An observation that something is wrong.

    text: the observation. candidates: components of which any one explains it. family: what it is
    compared with, a key of the components of those that are as ever. size: with its interval, or
    empty. since: date of the first night. nights: in a row. confirmed: by later nights. command:
    that measures it again. link: address of its rows or its test; report: of the run's page.
    """

    text: str
    candidates: frozenset[str]
    family: Hashable
    size: str = ""
    since: str = ""
    nights: int = 1
    confirmed: bool = False
    command: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """Components that the evidence cannot tell from each other; none if it locates nothing."""

    components: tuple[str, ...]
    evidence: tuple[Evidence, ...]

    @property
    def since(self) -> str:
        """Date of the first night, or empty."""
        return min((one.since for one in self.evidence if one.since), default="")

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
    def title(self) -> str:
        """The components as text."""
        if not self.components:
            return "not located"
        if self._is_swap:
            return f"two of {len(self.components)} fibers, swapped"
        if len(self.components) > _MOST_NAMED:
            return f"not located: one of {len(self.components)} components"
        named = (f"connector {one}" if _is_port(one) else one for one in self.components)
        return " or ".join(sorted(named))

    @property
    def split(self) -> str:
        """The step by which the components can be told apart, or the suspicion be settled."""
        if HARNESS in self.components:
            return "run the test again with another seed; report it with the journal"
        if self._is_swap:
            return (
                "two of these fibers may have changed places: `lightrig doctor` with the testbed's "
                "file switches off one laser after the other and names them"
            )
        first = self.components[0]
        if first.startswith("link "):
            return "exchange its fibers one by one, from the end that recovers last; measure again"
        if first.startswith("fiber ") or _is_port(first):
            return (
                "clean the connector and look along the fiber, then measure again; if nothing "
                "changes, exchange the fiber for a spare one"
            )
        return "compare its log, firmware and load with those of the night before; measure again"

    @property
    def _is_swap(self) -> bool:
        """Whether links stay down although light leads to all of their ports."""
        return bool(self.components) and any(_SWAPPED in one.text for one in self.evidence)


def _is_port(component: str) -> bool:
    """Whether a component is a port of a switch."""
    return " " not in component and component.rpartition(".")[2].isdigit()


class Components:
    """The components of a testbed, by the names of its file.

    testbed: None where its description is not here; then each subject is a component. by_monitors:
    insertion loss ends at a monitor of the switch, so that it has no part of the fiber behind.
    """

    def __init__(self, testbed: Testbed | None, *, by_monitors: bool = False) -> None:
        self._testbed = testbed
        self._by_monitors = by_monitors
        self._links: dict[str, set[str]] = {}
        self._partners: dict[str, set[str]] = {}
        self._feeding: dict[str, set[str]] = {}
        self._known: set[str] = set()
        if testbed is None:
            return
        for plan in testbed.plans.values():
            for link in testbed.cabling.links(plan):
                for end, far in ((link.a, link.b), (link.b, link.a)):
                    self._links.setdefault(str(end), set()).add(f"link {link.a} - {link.b}")
                    self._partners.setdefault(str(end), set()).add(str(far))
            for switch, circuits in plan.circuits.items():
                for one in circuits:
                    ingress = f"{switch}.{one.ingress}"
                    self._feeding.setdefault(f"{switch}.{one.egress}", set()).add(ingress)
        fibers = testbed.cabling.fibers
        self._known = {str(port) for fiber in fibers for port in (fiber.source, fiber.sink)}
        self._known |= {*testbed.switches, *testbed.servers, *testbed.instruments}

    def of(self, subject: str, quantity: str = "") -> frozenset[str]:
        """Return the components of which any one would explain an observation of `subject`.

        quantity: that was observed, or a text that names the kind of fault.
        """
        testbed = self._testbed
        subject = subject.partition(", ")[0]
        if testbed is None:
            return frozenset([subject])
        if subject == testbed.name:
            switches, servers = {*testbed.switches}, {*testbed.servers}
            ports = {name for name in self._known if name.partition(".")[0] in switches}
            if quantity.rpartition(".")[2] in _LIGHT:
                return frozenset(switches | ports | self._fibers(ports))
            return frozenset(switches | servers | self._known | self._fibers(self._known))
        # A receiver whose sender has changed waits for the link to the new one.
        subject = re.sub(r"^\S+ > (?=\S+ < \S+$)", "", subject)
        circuit = re.fullmatch(r"(\S+) (\d+)>(\d+)", subject)
        if circuit is not None:
            switch, *ends = circuit.groups()
            ports = {f"{switch}.{end}" for end in ends}
            fibers = self._fibers(ports)
            if self._by_monitors and quantity.startswith("insertion_loss"):
                fibers -= {one for one in fibers if one.startswith(f"fiber {switch}.")}
            return frozenset({switch, subject} | ports | fibers)
        names = {one for one in re.findall(r"[^\s,<>]+", subject) if one in self._known}
        if _STUCK in quantity and names:
            return frozenset(names)
        found = set(names)
        for name in names:
            owner, dot, _ = name.partition(".")
            fibers = self._fibers({name})
            found |= fibers | self._links.get(name, set()) | ({owner} if dot else set())
            if owner in testbed.servers or _NO_LIGHT in quantity:
                far = {end for fiber in fibers for end in fiber[6:].split(" -> ")}
                found |= far
            if owner in testbed.servers:
                found |= {end.partition(".")[0] for end in far}
        return frozenset(found or {subject})

    def explaining(self, subject: str, quantity: str = "") -> frozenset[str]:
        """Return the components of `of`, and those of the other ends of a NIC port's links.

        They take the link away too, but need not: a series that shows nothing does not clear them.
        An egress port without light has those of the ingress ports that plans join to it.
        """
        names = re.findall(r"[^\s,<>]+", subject)
        ends = {far for name in names for far in self._partners.get(name, ())}
        far = {name for end in ends for name in self.of(end) if not name.startswith("link ")}
        if _NO_LIGHT in quantity:
            fed = {one for name in names for one in self._feeding.get(name, ())}
            far |= {name for one in fed for name in self.of(one, _NO_LIGHT)}
        return self.of(subject, quantity) | far

    def named(self, text: str) -> list[str]:
        """Return the components that a text names; not the owner of a port that it names too."""
        found = re.findall(r"([\w-]+(?:\.[\w-]+)*)( \d+>\d+)?", text)
        names = dict.fromkeys(name + circuit for name, circuit in found if name in self._known)
        parts = "\n".join(["", *names, ""])
        return [one for one in names if f"\n{one}." not in parts and f"\n{one} " not in parts]

    def failed(self, nodeid: str, reason: str) -> list[Evidence]:
        """Return a failed test as evidence: a piece for each component that its reason names."""
        reason = reason.partition("\n")[0].removeprefix("AssertionError: ")
        text = f"{nodeid.rpartition('::')[2]} failed: {reason or 'without a reason'}"
        if reason.startswith(_WRONG_HARNESS):
            return [Evidence(text, frozenset([HARNESS]), ("failed", nodeid))]
        if _SWAPPED in reason:
            fibers = frozenset(self._fibers(self.named(reason)))
            return [Evidence(text, fibers, ("failed", nodeid))]
        named = self.named(reason) or ([self._testbed.name] if self._testbed else [""])
        return [Evidence(text, self.explaining(name, text), ("failed", nodeid)) for name in named]

    def as_ever(self, reason: str, measured: Iterable[str]) -> list[frozenset[str]]:
        """Return the components of each measured subject apart from those that a reason names."""
        named = set(self.named(reason.partition("\n")[0]))
        return [one for one in map(self.of, dict.fromkeys(measured)) if named.isdisjoint(one)]

    def _fibers(self, ports: Iterable[str]) -> set[str]:
        if self._testbed is None:
            return set()
        cabling, found = self._testbed.cabling, set()
        for name in ports:
            owner, dot, port = name.partition(".")
            if dot:
                at = Port(owner, port)
                found |= {
                    f"fiber {one}" for one in (cabling.fiber_from(at), cabling.fiber_to(at)) if one
                }
        return found


def find_causes(
    evidence: Sequence[Evidence], as_ever: Mapping[Hashable, Sequence[frozenset[str]]]
) -> list[Cause]:
    """Return the suspected causes, the one with most evidence first; those not located are last.

    as_ever: by family, the components of each series that shows nothing. A component is suspected
    only where it explains more evidence than it has series that show nothing.
    """
    left = list(evidence)
    causes = []
    while left:
        scores = _scores(left, as_ever)
        best = max(scores.values(), default=0)
        if best <= 0:
            break
        explained = {
            name: tuple(at for at, one in enumerate(left) if name in one.candidates)
            for name, score in scores.items()
            if score == best
        }
        chosen = max(explained.values(), key=lambda each: (len(each), [-at for at in each]))
        alike = sorted((name for name, each in explained.items() if each == chosen), key=natural)
        # A link stands for its two ports, their fibers and connectors.
        alike = [name for name in alike if name.startswith("link ")] or alike
        causes.append(Cause(tuple(alike), _once(left[at] for at in chosen)))
        left = [one for at, one in enumerate(left) if at not in chosen]
    if left:
        causes.append(Cause((), _once(left)))
    return causes


def _once(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Return the evidence; a test that names several of the components counts once."""
    return tuple({one.text: one for one in evidence}.values())


def _scores(
    evidence: Sequence[Evidence], as_ever: Mapping[Hashable, Sequence[frozenset[str]]]
) -> dict[str, int]:
    """Return by how much each component explains more evidence than series that show nothing."""
    scores: dict[str, int] = {}
    for one in evidence:
        for name in one.candidates:
            scores[name] = scores.get(name, 0) + 1
    for family in {one.family for one in evidence}:
        for healthy in as_ever.get(family, ()):
            for name in healthy & scores.keys():
                scores[name] -= 1
    return scores


def run_causes(
    tests: Iterable[TestOutcome], testbeds: Mapping[str, Testbed], run: RunFrame
) -> Markup:
    """Return the cards of one run: of its failed tests and the faults of its loss matrices."""
    found = []
    frames = {frame.name: frame for frame in run.testbeds}
    names = dict.fromkeys([*testbeds, *frames])
    for testbed in names:
        frame = frames.get(testbed, TestbedFrame(testbed, ()))
        components = Components(testbeds.get(testbed))
        evidence: list[Evidence] = []
        as_ever: dict[Hashable, list[frozenset[str]]] = {}
        rows = {test.name: test for test in frame.tests}
        for ended in tests:
            name, details = ended.nodeid, ended.details
            alone = len(names) == 1 or testbed in re.split(r"[]/[-]", name)
            if ended.outcome not in {"failed", "error"} or not (name in rows or alone):
                continue
            reason = str(details.get("why", ""))
            command, link = str(details.get("command", "")), test_link(name)
            failed = components.failed(name, reason)
            evidence += [replace(one, command=command, link=link) for one in failed]
            series = rows[name].series if name in rows else {}
            subjects = [subject for one in series.values() for subject in one.subject]
            as_ever["failed", name] = components.as_ever(reason, subjects)
            if (faults := series.get("loss.fault")) is not None:
                ends = zip(faults.value, faults.lower, faults.upper, strict=True)
                for subject, (value, lower, upper) in zip(faults.subject, ends, strict=True):
                    size = shown(value, faults.unit)
                    size = f"{size} ({span(lower, upper, faults.unit, size)})" if value else ""
                    text = subject.replace(", ", ": ", 1)
                    candidates = components.of(subject, text)
                    family = "loss.fault", name
                    evidence.append(
                        Evidence(text, candidates, family, size, command=command, link=link)
                    )
        found.append((testbed, frame.simulated, find_causes(evidence, as_ever)))
    return render_causes(found)


def render_causes(found: Sequence[tuple[str, bool, Sequence[Cause]]]) -> Markup:
    """Return the cards of testbeds, each with its name and whether it was simulated."""
    return render_macro("causes", "causes", [one for one in found if one[2]])
