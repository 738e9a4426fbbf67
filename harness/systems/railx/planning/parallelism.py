"""Logical dimensions of a job that is stated by its parallelism (RailX, sections 3.3.4, 5.1, 5.2).

Tensor parallelism is on the mesh of a node. Context (CP), expert (EP), data (DP, of the expert
layers) and pipeline parallelism (PP) are logical dimensions, two of which share a physical one. EP
is an all-to-all, the others are rings (appendix A.3). The rails of a physical dimension are divided
by equation 11, or all given to one of the two for a phase (section 5.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import NamedTuple, TypeAlias

from lightrig.harness.systems.railx.planning.allocation import transfer_ns
from lightrig.harness.systems.railx.planning.cross_connects import DIMENSIONS
from lightrig.harness.systems.railx.planning.physical import Dimension, RailxError
from lightrig.harness.systems.railx.planning.topologies import Axis, Kind

NAMES = ("cp", "ep", "dp", "pp")
"""Logical dimensions in the order of ranks, the first fastest; TP is below them, on the mesh."""

Units: TypeAlias = Sequence[tuple[int, ...]]
"""Rails that are given together: one of each chip row, where all chips are to have as many."""

_PAIRINGS = (
    (("cp", "ep"), ("dp", "pp")),  # of figure 9
    (("ep", "pp"), ("cp", "dp")),  # of section 5.2
    (("ep", "dp"), ("cp", "pp")),
)


@dataclass(frozen=True, slots=True)
class Demand:
    """What one parallelism wants of the rails.

    Attributes:
        size: its degree. kinds: that join its nodes, the first that is possible is taken.
        volume: bytes that a node sends in an iteration. overlap_ns: computation beside it.
    """

    name: str
    size: int
    kinds: tuple[Kind, ...] = ("ring",)
    volume: float = 0.0
    overlap_ns: float = 0.0

    def time_ns(self, ports: int, bps: float) -> float:
        """Return max(T*, V / (2 n B)), a term of equation 11, for 2 n ports of a node."""
        return max(self.overlap_ns, transfer_ns(2 * self.volume, ports, bps))


class Share(NamedTuple):
    """A logical dimension with its rails, and why it is not of a kind before.

    ports: of a node that are joined, two of each rail but of the last of an all-to-all with one
    link a pair.
    """

    name: str
    axis: Axis
    ports: int
    reason: str | None = None


class Division(NamedTuple):
    """Logical dimensions of a physical one, the first fastest, and their time by equation 11."""

    shares: tuple[Share, ...]
    time_ns: float


Sides: TypeAlias = Mapping[Dimension, tuple[Demand, ...]]
"""The logical dimensions of each physical one."""


def sides(demands: Mapping[str, Demand]) -> Iterator[Sides]:
    """Yield which dimensions share each physical one: three pairings, turned either way."""
    seen = set()
    for pairing in _PAIRINGS:
        for turned in (pairing, pairing[::-1]):
            used = [tuple(demands[n] for n in pair if demands[n].size > 1) for pair in turned]
            key = tuple(frozenset(d.name for d in each) for each in used)
            if key not in seen:
                seen.add(key)
                yield dict(zip(DIMENSIONS, used, strict=True))


def length(demands: Sequence[Demand]) -> int:
    """Return the number of nodes in a line with these logical dimensions."""
    return math.prod(demand.size for demand in demands)


def usable(kind: Kind, size: int, rails: int) -> tuple[int, int]:
    """Return how many of `rails` an axis uses, and how many ports of each node are joined.

    Raises `DecompositionError` for an all-to-all of 4 or 6.
    """
    if kind == "ring" or not rails:
        return rails, 2 * rails
    need = len(Axis(size, kind, tuple(range(size - 1))).patterns())
    copies = rails // need
    return copies * need, copies * (size - 1) * (2 if kind == "all-to-all" else 1)


def divide(demands: Sequence[Demand], units: Units, bps: float, phase: str = "") -> Division:
    """Divide rails among one or two dimensions so that the sum of equation 11 is the least.

    Every division is tried. Of an all-to-all whole multiples of what it needs count, as others stay
    dark; of equal times the one that uses most rails is taken. phase: the dimension that has all
    rails, while the other of the two has none.

    Raises `RailxError` where no division gives each what its kind needs.
    """
    if phase in {demand.name for demand in demands}:
        counts = [tuple(len(units) * (demand.name == phase) for demand in demands)]
    elif len(demands) == 1:
        counts = [(len(units),)]
    else:
        counts = [(n, len(units) - n) for n in range(1, len(units))]
    reasons: list[str] = []
    for kinds in product(*(demand.kinds for demand in demands)):
        found: list[tuple[float, int, tuple[Share, ...]]] = []
        for each in counts:
            try:
                found.append(_division(demands, kinds, units, each, bps, "; ".join(reasons)))
            except RailxError as error:
                reason = f"no {', '.join(sorted({*kinds} - {'ring'}) or ['ring'])}: {error}"
                last = reason
        if found:
            time_ns, _, shares = min(found, key=lambda division: division[:2])
            return Division(shares, time_ns)
        reasons.append(last if counts else f"{len(units)} rails to divide, expected 2 or more")
    raise RailxError("; ".join(dict.fromkeys(reasons)))


def _division(
    demands: Sequence[Demand],
    kinds: Sequence[Kind],
    units: Units,
    counts: Sequence[int],
    bps: float,
    reason: str,
) -> tuple[float, int, tuple[Share, ...]]:
    """Return time, rails left dark and shares where each dimension has as many units."""
    at, time_ns, dark, shares = 0, 0.0, 0, []
    for demand, kind, count in zip(demands, kinds, counts, strict=True):
        rails = tuple(chain.from_iterable(units[at : at + count]))
        at += count
        used, ports = usable(kind, demand.size, len(rails))
        if rails and not used:
            raise RailxError(
                f"{demand.name}, {demand.size} nodes, has {len(rails)} rails, which are too few"
            )
        axis = Axis(demand.size, kind if rails else "ring", rails[:used])
        why = reason if len(demand.kinds) > 1 else ""
        shares.append(Share(demand.name, axis, ports, why or None))
        time_ns += demand.time_ns(ports, bps) if rails else 0.0
        dark += len(rails) - used
    return time_ns, dark, tuple(shares)


def ranks(x: Sequence[tuple[str, int]], y: Sequence[tuple[str, int]]) -> Iterator[tuple[int, int]]:
    """Yield the place in its row and in its column of each node, in the order [C, E, De, P].

    x, y: names and sizes of the logical dimensions of each physical one, the first fastest.
    """
    sizes = dict.fromkeys(reversed(NAMES), 1) | dict([*x, *y])
    for degrees in product(*map(range, sizes.values())):
        at = dict(zip(sizes, degrees, strict=True))
        places = []
        for logical in (x, y):
            place, stride = 0, 1
            for name, size in logical:
                place, stride = place + at[name] * stride, stride * size
            places.append(place)
        yield places[0], places[1]
