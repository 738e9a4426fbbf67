"""A trial: what a setting of the bench changes in a quantity that is measured here.

The values are measured in blocks of random order, so that neither a drift of the lab nor the order
is in what is found (`harness.statistics.trials`). A pilot, whose values are not used again, says
how many blocks are needed; that number is stated before the first and is not changed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat

import numpy as np

from lightrig.harness.bench.named_values import SubjectError
from lightrig.harness.bench.varied_settings import VariedSetting, put_back_uninterrupted
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.insertion_loss.readings import DARK_DBM
from lightrig.harness.measure.measured import NothingMeasuredError
from lightrig.harness.measure.power import POWER, measure_power
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.relock_turns import SOURCE_OF, RelockTurns, quantity_of
from lightrig.harness.measure.stages import rows
from lightrig.harness.quantities.registry import quantity
from lightrig.harness.record import Row
from lightrig.harness.statistics.samples import SampleError
from lightrig.harness.statistics.trials import (
    Effect,
    Order,
    Scale,
    blocks_of_pilot,
    effects,
    orders,
    planned_blocks,
)
from lightrig.testbeds import plan_pairs
from lightrig.testbeds.quantities import QuantityError, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightrig.harness.bench import Bench, Fabric
    from lightrig.harness.measure.links import LinkObservation
    from lightrig.harness.measure.recording import Recording
    from lightrig.testbeds import PlanPair

RELOCK = "relock"
"""Short for `relock.whole`, from light to carrier at a port."""

MOST_BLOCKS = 400
MATTERS: Mapping[Scale, float] = {"ratio": 0.02, "difference": 0.1}
"""Smallest effect that matters where none is stated: a share of the first value, or in its unit."""

_TRIES = 3
"""Times that a block is measured where one of its events was set aside."""


class TrialTooLongError(SampleError):
    """The effect that matters needs more blocks than are allowed."""


class Subject(Protocol):
    """What a trial measures.

    Attributes:
        name, unit: of the quantity.
        scale: on which its values are compared.
    """

    name: str
    unit: str
    scale: Scale

    def prepare(self) -> None:
        """Be ready to measure, after each change of the setting."""

    def measure(self) -> float | None:
        """Return one value; None for one that was set aside."""


@dataclass
class MeasuredPower:
    """The optical power at a port or channel, in dBm: the mean of several readings."""

    bench: Bench
    recording: Recording
    at: str
    name: str = POWER
    unit: str = "dBm"
    scale: Scale = "difference"

    def prepare(self) -> None:
        """Do nothing: an instrument that is set has settled."""

    def measure(self) -> float:
        """Return one value; raises what `measure_power` does, and where there is no light."""
        dbm = measure_power(self.bench, self.recording, self.at).value
        if dbm <= DARK_DBM:
            raise NothingMeasuredError(
                f"{self.at} reads {dbm:.4g} dBm, as without light: is its light switched on, and "
                "every shutter open?"
            )
        return dbm


class MeasuredChanges:
    """A duration of changes between two plans: a value is the mean of one change each way.

    Args:
        fabric, links, recording: of the open testbed.
        pair: the plans.
        name: a quantity of events, such as `reconfiguration.carrier_up`.
        at: the port, where not the event as a whole.
    """

    unit = "ns"
    scale: Scale = "ratio"

    def __init__(
        self,
        fabric: Fabric,
        links: LinkObservation,
        recording: Recording,
        pair: PlanPair,
        name: str,
        at: str,
    ) -> None:
        self.name = name
        self._fabric, self._links, self._recording = fabric, links, recording
        self._pair, self._at = pair, at

    def prepare(self) -> None:
        """Bring up the first plan; raises what `bring_up` does."""
        bring_up(self._fabric, self._links, self._pair.before)

    def measure(self) -> float | None:
        """Return one value; raises what `measure_reconfiguration` does, and `SubjectError`."""
        found = [self._duration(plan) for plan in (self._pair.after, self._pair.before)]
        known = [each for each in found if each is not None]
        return statistics.fmean(known) if len(known) == len(found) else None

    def _duration(self, plan: Any) -> float | None:
        event = measure_reconfiguration(self._fabric, self._links, self._recording, plan)
        if event.set_aside or event.clock_error is not None:
            return None
        of_event: dict[str, list[float]] = {}
        for row in rows(event, self._fabric, 0):
            if not self._at or row.subject == self._at:
                of_event.setdefault(row.quantity, []).append(row.value)
        if values := of_event.get(self.name):
            return min(values) if quantity(self.name).reduction() == "min" else max(values)
        where = f" at {self._at}" if self._at else ""
        raise SubjectError(
            f"a change to {plan.name} has shown no {self.name}{where}; it has shown "
            f"{', '.join(sorted(of_event)) or 'nothing'}"
        )


class MeasuredRelock(MeasuredChanges):
    """A stage between light and carrier, as a run with `--relock` divides it.

    A value is the mean of one change each way; of each change the longest of all ports, or that of
    the port `at`. Only what tells this stage is read, in every event: what reading costs is in all
    values of the setting alike.

    Args:
        as `MeasuredChanges`; name: of `SOURCE_OF`, or `RELOCK`.
    """

    def __init__(self, *of_changes: Any) -> None:
        super().__init__(*of_changes)
        self._quantity = "relock.whole" if self.name == RELOCK else self.name
        self._turns = RelockTurns(self._fabric, self._links, self._recording)

    def _duration(self, plan: Any) -> float | None:
        found = self._turns.divided(plan, SOURCE_OF[self._quantity])
        self._turns.found.clear()  # it records its own rows only
        if not found:
            return None
        values, apart = [], set[str]()
        for port, relock in found.items():
            if self._at in ("", str(port)):
                if self._quantity == "relock.whole":
                    values.append(sum(part.point for part in relock.parts))
                of_port = [p.point for p in relock.parts if quantity_of(p) == self._quantity]
                values += of_port
                apart |= {str(part) for part in relock.parts}
        if values:
            return max(values)
        where = f" at {self._at}" if self._at else ""
        raise SubjectError(
            f"a change to {plan.name} has not told {self._quantity} apart{where}; it has told "
            f"{'; '.join(sorted(apart)) or 'the relocks of ' + ', '.join(map(str, found))}"
        )


@dataclass
class CalledFunction:
    """What a person's own function returns.

    `call` returns a number, or what `float` takes, such as a measurement of this package.
    """

    call: Callable[[], SupportsFloat]
    name: str
    unit: str = "1"
    scale: Scale = "ratio"

    def prepare(self) -> None:
        """Do nothing: the function does what it needs."""

    def measure(self) -> float:
        """Return one value."""
        return float(self.call())


def subject_of(
    name: str,
    at: str,
    fabric: Fabric,
    links: Callable[[], LinkObservation],
    recording: Recording,
) -> Subject:
    """Return what measures a quantity; raises `SubjectError`, and `UnknownQuantityError`."""
    if name == POWER:
        if not at:
            raise SubjectError(f"{POWER} is measured at a port or channel: state which")
        return MeasuredPower(fabric.bench, recording, at)
    is_relock = name == RELOCK or name in SOURCE_OF
    if name.startswith("relock.") and not is_relock:
        known = ", ".join(SOURCE_OF)
        raise SubjectError(f"{name} is no stage of a relock that a trial measures: {known}")
    if not is_relock and (unit := quantity(name).unit) != MeasuredChanges.unit:
        raise SubjectError(f"{name} is in {unit}: it is no duration of a change of circuits")
    pairs = plan_pairs(fabric.testbed)
    if not pairs:
        raise SubjectError(f"{fabric.testbed.path} has no two plans to change between")
    kind = MeasuredRelock if is_relock else MeasuredChanges
    return kind(fabric, links(), recording, pairs[0], name, at)


@dataclass(frozen=True)
class TrialResult:
    """What a trial has found.

    Attributes:
        setting, values: what was varied; the first value is what others are compared with.
        quantity, unit, at: what was measured, and where.
        scale: "ratio": effects are shares of the first; "difference": in `unit`.
        matters: the smallest effect that matters, likewise.
        blocks: as many as were planned.
        levels: mean of each value's measurements, geometric on the scale "ratio".
        effects: of each value but the first.
        simulated: whether anything that took part was.
    """

    setting: str
    values: tuple[str, ...]
    quantity: str
    unit: str
    at: str
    scale: Scale
    matters: float
    blocks: int
    levels: tuple[float, ...]
    effects: tuple[Effect, ...]
    simulated: bool
    orders: tuple[Order, ...] = field(repr=False)

    @property
    def sentences(self) -> list[str]:
        """What was found, a sentence a value."""
        found = []
        for value, effect in zip(self.values[1:], self.effects, strict=True):
            if effect.is_less_than(self.matters, self.scale):
                verdict = "less than matters"
            elif effect.is_seen:
                verdict = "an effect"
            else:
                verdict = "not decided"
            found.append(
                f"{self.setting} {value} against {self.values[0]}: {self._shown(effect)}, "
                f"{effect.blocks} blocks: {verdict}"
            )
        return found

    def _shown(self, effect: Effect) -> str:
        numbers = effect.value, effect.lower, effect.upper
        if self.scale == "ratio":
            value, low, high = (f"{100 * number:+.2f} %" for number in numbers)
        else:
            value, low, high = (f"{number:+.3f} {_unit(self.unit)}" for number in numbers)
        where = f" at {self.at}" if self.at else ""
        return f"{self.quantity}{where} {value} (95 % interval {low} to {high})"

    def document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "setting": self.setting,
            "values": list(self.values),
            "quantity": self.quantity,
            "at": self.at,
            "unit": self.unit,
            "scale": self.scale,
            "matters": self.matters,
            "blocks": self.blocks,
            "orders": [list(order) for order in self.orders],
            "levels": list(self.levels),
            "effects": [
                {
                    "value": value,
                    "effect": effect.value,
                    "lower": effect.lower,
                    "upper": effect.upper,
                    "is_seen": effect.is_seen,
                    "less_than_matters": effect.is_less_than(self.matters, self.scale),
                }
                for value, effect in zip(self.values[1:], self.effects, strict=True)
            ],
            "simulated": self.simulated,
        }

    def __str__(self) -> str:
        return "\n".join([*self.sentences, *(["simulated"] if self.simulated else [])])


def measure_trial(
    bench: Bench,
    recording: Recording,
    setting: VariedSetting,
    subject: Subject,
    *,
    matters: str = "",
    most_blocks: int = MOST_BLOCKS,
    settle: int = 0,
    seed: int = 0,
    at: str = "",
) -> TrialResult:
    """Vary a setting and measure a quantity; the setting is put back, whatever ends the trial.

    Args:
        bench: the open testbed's.
        recording: takes rows, with the setting's value as a condition.
        setting: what is varied.
        subject: what is measured.
        matters: the smallest effect that matters, such as "2%", or "0.1dB" of a power; empty for
            that of `MATTERS`.
        most_blocks: that are allowed.
        settle: time between a change of the setting and a measurement, in ns.
        seed: of the orders.
        at: where, for people.

    Raises:
        TrialTooLongError: the effect that matters needs more blocks.
        NothingMeasuredError: a block had events set aside, again and again.
        InstrumentError: an instrument refused or failed.
        SampleError: values cannot be compared, such as one of 0 as a ratio.
        QuantityError: `matters` is no effect of that quantity.
    """
    scale = subject.scale
    smallest = _smallest(subject, matters)
    count = len(setting.values)
    generator = np.random.default_rng(seed)
    runner = _Runner(bench, recording, setting, subject, settle)
    where = f" at {at}" if at else ""
    pilot = orders(blocks_of_pilot(count), count, generator)
    recording.note(
        f"trial of {setting.name}: {', '.join(setting.values)}; found {setting.found}, which is "
        f"put back. It measures {subject.name}{where}; the smallest effect that matters is "
        f"{_shown(subject, smallest)}. First a pilot of {len(pilot)} blocks, which is no part of "
        "the result"
    )
    with runner.put_back():
        began = bench.clock.now()
        values = runner.measure(pilot, "pilot")
        took = (bench.clock.now() - began) / len(pilot)
        blocks = planned_blocks(values, pilot, scale, smallest)
        if blocks > most_blocks:
            raise TrialTooLongError(
                f"an effect of {_shown(subject, smallest)} needs {blocks} blocks by the pilot's "
                f"scatter, more than the {most_blocks} that are allowed: state a larger effect, or "
                "allow more"
            )
        in_order = orders(blocks, count, generator)
        recording.note(
            f"plan: {blocks} blocks of {count} measurements in random order (seed {seed}), about "
            f"{format_duration(took * blocks)}; the number is not changed any more"
        )
        values = runner.measure(in_order, "trial")
    found = tuple(effects(values, in_order, scale))
    means = np.exp(np.log(values).mean(axis=0)) if scale == "ratio" else values.mean(axis=0)
    result = TrialResult(
        setting.name,
        tuple(setting.values),
        subject.name,
        subject.unit,
        at,
        scale,
        smallest,
        blocks,
        tuple(map(float, means)),
        found,
        bool(bench.simulated),
        tuple(in_order),
    )
    recording.record(_rows(result, bench.clock.now()), judged=False)
    return result


class _Runner:
    """Measures blocks, and puts the setting back."""

    def __init__(
        self,
        bench: Bench,
        recording: Recording,
        setting: VariedSetting,
        subject: Subject,
        settle: int,
    ) -> None:
        self._bench, self._recording = bench, recording
        self._setting, self._subject = setting, subject
        self._settle = settle

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Put the setting back at the end, and take it from the conditions of later rows."""
        before = dict(self._recording.conditions)

        def end() -> None:
            self._recording.conditions = before
            put_back_uninterrupted(self._setting)

        with ExitStack() as stack:
            stack.callback(end)
            yield

    def measure(self, in_order: Sequence[Order], part: str) -> Any:
        """Return the values of blocks, a row a block, a column a setting."""
        values = np.zeros((len(in_order), len(self._setting.values)))
        for block, order in enumerate(in_order):
            values[block] = self._block(order, f"{part} {block}")
        return values

    def _block(self, order: Order, name: str) -> list[float]:
        for _ in range(_TRIES):
            found: dict[int, float] = {}
            for index in order:
                value = self._one(index, name)
                if value is None:
                    break
                found[index] = value
            else:
                return [found[index] for index in sorted(found)]
        raise NothingMeasuredError(
            f"{self._subject.name}: {_TRIES} times in a row an event of a block was set aside"
        )

    def _one(self, index: int, block: str) -> float | None:
        self._setting.set(index)
        self._bench.clock.sleep(self._settle)
        self._recording.conditions |= {
            "setting": self._setting.name,
            "set_to": self._setting.values[index],
            "block": block,
        }
        self._subject.prepare()
        return self._subject.measure()


def _smallest(subject: Subject, text: str) -> float:
    """Return the smallest effect that matters, on the subject's scale; raises `QuantityError`."""
    if not text:
        return MATTERS[subject.scale]
    unit = "%" if subject.scale == "ratio" else _unit(subject.unit)
    number, _, rest = text.partition(unit)
    try:
        found = math.nan if rest or unit not in text else float(number)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise QuantityError(
            f"found {text!r} as the smallest effect that matters, expected a number above 0 in "
            f"{unit}, since {subject.name} is compared "
            + ("as a ratio" if unit == "%" else "by differences")
        )
    return found / 100 if unit == "%" else found


def _shown(subject: Subject, effect: float) -> str:
    if subject.scale == "ratio":
        return f"{100 * effect:g} %"
    return f"{effect:g} {_unit(subject.unit)}"


def _unit(unit: str) -> str:
    """Return the unit of a difference."""
    return "dB" if unit == "dBm" else unit


def _rows(result: TrialResult, time: int) -> list[Row]:
    """Return the effects as rows; of a difference in another unit than dB there is none."""
    if result.scale == "difference" and result.unit not in ("dB", "dBm"):
        return []
    name, unit = ("trial.ratio", "1") if result.scale == "ratio" else ("trial.difference", "dB")
    return [
        Row(
            result.setting,
            name,
            effect.value,
            effect.lower,
            effect.upper,
            unit,
            time,
            {
                "measured": result.quantity,
                "first": result.values[0],
                "second": value,
                "matters": result.matters,
                "n": effect.blocks,
            },
        )
        for value, effect in zip(result.values[1:], result.effects, strict=True)
    ]
