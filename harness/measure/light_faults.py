"""Faults made with light: cuts, flaps, swapped circuits, dimming; as text, and drawn by a seed."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from lightrig.harness.bench import Fabric
from lightrig.testbeds import Circuit, LightrigError, Link, Plan, Port, QuantityError
from lightrig.testbeds.quantities import parse_duration, parse_share

Kind: TypeAlias = Literal["cut", "flap", "swap", "dim"]

_SETTINGS = {
    "cut": {"one-way"},
    "flap": {"one-way", "duty", "number"},
    "swap": set[str](),
    "dim": {"loss"},
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
        duration: of a cut, a swap or dimming, or the period of a flap, in ns.
        single: whether only the light from one end of the link to the other is taken away.
        duty: share of each period of a flap that is dark.
        number: of periods of a flap.
        loss: share of the packets that dimming loses: in namespaces the kernel drops them, by
            nftables; light and carrier stay.
    """

    kind: Kind
    duration: int
    single: bool = False
    duty: float = 0.5
    number: int = 1
    loss: float = 0.0

    def __str__(self) -> str:
        """Return the text that `parse_fault` reads."""
        parts = [f"{self.kind}:{self.duration / 1e9:g}s"]
        if self.single:
            parts.append("one-way")
        if self.kind == "flap":
            parts += [f"duty={self.duty:.4g}", f"number={self.number}"]
        if self.kind == "dim":
            parts.append(f"loss={self.loss:.4g}")
        return ",".join(parts)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at its place.

    Attributes:
        link: whose light is taken away; of a swap the first one.
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
    def ports(self) -> frozenset[Port]:
        """The ports that lose their light for a time, or for a moment."""
        if self.what.single:
            return frozenset([self.link.a if self.reverse else self.link.b])
        partner = () if self.partner is None else (self.partner.a, self.partner.b)
        return frozenset((self.link.a, self.link.b, *partner))

    def line(self) -> str:
        """Return it as one line of JSON, with all of its values."""
        partner = {} if self.partner is None else {"partner": str(self.partner)}
        direction = {"from": str(self.link.b if self.reverse else self.link.a)}
        return json.dumps(
            {
                "fault": str(self.what),
                "link": str(self.link),
                **(direction if self.what.single else {}),
                **partner,
                "after_ns": self.after,
            }
        )


def parse_fault(text: str) -> FaultKind:
    """Read `cut:2s`, `cut:2s,one-way`, `flap:1s,duty=0.3,number=4`, `swap:2s`, `dim:5s,loss=2%`.

    Raises `FaultError`.
    """
    head, *parts = text.split(",")
    kind, _, length = head.partition(":")
    if kind not in _SETTINGS:
        raise FaultError(f"{text!r}: found {kind!r}, expected one of {', '.join(get_args(Kind))}")
    settings = dict(word.strip().partition("=")[::2] for word in parts)
    if unknown := sorted(settings.keys() - _SETTINGS[kind]):
        known = ", ".join(sorted(_SETTINGS[kind])) or "none"
        raise FaultError(f"{text!r}: a {kind} has no setting {unknown[0]!r}; known: {known}")
    try:
        found = FaultKind(
            kind,  # type: ignore[arg-type]  # is one, as checked above
            parse_duration(length),
            "one-way" in settings,
            _share(settings.get("duty", "0.5")),
            int(settings.get("number", "5" if kind == "flap" else "1")),
            _share(settings.get("loss", "2%" if kind == "dim" else "0")),
        )
    except (QuantityError, ValueError) as error:
        raise FaultError(f"{text!r}: {error}") from error
    if not 0 < found.duration * found.number <= LONGEST:
        raise FaultError(f"{text!r}: lasts longer than {LONGEST // 10**9} s, or no time")
    if not 0 < found.duty < 1 or not 0 <= found.loss < 1:
        raise FaultError(f"{text!r}: duty and loss are shares between 0 and 1, such as 0.3 or 30%")
    return found


def _share(text: str) -> float:
    return parse_share(text.replace("%", " %")) if "%" in text else float(text)


def draw_faults(
    kinds: Sequence[FaultKind], links: Sequence[Link], number: int, seed: int
) -> list[Fault]:
    """Return `number` faults of `kinds` in turn, at places and moments drawn by `seed`.

    Raises `FaultError` where there are not enough links.
    """
    if len(links) < (2 if any(each.kind == "swap" for each in kinds) else 1):
        raise FaultError("the plan has too few links for this fault; a swap needs two")
    draw = random.Random(seed)  # noqa: S311 - not for secrets: the same for the same seed
    ordered, found = sorted(links), []
    for place in range(number):
        what = kinds[place % len(kinds)]
        link = draw.choice(ordered)
        further = [each for each in ordered if each != link]
        partner = draw.choice(further) if what.kind == "swap" else None
        reverse = what.single and draw.random() < 0.5
        found.append(Fault(what, link, partner, reverse, draw.randrange(_EARLIEST, _LATEST)))
    return found


def dark_plans(fabric: Fabric, plan: Plan, fault: Fault) -> Iterator[tuple[Plan, int]]:
    """Yield the plans of a fault made with circuits, each with its time in ns."""
    what = fault.what
    if what.kind == "swap":
        assert fault.partner is not None
        yield swapped(fabric, plan, fault.link, fault.partner), what.duration
        return
    dark = without_light(fabric, plan, fault)
    if what.kind == "cut":
        yield dark, what.duration
        return
    for place in range(what.number):
        yield dark, round(what.duration * what.duty)
        if place < what.number - 1:
            yield plan, round(what.duration * (1 - what.duty))


def without_light(fabric: Fabric, plan: Plan, fault: Fault) -> Plan:
    """Return `plan` without the circuits that end at the fault's ports."""
    receiver, left = fabric.testbed.cabling.receiver, {}
    for switch, circuits in plan.circuits.items():
        left[switch] = frozenset(
            each for each in circuits if receiver(switch, each.egress) not in fault.ports
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
