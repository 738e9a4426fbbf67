"""Steps of a mixture of experts over circuits and packets: traffic, waits and ratios, as rows."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.quantiles import NotEnough, Quantile, quantile
from lightrig.harness.systems.mixnet.measurements.circuit_waits import CAUSES, Cause, step_waits
from lightrig.harness.systems.mixnet.runtime.trained import TrainedExperts, TrainingExchange


@dataclass(frozen=True)
class StepFigures:
    """Figures of each step but the first, which finds circuits and connections cold.

    Attributes:
        steps: time of a step, in ns.
        exchanges: time of its all-to-alls together, each from the last rank's beginning to the
            last rank's end, in ns.
        waited: how long its all-to-alls waited for circuits together, in ns.
        causes: the same, by cause.
        predicted: time of its all-to-alls by the model of flows, in ns.
        optical: share of the bytes between ranks that took circuits.
        changes: changes of circuits that moved any.
        circuits: circuits made.
    """

    steps: Sequence[int]
    exchanges: Sequence[int]
    waited: Sequence[int]
    causes: Mapping[Cause, Sequence[int]]
    predicted: Sequence[float]
    optical: Sequence[float]
    changes: Sequence[int]
    circuits: Sequence[int]


def step_figures(trained: TrainedExperts) -> StepFigures:
    """Return the figures of a run."""
    by_step: defaultdict[int, list[TrainingExchange]] = defaultdict(list)
    for each in trained.exchanges:
        by_step[each.step].append(each)
    later = [by_step[step] for step in sorted(by_step) if step]
    moved = [
        [one.moved for one in trained.changes if one.step == step and one.moved]
        for step in sorted(by_step)
        if step
    ]
    waits = step_waits(trained)
    return StepFigures(
        trained.step_times(),
        [sum(one.ended - one.began for one in step) for step in later],
        [sum(one.waited for one in step) for step in later],
        {cause: [one[cause] for one in waits] for cause in CAUSES},
        [sum(one.predicted for one in step) for step in later],
        [_mean(one.optical for one in step) for step in later],
        [len(found) for found in moved],
        [sum(found) for found in moved],
    )


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ratio of two medians; bounds from both 95 % intervals."""

    value: float
    lower: float
    upper: float
    n: int


def median_ratio(over: Sequence[float], under: Sequence[float]) -> Ratio | NotEnough:
    """Return the ratio of two medians; at least six samples of each are needed."""
    found = [quantile(each, each, 0.5) for each in (over, under)]
    for one in found:
        if isinstance(one, NotEnough):
            return one
    top, bottom = (one for one in found if isinstance(one, Quantile))
    assert top.lower is not None
    assert bottom.lower is not None
    return Ratio(
        top.value / bottom.value,
        top.lower / bottom.upper,
        top.upper / bottom.lower,
        min(top.n, bottom.n),
    )


def overlaps(trained: TrainedExperts) -> list[str]:
    """Return each change of circuits during which an all-to-all ran: there must be none."""
    return [
        f"step {change.step}, circuits for {change.before} of layer {change.layer}: "
        f"{each.phase} of layer {each.layer} ran"
        for change in trained.changes
        if change.moved
        for each in trained.exchanges
        if each.began < change.done and change.began < each.ended
    ]


def training_rows(trained: TrainedExperts, at: int, conditions: dict[str, Scalar]) -> Iterator[Row]:
    """Yield the figures of each step but the first."""
    found = step_figures(trained)
    columns: dict[str, tuple[Sequence[float], str]] = {
        "experts.step": (found.steps, "ns"),
        "experts.exchanges": (found.exchanges, "ns"),
        "experts.waited": (found.waited, "ns"),
        "experts.optical": (found.optical, "share"),
        "experts.changes": (found.changes, "1"),
    }
    for quantity, (values, unit) in columns.items():
        for step, value in enumerate(values, 1):
            given = {**conditions, "step": step}
            yield Row("job", quantity, value, value, value, unit, at, given)
    for cause, waits in found.causes.items():
        for step, value in enumerate(waits, 1):
            given = {**conditions, "step": step, "cause": cause}
            yield Row("job", "experts.waited_by_cause", value, value, value, "ns", at, given)


def loss_rows(trained: TrainedExperts, reference: TrainedExperts, at: int) -> Iterator[Row]:
    """Yield each step's greatest difference of losses between two runs of a script."""
    off: defaultdict[int, float] = defaultdict(float)
    for (_, here), (_, there) in zip(trained.losses(), reference.losses(), strict=True):
        _, step, _, loss = here.split()
        off[int(step)] = max(off[int(step)], abs(float(loss) - float(there.split()[3])))
    for number, most in sorted(off.items()):
        yield Row("job", "experts.loss_off", most, most, most, "1", at, {"step": number})


def ratio_row(quantity: str, found: Ratio, at: int, conditions: dict[str, Scalar]) -> Row:
    """The ratio of two networks' medians."""
    given = {**conditions, "n": found.n}
    return Row("job", quantity, found.value, found.lower, found.upper, "1", at, given)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
