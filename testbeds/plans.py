"""Circuits, links and plans as plain values, and the moves between two plans."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from lightrig.testbeds.errors import LightrigError


class PlanError(LightrigError, ValueError):
    """A plan contradicts itself or cannot be made."""


class PartialMoveError(PlanError):
    """No whole set of components adds that many circuits; `possible` lists the counts."""

    def __init__(self, moving: int, possible: tuple[int, ...]) -> None:
        counts = ", ".join(map(str, possible))
        super().__init__(f"cannot move {moving} circuits without parting a ring: possible {counts}")
        self.moving = moving
        self.possible = possible


class Port(NamedTuple):
    """One end of a fiber: a port of a NIC, an optical or packet switch, or an instrument.

    `owner` is the server, switch or instrument. A NIC port's name is "nic0" on a NIC with one
    port and "nic0.p1" on one with several; a switch port's name is its number.
    """

    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}"


class Circuit(NamedTuple):
    """One direction of light through a switch, from an ingress port to an egress port."""

    ingress: int
    egress: int

    @classmethod
    def parse(cls, text: str) -> Circuit:
        """Read a circuit from e.g. "3>35"; raises `PlanError`."""
        match = re.fullmatch(r"\s*(\d{1,6})\s*>\s*(\d{1,6})\s*", text, re.ASCII)
        if match is None:
            raise PlanError(f"found {text!r}, expected ingress>egress, e.g. '3>35'")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.ingress}>{self.egress}"


@dataclass(frozen=True, order=True, slots=True)
class Link:
    """Two NIC ports connected in both directions; `a` is the lesser one."""

    a: Port
    b: Port

    def __post_init__(self) -> None:
        if self.a == self.b:
            raise PlanError(f"a link needs two ports, found {self.a} twice")
        if self.b < self.a:
            first, second = self.b, self.a
            object.__setattr__(self, "a", first)
            object.__setattr__(self, "b", second)

    def __str__(self) -> str:
        return f"{self.a} <-> {self.b}"


_BETWEEN = frozenset((">", "<", "->", "<->"))


# Subjects of rows: the text of what was measured, and the names that stand in it. In a report the
# conditions that are texts follow a subject, each behind ", ".


def circuit_subject(switch: str, circuit: Circuit) -> str:
    """Return the subject of a circuit of `switch`: "ocs 3>19"."""
    return f"{switch} {circuit}"


def direction_subject(before: Port, receiver: Port, after: Port) -> str:
    """Return the subject of a direction: sender and receiver; where the sender changes, both."""
    return f"{before} > {receiver}" if before == after else f"{before} > {receiver} < {after}"


def pair_in(subject: str) -> tuple[str, str, str] | None:
    """Return the switch, or "", and both ends of a circuit or direction; None of other subjects."""
    start, arrow, sink = subject.partition(">")
    switch, _, source = start.rstrip().rpartition(" ")
    sink = sink.removeprefix(" ")
    is_pair = arrow and source.strip("<-") and sink and " " not in sink
    return (switch, source, sink) if is_pair else None


def circuit_in(subject: str) -> tuple[str, Circuit] | None:
    """Return the switch, or "", and the circuit of its subject; None of other subjects."""
    switch, source, sink = pair_in(subject.partition(", ")[0]) or ("", "", "")
    if not (source.isdecimal() and sink.isdecimal()) or " " in switch:
        return None
    return switch, Circuit(int(source), int(sink))


def names_in(subject: str) -> list[str]:
    """Return the names of ports and instruments on which an observation of `subject` depends.

    A receiver whose sender has changed waits for the link to the new one.
    """
    names = subject.partition(", ")[0].split()
    if names[1::2] == [">", "<"]:
        names = names[2:]
    return [name for name in names if name not in _BETWEEN]


def port_of_lane(subject: str) -> str | None:
    """Return the port of a lane as a subject, such as "server0.nic0.p0.lane2"; None for others."""
    port, separated, number = subject.rpartition(".lane")
    return port if separated and number.isdecimal() else None


_FIRST_PORT = re.compile(r"(?<=\.)([^\s.,]+)\.p0(?![^\s.,])")


def without_first_port(subject: str) -> str:
    """Return a subject in which each NIC's first port has the name of its NIC.

    The only port of a NIC is "server0.nic0", and "server0.nic0.p0" once the NIC has a second one:
    subjects that are equal here are of one port.
    """
    return _FIRST_PORT.sub(r"\1", subject)


def is_about(subject: str, part: str) -> bool:
    """Whether a row's subject is a part of the lab, contains it, or is inside it.

    part: an instrument, a port ("ocs.3", "server0.nic0.p0") or a circuit. A circuit is about both
    of its ports, a link about both of its ends.
    """
    if subject == part:
        return True
    found = circuit_in(subject)
    names = names_in(subject)
    if found is not None:
        switch, circuit = found
        names = [f"{switch}.{circuit.ingress}", f"{switch}.{circuit.egress}"]
        if part == circuit_subject(switch, circuit):
            return True
    if any(name == part or name.startswith(f"{part}.") for name in names):
        return True
    # The port as it is called where its NIC has no other.
    only = part.removesuffix(".p0")
    return only != part and any(re.fullmatch(rf"{re.escape(only)}(\.lane\d+)?", n) for n in names)


@dataclass(frozen=True, slots=True)
class Plan:
    """The wanted circuits of each switch; a switch that is not named is not changed.

    Raises `PlanError` where an ingress or egress port is used twice.
    """

    name: str
    circuits: Mapping[str, frozenset[Circuit]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plain = {
            switch: frozenset(Circuit(*circuit) for circuit in circuits)
            for switch, circuits in self.circuits.items()
        }
        for switch, circuits in plain.items():
            problem = port_used_twice(sorted(circuits))
            if problem:
                raise PlanError(f"plan {self.name}: {problem} on {switch}")
        object.__setattr__(self, "circuits", MappingProxyType(plain))

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.circuits.items())))

    def __reduce__(self) -> tuple[type[Plan], tuple[str, dict[str, frozenset[Circuit]]]]:
        # A read-only view can be neither pickled nor copied by itself.
        return Plan, (self.name, dict(self.circuits))

    def __len__(self) -> int:
        return sum(map(len, self.circuits.values()))


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between two sets of circuits of one switch."""

    remove: frozenset[Circuit]
    keep: frozenset[Circuit]
    add: frozenset[Circuit]


class UsedPorts:
    """Circuits of one switch, added one by one, of which no two share a port."""

    def __init__(self) -> None:
        self._ingress: dict[int, Circuit] = {}
        self._egress: dict[int, Circuit] = {}

    def __iter__(self) -> Iterator[Circuit]:
        return iter(self._ingress.values())

    def add(self, circuit: Circuit) -> str | None:
        """Add `circuit`, or name the port that another one uses already."""
        for side, port, used in (
            ("ingress", circuit.ingress, self._ingress),
            ("egress", circuit.egress, self._egress),
        ):
            if port in used:
                return f"{side} {port} is used twice ({used[port]} and {circuit})"
        self._ingress[circuit.ingress] = self._egress[circuit.egress] = circuit
        return None


def port_used_twice(circuits: list[Circuit]) -> str | None:
    """Name the first port that two of `circuits` share, or return None."""
    used = UsedPorts()
    return next(filter(None, map(used.add, circuits)), None)


def difference(before: frozenset[Circuit], after: frozenset[Circuit]) -> Change:
    """Return what to remove, keep and add so that `before` becomes `after`."""
    return Change(remove=before - after, keep=before & after, add=after - before)


def independent_moves(before: frozenset[Circuit], after: frozenset[Circuit]) -> list[Change]:
    """Split the difference into parts that share no port, least port first.

    Each can be made without any other; `keep` is empty in all of them.
    """
    change = difference(before, after)
    touching: dict[tuple[str, int], list[Circuit]] = {}
    for circuit in change.remove | change.add:
        for port in _ends(circuit):
            touching.setdefault(port, []).append(circuit)
    moves = []
    left = set(change.remove | change.add)
    while left:
        # Everything that shares a port with this circuit, directly or through others.
        part: set[Circuit] = set()
        reached = [next(iter(left))]
        while reached:
            circuit = reached.pop()
            if circuit not in part:
                part.add(circuit)
                reached += [each for port in _ends(circuit) for each in touching[port]]
        left -= part
        moves.append(Change(remove=change.remove & part, keep=frozenset(), add=change.add & part))
    return sorted(moves, key=lambda move: min(move.remove | move.add))


def _ends(circuit: Circuit) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("ingress", circuit.ingress), ("egress", circuit.egress)


class PartialMoves:
    """The components of the change from one plan to another, and how many circuits some add.

    Attributes:
        before: the plan that is left.
        after: the plan that is made.
        components: the independent moves with their switches, in the order in which they count.
    """

    def __init__(self, before: Plan, after: Plan) -> None:
        self.before, self.after = before, after
        self.components = tuple(
            (switch, move)
            for switch in sorted(after.circuits)
            for move in independent_moves(
                before.circuits.get(switch, frozenset()), after.circuits[switch]
            )
        )
        self._gains = [len(move.add) for _, move in self.components]
        self.total = sum(self._gains)

    def counts(self) -> tuple[int, ...]:
        """Return the numbers of circuits that some components add together, from 0, ascending."""
        reached = 1  # a bit for each count
        for gain in self._gains:
            reached |= reached << gain
        return tuple(count for count in range(self.total + 1) if reached >> count & 1)

    def choices(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield each count above 0, ascending, with the components that add it.

        The fewest that reach it, the first ones where there is a choice, as their indexes;
        all components for the greatest count.
        """
        limit, yielded = _FIRST_COUNTS, 0
        while yielded < self.total:
            chosen = self._chosen(min(limit, self.total))
            for count in sorted(chosen):
                if count > yielded:
                    yield count, self._all_of(count, chosen[count])
            # Most callers need the least counts alone, and these cost the least.
            yielded, limit = min(limit, self.total), 2 * limit

    def choice(self, moving: int) -> tuple[int, ...]:
        """Return the components that add `moving` circuits; raises `PartialMoveError`."""
        chosen = self._chosen(moving)
        if moving not in chosen:
            raise PartialMoveError(moving, self.counts())
        return self._all_of(moving, chosen[moving])

    def _all_of(self, count: int, chain: _Chain) -> tuple[int, ...]:
        if count == self.total:
            return tuple(range(len(self.components)))
        indexes = []
        while chain is not None:
            _, index, chain = chain
            indexes.append(index)
        return tuple(reversed(indexes))

    def _chosen(self, greatest: int) -> dict[int, _Chain]:
        """Return the fewest components for each number of circuits up to `greatest`."""
        chosen: dict[int, _Chain] = {0: None}
        gains = set(self._gains) - {0}
        if len(gains) == 1:
            # The first ones add the most: nothing needs to be compared.
            gain = gains.pop()
            latest: _Chain = None
            for index in (index for index, each in enumerate(self._gains) if each):
                count = max(chosen) + gain
                if count > greatest:
                    break
                chosen[count] = latest = (count // gain, index, latest)
            return chosen
        for index, gain in enumerate(self._gains):
            if not gain:
                continue
            for count in sorted(chosen, reverse=True):
                chain, known = chosen[count], chosen.get(count + gain)
                length = 1 + (chain[0] if chain else 0)
                if count + gain <= greatest and (known is None or length < known[0]):
                    chosen[count + gain] = (length, index, chain)
        return chosen


_FIRST_COUNTS = 16
_Chain: TypeAlias = "tuple[int, int, _Chain] | None"
"""How many components, the index of the last one, and the same of those before it."""


def partial_move(before: Plan, after: Plan, moving: int) -> Plan:
    """Return `before` with some components of the change to `after`, `moving` circuits added.

    `moving` counts over all switches that `after` names; others stay as they are. The fewest
    components that reach the count are taken, the first ones where there is a choice.
    Components that only remove circuits are moved once all others are, so that the greatest
    count gives the circuits of `after`. Raises `PartialMoveError` with the counts that can
    be reached.
    """
    moves = PartialMoves(before, after)
    circuits = dict(before.circuits)
    for switch in after.circuits:
        circuits.setdefault(switch, frozenset())
    for index in moves.choice(moving):
        switch, move = moves.components[index]
        circuits[switch] = circuits[switch] - move.remove | move.add
    return Plan(f"{moving} of {before.name} -> {after.name}", circuits)
