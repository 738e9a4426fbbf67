"""Nodes that have lost their light, by the carriers of the NIC ports that it is led to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lightrig.instruments.clock import Span
from lightrig.testbeds import Link, Port

UNNOTICED_NS = 1_000_000_000
"""A port that has its carrier so long after its circuits were set, and was not seen to lose it,
has the light of these circuits and not of the ones before."""

UNHEARD_NS = 10_000_000_000
"""How long a job waits for its links to hear each other: NICs take about 6 s to bring one up."""

Direction: TypeAlias = tuple[Port, Port]
"""Of a link: the port that sends, and the one that receives."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """Carrier of a NIC port.

    Attributes:
        up: whether it has one.
        since: when that began, on this host's boot clock; None where it was so from the start.
    """

    up: bool
    since: Span | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """Last datagram at a NIC port: the port that sent it, and from when on it may have come."""

    sender: Port
    earliest: int


@dataclass(frozen=True, slots=True)
class Look:
    """Answers of all agents to one probe.

    Attributes:
        at: on this host's boot clock, before the first request and after the last answer.
        carriers: by NIC port, of those that could be read.
        silent: hosts whose agent did not answer, and why.
        hearing: hosts whose ports send datagrams, and are read for those of others.
        partners: by NIC port, whom it has heard last.
    """

    at: Span = field(default_factory=lambda: Span(0, 0))
    carriers: Mapping[Port, Carrier] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    hearing: frozenset[str] = frozenset()
    partners: Mapping[Port, Heard] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recovery:
    """A node that was lost, from the end of its light to light on all links that were new then."""

    node: str
    began: Span
    ended: Span

    @property
    def seconds(self) -> tuple[float, float]:
        """The least and the most that it can have taken."""
        return (
            max(self.ended.earliest - self.began.latest, 0) / 1e9,
            (self.ended.latest - self.began.earliest) / 1e9,
        )


class LinkLight:
    """Light of nodes at the far ends of links that are set.

    A link counts once its light has arrived, as NICs take seconds to bring it up. A node has lost
    its light where no port that had it has a carrier, and one of these ports is at a node whose
    own light arrives: what a dark node does not see says nothing of others.

    Attributes:
        doubt: why no node is taken for lost although ports are dark; None where there is none.
    """

    def __init__(self) -> None:
        self.doubt: str | None = None
        self._set: dict[Direction, int] = {}
        self._last_lit: dict[Direction, int] = {}
        self._dark: dict[str, Span] = {}
        self._lost: dict[str, tuple[Span, frozenset[Direction]]] = {}

    def note(self, links: Collection[Link], look: Look) -> tuple[dict[str, str], set[str]]:
        """Note what the ends of `links`, whose circuits are set, see of each other.

        Return the nodes whose light is lost, with the reason, and those whose light arrives.
        """
        directions = {
            direction for link in links for direction in ((link.a, link.b), (link.b, link.a))
        }
        self._set = {
            direction: self._set.get(direction, look.at.latest) for direction in directions
        }
        self._last_lit = {
            direction: at for direction, at in self._last_lit.items() if direction in directions
        }
        dark: defaultdict[str, list[Direction]] = defaultdict(list)
        lit = set()
        for direction in sorted(directions):
            carrier = look.carriers.get(direction[1])
            if carrier is None:
                continue
            if carrier.up and self._is_of(carrier, direction, look):
                # It was read some time after that, so the light was there at least until then.
                self._last_lit[direction] = look.at.earliest
            if direction in self._last_lit:
                lit |= {direction[0].owner} if carrier.up else set()
                dark[direction[0].owner] += [] if carrier.up else [direction]
        misses = {}
        self._dark = {}
        for node in sorted(dark.keys() - lit):
            if seen_by := [direction for direction in dark[node] if direction[1].owner in lit]:
                names = ", ".join(sorted(str(receiver) for _, receiver in seen_by))
                misses[node] = f"its light arrives no more at {names}"
                spans = [self._since(direction, look) for direction in dark[node]]
                self._dark[node] = Span(*map(min, zip(*spans, strict=True)))
        unlit = sorted(direction[1] for of_node in dark.values() for direction in of_node)
        self.doubt = None
        if unlit and not lit:
            self.doubt = (
                f"no link of any job has light any more, {unlit[0]} and {len(unlit) - 1} others: "
                "no node is taken for lost"
            )
        return misses, lit

    def lose(self, node: str) -> None:
        """Note that a node of the last `note` is given up: its recovery is timed from its light."""
        if node in self._dark:
            self._lost[node] = self._dark[node], frozenset(self._set)

    def recovered(self, look: Look) -> list[Recovery]:
        """Return what has recovered by `look`: all links that are new since a loss have light."""
        found = []
        for node, (began, before) in list(self._lost.items()):
            new = self._set.keys() - before
            if new and new <= self._last_lit.keys():
                spans = [self._since(direction, look) for direction in new]
                ended = Span(*map(max, zip(*spans, strict=True)))
                found.append(Recovery(node, began, ended))
                del self._lost[node]
        return found

    def _is_of(self, carrier: Carrier, direction: Direction, look: Look) -> bool:
        since = self._set[direction]
        changed = carrier.since is not None and carrier.since.earliest >= since
        return changed or direction in self._last_lit or look.at.earliest >= since + UNNOTICED_NS

    def _since(self, direction: Direction, look: Look) -> Span:
        """Return when a carrier became what it is; since an earlier look where no agent saw it."""
        since = look.carriers[direction[1]].since
        return since or Span(self._last_lit.get(direction, self._set[direction]), look.at.latest)


class LinkPartners:
    """Ports that hear another one than their link says: lit fibers that are not as in the file.

    Attributes:
        crossed: by port, what it hears, and which fibers may be crossed.
    """

    def __init__(self) -> None:
        self.crossed: dict[str, str] = {}
        self._doubtful: set[Port] = set()
        self._hearing: frozenset[str] = frozenset()
        self._set: dict[Direction, int] = {}
        self._proven: set[Direction] = set()

    def note(self, links: Collection[Link], look: Look) -> None:
        """Note what the ends of `links`, whose circuits are set, hear."""
        partner = {end: far for link in links for end, far in ((link.a, link.b), (link.b, link.a))}
        directions = {(far, end) for end, far in partner.items()}
        self._set = {each: self._set.get(each, look.at.latest) for each in directions}
        self._proven &= directions
        self.crossed, self._doubtful, self._hearing = {}, set(), look.hearing
        for direction in sorted(directions):
            sender, receiver = direction
            if not {sender.owner, receiver.owner} <= look.hearing:
                continue
            heard = look.partners.get(receiver)
            # Datagrams from before came over the circuits of before.
            if heard is not None and heard.earliest >= self._set[direction]:
                if heard.sender == sender:
                    self._proven.add(direction)
                    continue
                self._proven.discard(direction)
                self._doubtful.add(receiver)
                self.crossed[str(receiver)] = _crossed(*direction, heard.sender, partner)
            elif (
                direction not in self._proven
                and look.at.earliest < self._set[direction] + UNHEARD_NS
            ):
                self._doubtful.add(receiver)

    def doubts(self, link: Link) -> bool:
        """Whether an end of a link hears another port, or may yet hear one: no link takes longer.

        Nothing is known of servers without agents, or whose agents do not hear.
        """
        if not {link.a.owner, link.b.owner} <= self._hearing:
            return False
        return (link.a, link.b) not in self._set or not self._doubtful.isdisjoint((link.a, link.b))


def _crossed(sender: Port, receiver: Port, heard: Port, partner: Mapping[Port, Port]) -> str:
    """Return what is wrong where a port hears another one: two fibers at either end."""
    far = partner.get(heard)
    at_far_end = f", or those at {receiver} and {far}" if far not in (None, receiver) else ""
    return (
        f"hears {heard} where the file leads the light of {sender}: the fibers at {sender} and "
        f"{heard} are crossed{at_far_end}"
    )
