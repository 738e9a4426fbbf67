"""Faults made with light: cuts, flaps, other circuits, dimming; as text, and drawn by a seed."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from lightrig.harness.bench import Fabric
from lightrig.testbeds import Circuit, LightrigError, Link, Plan, Port, QuantityError, Testbed
from lightrig.testbeds.quantities import parse_duration, parse_share

Kind: TypeAlias = Literal["cut", "flap", "swap", "dim", "restart", "plan"]

_SETTINGS = {
    "cut": {"one-way", "return"},
    "flap": {"one-way", "duty", "number"},
    "swap": set[str](),
    "dim": {"loss"},
    "restart": set[str](),
    "plan": {"to"},
}
_EARLIEST, _LATEST = 200_000_000, 700_000_000
"""When a fault begins after its job, in ns: at a random phase of its present round."""
LONGEST = 30_000_000_000


class FaultError(LightrigError):
    """A text names no fault, or a plan has no links for it."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault, without its place.

    Attributes:
        duration: of the fault, or the period of a flap, in ns.
        single: whether only the light from one end of the link to the other is taken away.
        duty: share of each period of a flap that is dark.
        number: of periods of a flap.
        loss: share of the packets that dimming loses: in namespaces the kernel drops them, by
            nftables; light and carrier stay.
        slower: how much later one direction of a cut gets its light back than the other, in ns.
        to: name of the plan that is in place instead.
    """

    kind: Kind
    duration: int
    single: bool = False
    duty: float = 0.5
    number: int = 1
    loss: float = 0.0
    slower: int = 0
    to: str = ""

    def __str__(self) -> str:
        """Return the text that `parse_fault` reads."""
        parts = [f"{self.kind}:{self.duration / 1e9:g}s"]
        if self.single:
            parts.append("one-way")
        if self.kind == "flap":
            parts += [f"duty={self.duty:.4g}", f"number={self.number}"]
        if self.kind == "dim":
            parts.append(f"loss={self.loss:.4g}")
        if self.slower:
            parts.append(f"return={self.slower / 1e9:g}s")
        if self.to:
            parts.append(f"to={self.to}")
        return ",".join(parts)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at its place.

    Attributes:
        link: whose light is taken away; of a swap the first one. A restart is that of the switch
            which gives light to `link.b`.
        partner: of a swap the second link, whose far ends the first one gets; else None.
        reverse: of a fault in one direction, whether the light from `link.b` goes.
        after: when it begins after the job, in ns.
    """

    what: FaultKind
    link: Link
    partner: Link | None = None
    reverse: bool = False
    after: int = 300_000_000

    @property
    def switched(self) -> bool:
        """Whether other circuits give light at once, so that a carrier need not be lost."""
        return self.what.kind in ("swap", "plan")

    def ports(self, testbed: Testbed, plan: Plan) -> frozenset[Port]:
        """Return the ports that lose their light on `plan` for a time, or for a moment."""
        receiver = testbed.cabling.receiver
        if self.what.kind in ("restart", "plan"):
            source = testbed.cabling.egress_of(self.link.b)
            assert source is not None  # the link is one of a plan
            none = {source[0]: frozenset[Circuit]()}
            instead = testbed.plans[self.what.to].circuits if self.what.to else none
            lost = (
                receiver(switch, each.egress)
                for switch, circuits in plan.circuits.items()
                if switch in instead
                for each in circuits.difference(instead[switch])
            )
            return frozenset(port for port in lost if port is not None)
        if self.what.single:
            return frozenset([self.link.a if self.reverse else self.link.b])
        partner = () if self.partner is None else (self.partner.a, self.partner.b)
        return frozenset((self.link.a, self.link.b, *partner))

    def single(self) -> "Fault":
        """Return it in one direction alone."""
        return replace(self, what=replace(self.what, single=True))

    def line(self) -> str:
        """Return it as one line of JSON, with all of its values."""
        partner = {} if self.partner is None else {"partner": str(self.partner)}
        direction = {"from": str(self.link.b if self.reverse else self.link.a)}
        return json.dumps(
            {
                "fault": str(self.what),
                "link": str(self.link),
                **(direction if self.what.single or self.what.slower else {}),
                **partner,
                "after_ns": self.after,
            }
        )


def split_fault(
    text: str, settings: Mapping[str, AbstractSet[str]]
) -> tuple[str, str, dict[str, str]]:
    """Return the kind of `KIND:VALUE,SETTING=VALUE,...`, its value and its settings.

    settings: names of those that each kind may have. Raises `FaultError` for others.
    """
    head, *parts = text.split(",")
    kind, _, value = head.partition(":")
    if kind not in settings:
        raise FaultError(f"{text!r}: found {kind!r}, expected one of {', '.join(settings)}")
    given = dict(part.strip().partition("=")[::2] for part in parts)
    if unknown := sorted(given.keys() - settings[kind]):
        known = ", ".join(sorted(settings[kind])) or "none"
        raise FaultError(f"{text!r}: a {kind} has no setting {unknown[0]!r}; known: {known}")
    return kind, value, given


def parse_fault(text: str) -> FaultKind:
    """Read a fault; `survive --help` has an example of each kind.

    Raises `FaultError`.
    """
    kind, length, settings = split_fault(text, _SETTINGS)
    try:
        found = FaultKind(
            kind,  # type: ignore[arg-type]  # is one, as checked above
            parse_duration(length),
            "one-way" in settings,
            _share(settings.get("duty", "0.5")),
            int(settings.get("number", "5" if kind == "flap" else "1")),
            _share(settings.get("loss", "2%" if kind == "dim" else "0")),
            parse_duration(settings["return"]) if "return" in settings else 0,
            settings.get("to", ""),
        )
    except (QuantityError, ValueError) as error:
        raise FaultError(f"{text!r}: {error}") from error
    if not 0 < found.duration * found.number + found.slower <= LONGEST:
        raise FaultError(f"{text!r}: lasts longer than {LONGEST // 10**9} s, or no time")
    if not 0 < found.duty < 1 or not 0 <= found.loss < 1:
        raise FaultError(f"{text!r}: duty and loss are shares between 0 and 1, such as 0.3 or 30%")
    if kind == "plan" and not found.to:
        raise FaultError(f"{text!r}: to=NAME is missing, the plan that is in place instead")
    if found.single and found.slower:
        raise FaultError(f"{text!r}: one direction alone has no other that returns before it")
    return found


def _share(text: str) -> float:
    return parse_share(text.replace("%", " %")) if "%" in text else float(text)


def draw_faults(
    kinds: Sequence[FaultKind],
    links: Sequence[Link],
    number: int,
    seed: int,
    links_of_plans: Mapping[str, Sequence[Link]] | None = None,
) -> list[Fault]:
    """Return `number` faults of `kinds` in turn, at places and moments drawn by `seed`.

    links_of_plans: those of the testbed's plans by name, for a plan that is put in place.

    Raises `FaultError` where there are not enough links, or no such plan.
    """
    without = {
        each.to: _left_out(links, each.to, links_of_plans or {}) for each in kinds if each.to
    }
    if len(links) < (2 if any(each.kind == "swap" for each in kinds) else 1):
        raise FaultError("the plan has too few links for this fault; a swap needs two")
    draw = random.Random(seed)  # noqa: S311 - not for secrets: the same for the same seed
    ordered, found = sorted(links), []
    for place in range(number):
        what = kinds[place % len(kinds)]
        link = draw.choice(without.get(what.to, ordered))
        further = [each for each in ordered if each != link]
        partner = draw.choice(further) if what.kind == "swap" else None
        reverse = (what.single or what.slower > 0) and draw.random() < 0.5
        found.append(Fault(what, link, partner, reverse, draw.randrange(_EARLIEST, _LATEST)))
    return found


def _left_out(links: Sequence[Link], to: str, of_plans: Mapping[str, Sequence[Link]]) -> list[Link]:
    """Return the links that the plan `to` has not."""
    if to not in of_plans:
        raise FaultError(f"there is no plan {to!r}; known: {', '.join(sorted(of_plans)) or 'none'}")
    if found := sorted(set(links).difference(of_plans[to])):
        return found
    raise FaultError(f"the plan {to!r} has all of these links: nothing would change")


def dark_plans(fabric: Fabric, plan: Plan, fault: Fault) -> Iterator[tuple[Plan, int]]:
    """Yield the plans of a fault made with circuits, each with its time in ns."""
    what = fault.what
    if what.kind == "swap":
        assert fault.partner is not None
        yield swapped(fabric, plan, fault.link, fault.partner), what.duration
        return
    if what.kind == "plan":
        yield fabric.testbed.plans[what.to], what.duration
        return
    dark = without_light(fabric, plan, fault)
    if what.kind in ("cut", "restart"):
        yield dark, what.duration
        if what.slower:
            yield without_light(fabric, plan, fault.single()), what.slower
        return
    for place in range(what.number):
        yield dark, round(what.duration * what.duty)
        if place < what.number - 1:
            yield plan, round(what.duration * (1 - what.duty))


def without_light(fabric: Fabric, plan: Plan, fault: Fault) -> Plan:
    """Return `plan` without the circuits that end at the fault's ports."""
    receiver, left = fabric.testbed.cabling.receiver, {}
    dark = fault.ports(fabric.testbed, plan)
    for switch, circuits in plan.circuits.items():
        left[switch] = frozenset(
            each for each in circuits if receiver(switch, each.egress) not in dark
        )
    return Plan(f"{plan.name} without {fault.link}", left)


def swapped(fabric: Fabric, plan: Plan, one: Link, two: Link) -> Plan:
    """Return `plan` with the links one.a <-> two.b and two.a <-> one.b in place of two of it."""
    circuits = {}
    joined = fabric.testbed.cabling.circuits_for_link
    new = joined(one.a, two.b), joined(two.a, one.b)
    for switch, present in plan.circuits.items():
        added = frozenset(
            circuit for each in new for circuit in each.circuits.get(switch, frozenset[Circuit]())
        )
        ingress = {each.ingress for each in added}
        circuits[switch] = added | {each for each in present if each.ingress not in ingress}
    return Plan(f"{plan.name} with {one} and {two} swapped", circuits)
