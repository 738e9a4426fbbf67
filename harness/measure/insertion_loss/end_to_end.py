"""Loss of whole light paths: from transceiver to transceiver, through every switch between them.

Where switches stand in series no instrument sees what leaves the first of them, so that the loss
of a stage is not measurable in place; that of the path is, by the transceivers at both ends.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.closure import closure_row
from lightrig.harness.measure.insertion_loss.chains import MODULE_DB, NothingToMeasureError
from lightrig.harness.measure.insertion_loss.observers import Modules, has_module
from lightrig.harness.measure.insertion_loss.readings import DARK_DBM, Numbers
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.closure import judge_deviations
from lightrig.harness.statistics.uncertainty import Budget, Component, combine, pooled
from lightrig.testbeds import Plan
from lightrig.testbeds.light_paths import LightPath, light_paths

READINGS = 4
"""Samples of every transceiver: their noise is far below their accuracy."""

_ARRIVAL_NS = 5_000_000_000


@dataclass(frozen=True, slots=True)
class PathLoss:
    """The loss of one light path in dB, fibers and connectors included.

    budget: its uncertainty. at: time of the first reading, in ns on the bench's clock.
    """

    path: LightPath
    value: float
    budget: Budget
    at: int

    @property
    def subject(self) -> str:
        """Both ends of the path, as rows name it."""
        return f"{self.path.source} -> {self.path.sink}"


@dataclass(frozen=True, slots=True)
class PathLosses:
    """Losses of all light paths of a plan, and the paths whose light did not arrive."""

    plan: str
    losses: tuple[PathLoss, ...]
    dark: tuple[LightPath, ...]


def measure_path_losses(fabric: Fabric, recording: Recording, plan: Plan) -> PathLosses:
    """Apply `plan`, read the transceivers at both ends of each of its light paths, and record.

    Light that does not come is waited for 5 s. Rows are `path_loss`, with the number of switches
    passed as condition `stages`, and `loss.path_closure` where the light is simulated.

    Raises:
        NothingToMeasureError: no path of `plan` has a readable transceiver at both ends.
        InstrumentError: an instrument refused or failed.
    """
    bench = fabric.bench
    paths = [
        path
        for path in light_paths(bench.testbed.cabling, plan)
        if has_module(bench, path.source) and has_module(bench, path.sink)
    ]
    if not paths:
        raise NothingToMeasureError(
            f"plan {plan.name} has no light path between two transceivers that can be read"
        )
    fabric.apply(plan)
    found = _read(bench, plan, paths)
    recording.record(list(path_loss_rows(found, bench, recording.next_event())))
    return found


def _read(bench: Bench, plan: Plan, paths: Sequence[LightPath]) -> PathLosses:
    clock = bench.clock
    modules = Modules(
        bench,
        {2 * number: path.source for number, path in enumerate(paths)},
        {2 * number + 1: path.sink for number, path in enumerate(paths)},
    )
    deadline = clock.now() + _ARRIVAL_NS
    while True:
        at = clock.now()
        samples = []
        for _ in range(READINGS):
            seen = modules.read()
            samples.append([[seen.dbm[2 * n + end] for end in (0, 1)] for n in range(len(paths))])
            clock.sleep(seen.window)
        levels: Numbers = np.array(samples)
        lit = np.asarray((levels > DARK_DBM).all(axis=(0, 2)))
        if lit.all() or clock.now() > deadline:
            break
    lost = levels[:, lit, 0] - levels[:, lit, 1]
    dark = tuple(path for path, bright in zip(paths, lit, strict=True) if not bright)
    if not lit.any():
        return PathLosses(plan.name, (), dark)
    noise = pooled(lost.T, "noise")
    mean = Component("noise", noise.standard / math.sqrt(READINGS), noise.degrees)
    budget = combine(
        [mean, *[Component("module", MODULE_DB / math.sqrt(3), distribution="rectangular")] * 2]
    )
    measured = [path for path, bright in zip(paths, lit, strict=True) if bright]
    losses = map(partial(PathLoss, budget=budget, at=at), measured, lost.mean(axis=0).tolist())
    return PathLosses(plan.name, tuple(losses), dark)


def true_loss(path: LightPath, bench: Bench) -> float | None:
    """Return the simulated loss of `path` in dB, fibers included; None where a stage is real."""
    world = bench.world
    if world is None or not bench.simulated.issuperset(switch for switch, _ in path.crossings):
        return None
    return math.fsum(
        [world.loss(*crossing) for crossing in path.crossings]
        + [fiber.loss_db for fiber in path.fibers]
    )


def path_loss_rows(found: PathLosses, bench: Bench, event: int) -> Iterator[Row]:
    """Yield a row for each path, and whether their intervals hold the simulated losses."""
    deviations = []
    for loss in found.losses:
        half = loss.budget.expanded
        conditions: dict[str, Scalar] = {
            "event": event,
            "plan": found.plan,
            "stages": len(loss.path.crossings),
        }
        if (kind := bench.testbed.transceiver_of(loss.path.source)) is not None:
            # A number with a fraction distinguishes no cases between nights.
            conditions["wavelength_nm"] = float(kind.wavelength_nm)
        ends = loss.value - half, loss.value + half
        yield Row(loss.subject, "path_loss", loss.value, *ends, "dB", loss.at, conditions)
        true = true_loss(loss.path, bench)
        if true is not None:
            deviations.append((loss.value - true) / half)
    if deviations:
        verdict = judge_deviations(deviations)
        name, at = bench.testbed.name, found.losses[0].at
        yield closure_row(name, "loss.path_closure", verdict, at, event)
