"""Meters that are wrong since their references: named, not included, or inside the intervals.

Each plant is measured from seeds of its own; the truth is the loss of the simulated switch after
the plant. A plant holds where the run names it, says what its budget does not include, or covers
at least 94 % of the truths with what it records; and where no cause that it names is false.
"""

import itertools
import math
import os
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.findings import Finding
from lightrig.harness.measure.insertion_loss.chains import chains
from lightrig.harness.measure.insertion_loss.faults import find_faults, misread
from lightrig.harness.measure.insertion_loss.matrix import Losses, measure_losses
from lightrig.harness.measure.insertion_loss.references import references_of
from lightrig.harness.measure.insertion_loss.rows import lacking_components
from lightrig.testbeds import Circuit
from lightrig.testbeds.references import References
from tests.campaigns.hard_labs.losses import IDEAL
from tests.campaigns.hard_labs.timing import bound, described, merged

SEEDS = 24
COVERED = 0.94
INGRESS, EGRESS = range(1, 9), range(9, 17)
SECOND = 1_000_000_000

Monitors = Callable[[int, float], float]
"""Error of a monitor in dB: of a port, at a power in dBm."""


@dataclass(frozen=True)
class Plant:
    """Something wrong of which no interval knows.

    Attributes:
        inject: changes the world of a bench once its references were taken.
        named: kinds of faults that name it.
        not_included: component that the run may say its budget lacks, and so the plant.
        both: whether what enters the switch is read by monitors too.
        linearity_db: what the references state of it; 0 for nothing.
        simulation: what differs from the ideal lab's.
    """

    inject: Callable[[Bench, random.Random], None]
    named: frozenset[str] = frozenset()
    not_included: str = ""
    both: bool = False
    linearity_db: float = 0.0
    simulation: dict[str, Any] = field(default_factory=dict)


def _matrix(bench: Bench) -> Any:
    world = bench.world
    assert world is not None
    return world.matrices["ocs"]


def _shown(bench: Bench, changed: Callable[[tuple[int, ...], list[float]], list[float]]) -> None:
    """Let the monitors of the switch show what `changed` makes of ports and their readings."""
    matrix = _matrix(bench)
    readings = matrix.readings

    def read(egresses: Any, ingresses: Any = ()) -> list[float]:
        egresses, ingresses = tuple(egresses), tuple(ingresses)
        return changed((*egresses, *ingresses), readings(egresses, ingresses))

    matrix.readings = read


def _off(bench: Bench, error: Monitors) -> None:
    def changed(ports: tuple[int, ...], shown: list[float]) -> list[float]:
        return [dbm + error(port, dbm) for port, dbm in zip(ports, shown, strict=True)]

    _shown(bench, changed)


def all_meters(db: float) -> Callable[[Bench, random.Random], None]:
    """Let every monitor at an egress show more."""
    return lambda bench, draws: _off(bench, lambda port, dbm: db if port in EGRESS else 0.0)


def some_meters(db: float) -> Callable[[Bench, random.Random], None]:
    """Let three monitors of eight, those of one card, show more."""

    def inject(bench: Bench, draws: random.Random) -> None:
        first = draws.randrange(6)
        card = EGRESS[first : first + 3]
        _off(bench, lambda port, dbm: db if port in card else 0.0)

    return inject


def comes_and_goes(db: float) -> Callable[[Bench, random.Random], None]:
    """Let every monitor at an egress show more in some settings between the checks."""

    def inject(bench: Bench, draws: random.Random) -> None:
        matrix, made, off = _matrix(bench), itertools.count(), [False]
        connect = matrix.connect
        chosen = {*draws.sample([1, 2, 3], 1), *draws.sample([5, 6, 7, 8], 2)}

        def connected(circuits: Any) -> int:
            off[0] = next(made) in chosen
            return int(connect(circuits))

        matrix.connect = connected
        _off(bench, lambda port, dbm: db if off[0] and port in EGRESS else 0.0)

    return inject


def range_switch(db: float) -> Callable[[Bench, random.Random], None]:
    """Let every monitor be off below -1.5 dBm, where it takes another range."""
    return lambda bench, draws: _off(bench, lambda port, dbm: db if dbm < -1.5 else 0.0)


def swapped(side: range) -> Callable[[Bench, random.Random], None]:
    """Let two monitors of one side show each other's light."""

    def inject(bench: Bench, draws: random.Random) -> None:
        first, second = draws.sample(side, 2)

        def changed(ports: tuple[int, ...], shown: list[float]) -> list[float]:
            by_port = dict(zip(ports, shown, strict=True))
            if first in by_port and second in by_port:
                by_port[first], by_port[second] = by_port[second], by_port[first]
            return [by_port[port] for port in ports]

        _shown(bench, changed)

    return inject


def better_connectors(db: float) -> Callable[[Bench, random.Random], None]:
    """Let more light enter at every port, since each mating after the references is better."""

    def inject(bench: Bench, draws: random.Random) -> None:
        made = _matrix(bench).ingress_of
        gained = {port: db * draws.uniform(0.8, 1.2) for port in INGRESS}
        _off(bench, lambda port, dbm: gained[made[port]] if port in made else 0.0)

    return inject


def wandering(db: float, seconds: float) -> Callable[[Bench, random.Random], None]:
    """Let the error of each monitor wander: an Ornstein-Uhlenbeck process."""

    def inject(bench: Bench, draws: random.Random) -> None:
        state: dict[int, tuple[int, float]] = {}

        def error(port: int, dbm: float) -> float:
            now = bench.clock.now()
            since, last = state.get(port, (None, 0.0))
            kept = 0.0 if since is None else math.exp(-(now - since) / (seconds * SECOND))
            value = last * kept + db * math.sqrt(1 - kept**2) * draws.gauss()
            state[port] = now, value
            return value

        _off(bench, error)

    return inject


def rounded(step: float) -> Callable[[Bench, random.Random], None]:
    """Let monitors show their readings in steps."""
    return lambda bench, draws: _off(bench, lambda port, dbm: round(dbm / step) * step - dbm)


_SHIFTED = frozenset({"shifted meter", "changed check standard"})
_WANDERS = _SHIFTED | {"unsteady readings"}
_QUIET = {"switches": {"ocs": {"monitor": {"noise": "0.004 dB"}}}}

PLANTS: dict[str, Plant] = {
    "ideal": Plant(lambda bench, draws: None),
    "ideal, both sides": Plant(lambda bench, draws: None, both=True),
    "all meters +0.1 dB": Plant(all_meters(0.1), _SHIFTED),
    "all meters +0.1 dB, both sides": Plant(all_meters(0.1), _SHIFTED, both=True),
    "all meters +0.3 dB": Plant(all_meters(0.3), _SHIFTED),
    "40 % of the meters +0.2 dB": Plant(some_meters(0.2), _SHIFTED),
    "40 % of the meters +0.3 dB": Plant(some_meters(0.3), _SHIFTED),
    "40 % of the meters +0.3 dB, both sides": Plant(some_meters(0.3), _SHIFTED, both=True),
    "0.3 dB that comes and goes": Plant(comes_and_goes(0.3), frozenset({"unsteady readings"})),
    "0.3 dB that comes and goes, both sides": Plant(
        comes_and_goes(0.3), frozenset({"unsteady readings"}), both=True
    ),
    "range switching, 0.15 dB": Plant(range_switch(0.15), _SHIFTED, "linearity"),
    "range switching, 0.3 dB": Plant(range_switch(0.3), _SHIFTED, "linearity"),
    "range switching, 0.15 dB, both sides": Plant(
        range_switch(0.15), _SHIFTED, "linearity", both=True
    ),
    "range switching, 0.15 dB, stated": Plant(range_switch(0.15), _SHIFTED, linearity_db=0.15),
    "two egress monitors swapped": Plant(swapped(EGRESS), frozenset({"swapped monitors"})),
    "two ingress monitors swapped": Plant(
        swapped(INGRESS), frozenset({"swapped monitors"}), both=True
    ),
    "connectors that improve, 0.1 dB": Plant(
        better_connectors(0.1), frozenset({"changed check standard"})
    ),
    "connectors that improve, 0.15 dB": Plant(
        better_connectors(0.15), frozenset({"changed check standard"})
    ),
    "connectors that improve, 0.4 dB": Plant(
        better_connectors(0.4), frozenset({"changed check standard"})
    ),
    "noise that wanders, 0.1 dB in 10 s": Plant(wandering(0.1, 10), _WANDERS),
    "noise that wanders, 0.1 dB in 1 s": Plant(wandering(0.1, 1), _WANDERS),
    "noise that wanders, 0.1 dB in 0.1 s": Plant(wandering(0.1, 0.1), _WANDERS),
    "noise that wanders, 0.05 dB in 1 s": Plant(wandering(0.05, 1), _WANDERS),
    "steps of 0.1 dB": Plant(rounded(0.1)),
    "steps of 0.05 dB": Plant(rounded(0.05)),
    "steps of 0.01 dB and little noise": Plant(rounded(0.01), simulation=_QUIET),
}


@dataclass
class Outcome:
    """What the runs of one plant gave.

    Attributes:
        named, lacking: number of seeds whose run names it, or says that it is not included.
        void: circuits without a recorded loss. n, missed: intervals, and those without the truth,
            of runs that do neither.
        false: causes that were named and are none.
    """

    seeds: int = 0
    named: int = 0
    lacking: int = 0
    void: int = 0
    n: int = 0
    missed: int = 0
    false: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every run names it or covers the truths, and names nothing that is false."""
        return not self.false and self.missed <= (1 - COVERED) * self.n


def measured(plant: Plant, seed: int) -> tuple[Losses, list[Finding], dict[Circuit, float]]:
    """Return the recorded losses of one seed, the faults that were found, and the truths."""
    draws = random.Random(f"meters {seed}")
    options = {"rerouting": True, "monitors": "both" if plant.both else "egress"}
    description = described(merged(IDEAL, plant.simulation), {"options": options}, ports=4)
    with warnings.catch_warnings(record=True), bound(description, seed) as bench:
        world = bench.world
        assert world is not None
        found = references_of(bench)
        stated = [replace(each, linearity_db=plant.linearity_db) for each in found.sets]
        (chain,) = chains(bench, References(tuple(stated), simulated=True))
        plant.inject(bench, draws)
        losses = measure_losses(Fabric(bench), chain)
        faults = find_faults(losses, bench.testbed)
        truths = {c: world.loss("ocs", c) for c in losses.losses}
    return losses.without(misread(losses, faults)), faults, truths


def tried(name: str, seeds: range) -> Outcome:
    """Measure one plant, seed by seed."""
    plant, outcome = PLANTS[name], Outcome()
    for seed in seeds:
        losses, faults, truths = measured(plant, seed)
        kinds = {fault.kind for fault in faults}
        outcome.seeds += 1
        outcome.void += len(truths) - len(losses.losses)
        allowed = plant.named | {"changed check standard"}
        if name.startswith("connectors"):
            allowed -= {"shifted meter"}
        outcome.false += [f"{seed}: {fault}" for fault in faults if fault.kind not in allowed]
        if kinds & plant.named:
            outcome.named += 1
        elif plant.not_included and plant.not_included in lacking_components(losses):
            outcome.lacking += 1
        else:
            outcome.n += len(losses.losses)
            outcome.missed += sum(
                abs(loss.value - truths[circuit]) > loss.budget.expanded
                for circuit, loss in losses.losses.items()
            )
    return outcome


def _lines(names: list[str], seeds: range) -> Iterator[tuple[str, Outcome]]:
    for name in names:
        outcome = tried(name, seeds)
        share = f"{1 - outcome.missed / outcome.n:.3f}" if outcome.n else "-"
        yield (
            f"{name:<40} named {outcome.named:2} not included {outcome.lacking:2} of "
            f"{outcome.seeds}, else coverage {share} of {outcome.n}, void {outcome.void}, "
            f"false causes {len(outcome.false)}",
            outcome,
        )


def main() -> bool:
    """Print a line for each plant; return whether all hold."""
    seeds = range(1, int(os.environ.get("METERS_SEEDS", SEEDS)) + 1)
    wanted = os.environ.get("METERS_PLANTS")
    held = True
    for line, outcome in _lines(wanted.split(";") if wanted else [*PLANTS], seeds):
        print(line, flush=True)
        for false in outcome.false:
            print(f"  {false}")
        held &= outcome.holds
    return held
