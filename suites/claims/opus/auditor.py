"""Audit of a control plane: broken promises, by the events of a run alone, not by its program."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lightrig.harness.systems.opus.planning.run_events import (
    Began,
    Confirmed,
    Ended,
    GivenUp,
    Rewiring,
    RunEvent,
)
from lightrig.testbeds import Circuit
from lightrig.testbeds.plans import port_used_twice

Rule: TypeAlias = Literal[
    "under reconfiguration",
    "no light path",
    "under traffic",
    "changes nothing",
    "never used",
    "disturbed",
    "foreign port",
    "port used twice",
    "never confirmed",
    "never ended",
    "split",
    "not put back",
]
"""The first two are G1, the third is G2, the next three O1 (Opus §4.2)."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, when, and how."""

    rule: Rule
    at: int
    text: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.at / 1e9:.6f} s: {self.text}"


@dataclass(slots=True)
class _Switch:
    """State of one switch while the events are read.

    there: circuits that carry light. flux: circuits of changes that were not confirmed.
    unused: what each change has made, until an operation uses any of it.
    """

    there: set[Circuit]
    flux: dict[Circuit, str] = field(default_factory=dict)
    unused: dict[str, frozenset[Circuit]] = field(default_factory=dict)
    open: dict[str, Rewiring] = field(default_factory=dict)
    given_up: dict[str, Rewiring] = field(default_factory=dict)


def audit(
    events: Iterable[RunEvent],
    found: Mapping[str, frozenset[Circuit]],
    ports_of_job: Mapping[str, tuple[frozenset[int], frozenset[int]]] | None = None,
    *,
    put_back: bool = False,
) -> list[Violation]:
    """Return the promises that were broken, in the order in which it happened.

    Args:
        events: in the order in which they happened.
        found: the circuits of each switch before the first event.
        ports_of_job: the ingress and egress ports of each switch that may be touched; all ports
            of a switch that is not listed.
        put_back: whether the switches must end with the circuits of `found`.
    """
    return _Audit(found, ports_of_job or {}).run(events, put_back=put_back)


class _Audit:
    def __init__(
        self,
        found: Mapping[str, frozenset[Circuit]],
        ports_of_job: Mapping[str, tuple[frozenset[int], frozenset[int]]],
    ) -> None:
        self._found, self._ports_of_job = found, ports_of_job
        self._switches = {name: _Switch(set(circuits)) for name, circuits in found.items()}
        self._running: dict[tuple[int, str], Began] = {}
        self._paths: dict[str, Began] = {}

    def run(self, events: Iterable[RunEvent], *, put_back: bool) -> list[Violation]:
        violations: list[Violation] = []
        at = 0
        for event in events:
            at = event.at
            violations += self._take(event)
        violations += [
            Violation("never ended", began.at, f"{began.operation} on rank {began.rank}")
            for began in self._running.values()
        ]
        for name, switch in self._switches.items():
            violations += [
                Violation("never confirmed", change.at, f"{change.change} on {name}")
                for change in switch.open.values()
            ]
            if put_back and switch.there != self._found[name]:
                wrong = _listed(switch.there ^ self._found[name])
                violations.append(Violation("not put back", at, f"{wrong} on {name}"))
        return violations

    def _take(self, event: RunEvent) -> Iterator[Violation]:
        match event:
            case Began():
                yield from self._began(event)
            case Ended():
                self._running.pop((event.rank, event.operation), None)
            case Rewiring():
                yield from self._rewiring(event)
            case Confirmed():
                switch = self._switches[event.switch]
                change = switch.open.pop(event.change, None)
                if change is not None:
                    switch.there = (switch.there - change.remove) | change.add
                    for circuit in change.remove | change.add:
                        switch.flux.pop(circuit, None)
                    yield from self._shared(event, switch)
                elif late := switch.given_up.pop(event.change, None):
                    # Known now after all, but for what another change has touched since.
                    last = {c for c, by in switch.flux.items() if by == event.change}
                    switch.there = (switch.there - (late.remove & last)) | (late.add & last)
                    for circuit in last:
                        del switch.flux[circuit]
                    yield from self._shared(event, switch)
            case GivenUp():
                switch = self._switches[event.switch]
                if (change := switch.open.pop(event.change, None)) is not None:
                    switch.given_up[event.change] = change

    def _began(self, began: Began) -> Iterator[Violation]:
        switch = self._switches[began.switch]
        who = f"{began.operation} on rank {began.rank}"
        if moving := began.circuits & switch.flux.keys():
            change = switch.flux[min(moving)]
            text = f"{who} uses {_listed(moving)} of {began.switch}, which {change} moves"
            yield Violation("under reconfiguration", began.at, text)
        elif dark := began.circuits - switch.there:
            text = f"{who} uses {_listed(dark)} of {began.switch}, which is not there"
            yield Violation("no light path", began.at, text)
        first = self._paths.setdefault(began.operation, began)
        if (first.switch, first.circuits) != (began.switch, began.circuits):
            text = f"{who} uses other circuits than rank {first.rank}"
            yield Violation("split", began.at, text)
        switch.unused = {
            change: made
            for change, made in switch.unused.items()
            if made.isdisjoint(began.circuits)
        }
        self._running[began.rank, began.operation] = began

    def _rewiring(self, change: Rewiring) -> Iterator[Violation]:
        switch, what = self._switches[change.switch], f"{change.change} on {change.switch}"
        touched = change.remove | change.add
        ingress, egress = self._ports_of_job.get(change.switch, (None, None))
        if ingress is not None and egress is not None:
            foreign = {c for c in touched if c.ingress not in ingress or c.egress not in egress}
            if foreign:
                text = f"{what} touches {_listed(foreign)}"
                yield Violation("foreign port", change.at, text)
        for began in self._running.values():
            if began.switch == change.switch and (cut := began.circuits & change.remove):
                text = f"{what} parts {_listed(cut)} under {began.operation} of rank {began.rank}"
                yield Violation("under traffic", change.at, text)
        if both := change.remove & change.add:
            text = f"{what} parts and joins {_listed(both)} again"
            yield Violation("disturbed", change.at, text)
        removed, made = change.remove & switch.there, change.add - switch.there
        if not (change.again or change.fallback or removed or made):
            yield Violation("changes nothing", change.at, what)
        for earlier, unused in list(switch.unused.items()):
            if earlier != change.change and unused & removed:
                del switch.unused[earlier]
                if not change.fallback:
                    text = (
                        f"{what} parts {_listed(unused & removed)} of {earlier}, which nothing used"
                    )
                    yield Violation("never used", change.at, text)
        switch.there -= change.remove
        switch.unused[change.change] = made | switch.unused.get(change.change, frozenset())
        unsure = change.remove & switch.flux.keys()
        switch.flux.update(dict.fromkeys(removed | made | unsure, change.change))
        switch.open[change.change] = change

    @staticmethod
    def _shared(confirmed: Confirmed, switch: _Switch) -> Iterator[Violation]:
        if problem := port_used_twice(sorted(switch.there)):
            text = f"{problem} after {confirmed.change} on {confirmed.switch}"
            yield Violation("port used twice", confirmed.at, text)


def _listed(circuits: Iterable[Circuit]) -> str:
    ordered = sorted(circuits)
    more = f" and {len(ordered) - 4} more" if len(ordered) > 4 else ""
    return ", ".join(map(str, ordered[:4])) + more
