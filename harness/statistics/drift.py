"""Drift between nights: has a quantity changed since the nights before, and by how much?

What is claimed is a single abrupt change: that tonight lies apart from where the nights before
lead one to expect it, by more than those nights lay apart from what was then to be expected.
The stated rate of false alarms holds whatever the events of a night are like among themselves
(skewed, bimodal, following one another), and for nights that are alike, that scatter, that
drift or that wander: of 1 %, at most 1.3 % were measured, of 5 %, 6.3 %. It takes for granted
that nights miss their expectation about as normal values do: where now and then a night is far
out, and none among those looked at was, such a night is an alarm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.statistics.comparisons import Comparison, Means, Midmeans, Ranks
from lightrig.harness.statistics.levels import Level, Scale, level_of, mean, mean_of, median
from lightrig.harness.statistics.nights import Night, Yardstick, as_night, expect
from lightrig.testbeds import format_share
from lightrig.testbeds.baselines import Rule

DriftRule: TypeAlias = Rule
"""By which a quantity is compared with its nights before; `testbeds.baselines` reads them."""
DriftOutcome: TypeAlias = Literal[
    "unchanged",
    "departed, unconfirmed",
    "changed",
    "cannot tell",
    "guard broken",
    "not enough data",
]

POWER = 0.8
"""The probability with which a change of `DriftVerdict.detectable` is found."""

_OF_MIDMEANS = 0.25
"""Share of the error rate of ranks that midmeans spend.

A mean rank finds a small change best where nights are alike, and has a bound: where nights lie
apart no change of any size makes it surprising. A midmean has none. Both are compared, and the
error rate is divided between them (Bonferroni), most of it to the ranks: what midmeans are for
is larger than what a quarter of the rate costs.
"""

_ROUNDING = 1e-9
"""Nights that differ by less, of their own size, are copies of each other."""


@dataclass(frozen=True, slots=True)
class DriftVerdict:
    """Comparison of a quantity with the nights before; unknown values are None.

    outcome: "unchanged", "departed, unconfirmed", "changed" (after `confirmation.judge_nights`
        only: later nights confirm it), "guard broken", "not enough data", or "cannot tell": no
        change was found, and the one that the rule states might have been missed, or it states
        none.
    reason: one sentence for people.
    n: samples of tonight. nights: nights before that were looked at; samples: theirs.
    level: tonight's median, or its mean where means are compared. before: the mean of those of
        the nights before.
    effect: by what factor, or how much (a difference), tonight's samples are above what was to
        be expected. lower, upper: its interval at 1 - error, infinite where nothing bounds it;
        widened by what the observers could not tell, so that it may hold "no change" beside a
        small `p`: then something changed, and how much is not known.
    p: the probability of a change this large where nothing changed.
    detectable: the change, expressed as `effect`, that as many samples and nights would show
        with a probability of `POWER`, at the error rate that is left after correction for many
        comparisons; None also where no change would do.
    sees: whether that is at most the change that the rule states (`Rule.detect`).
    needed, needed_nights: how many more samples tonight, and nights before, a verdict takes.
    run: nights in a row, tonight the last of them, that depart; meaningful with those outcomes.
    ratio: whether `effect` and `detectable` are factors, else differences.
    """

    outcome: DriftOutcome
    reason: str
    n: int
    nights: int
    samples: int
    level: float | None = None
    before: float | None = None
    effect: float | None = None
    lower: float | None = None
    upper: float | None = None
    p: float | None = None
    detectable: float | None = None
    sees: bool | None = None
    needed: int | None = None
    needed_nights: int | None = None
    run: int = 1
    ratio: bool = True


def judge_drift(
    baseline: Sequence[npt.ArrayLike],
    tonight: npt.ArrayLike,
    rule: DriftRule,
    *,
    corrected_error: float | None = None,
) -> DriftVerdict:
    """Judge tonight's samples against those of the nights before, oldest first, by `rule`.

    A night is one row of values in the order of its events, one an event, or two rows: the
    earliest and the latest that each can have been. All share one unit, that of the guard.
    Nights before with fewer samples than the rule asks for are left out; of one with more than
    tonight the first ones count, so that nights are equally many samples. Midpoints are
    compared, which is sound while the observers are what they were; what could come from
    their intervals having grown wider or narrower is not counted as a change.

    corrected_error: the error rate at which a change would still be called one among all that
    are compared (see `corrections.least_error`), for `DriftVerdict.detectable`; None for a
    comparison that stands alone.

    Raises `SampleError` for samples that make no sense, and for values that are not above zero
    where a ratio is asked for.
    """
    rule = rule if rule.effect else rule.in_unit("1")
    night = as_night("tonight", tonight)
    known = [as_night(f"night {index}", each) for index, each in enumerate(baseline)]
    enough = [each for each in known if len(each) >= rule.minimum][-rule.nights :]
    # A longer night has a level that varies less: as a yardstick for a shorter one it would call
    # what is usual a change.
    before = [each.first(max(len(night), rule.minimum)) for each in enough]
    verdict = DriftVerdict("not enough data", "", len(night), len(before), sum(map(len, before)))
    measure = median if rule.test == "rank" else mean
    usual = mean_of([level_of(each, measure) for each in before]) if before else None
    if usual is not None:
        verdict = replace(verdict, before=usual.middle)
    if not len(night):
        return _not_enough(verdict, rule)
    level = level_of(night, measure)
    verdict = replace(verdict, level=level.middle)
    if broken := _broken(rule, level, usual):
        return replace(verdict, outcome="guard broken", reason=broken)
    if usual is None or len(night) < rule.minimum or len(before) < rule.nights:
        return _not_enough(verdict, rule)
    # The power is that of the comparison as it will be judged, among all others of the night.
    error = rule.error if corrected_error is None else min(rule.error, corrected_error)
    return _judge(verdict, rule, _Nights(before, night, usual, level), error)


def comparable(baseline: Sequence[npt.ArrayLike], tonight: npt.ArrayLike, rule: DriftRule) -> bool:
    """Whether there are the samples and nights that `judge_drift` needs for a comparison."""
    sizes: list[int] = [np.shape(each)[-1] for each in (*baseline, tonight)]
    enough = sum(size >= rule.minimum for size in sizes[:-1])
    return sizes[-1] >= rule.minimum and enough >= rule.nights


@dataclass(frozen=True, slots=True)
class _Nights:
    """The compared nights, with the mean level before and tonight's level."""

    before: Sequence[Night]
    tonight: Night
    usual: Level
    level: Level


def _broken(rule: Rule, level: Level, usual: Level | None) -> str | None:
    """Return the reason if tonight's level breaks the guard or the ratio, else None."""
    guard, what = rule.guard, f"Tonight's {'median' if rule.test == 'rank' else 'mean'}"
    if guard and guard.max is not None and level.low > guard.max:
        found, bound = guard.written(level.middle), guard.written(guard.max)
        return f"{what} of {found} is above the guard of {bound}."
    if guard and guard.min is not None and level.high < guard.min:
        found, bound = guard.written(level.middle), guard.written(guard.min)
        return f"{what} of {found} is below the guard of {bound}."
    if rule.ratio and usual and level.low > rule.ratio * usual.high:
        return f"{what} is more than {rule.ratio:g} times that of the nights before."
    return None


def _not_enough(verdict: DriftVerdict, rule: Rule) -> DriftVerdict:
    needed = max(0, rule.minimum - verdict.n)
    nights = max(0, rule.nights - verdict.nights)
    parts = []
    if needed:
        parts.append(f"{verdict.n:,} samples tonight, {needed:,} more needed")
    if nights:
        known = f"{verdict.nights} nights before with {rule.minimum:,} samples or more"
        parts.append(f"{known}, {nights} more needed")
    reason = f"Not enough data: {'; '.join(parts)}."
    return replace(verdict, reason=reason, needed=needed, needed_nights=nights)


class _Part(NamedTuple):
    """One comparison of a rule's test, and the share of the error rate that it may spend."""

    scores: Comparison
    share: float


def _parts(rule: Rule, scale: Scale, nights: _Nights) -> list[_Part]:
    tonight = nights.tonight.middle
    if rule.test == "rank":
        before = [scale.values(each.middle) for each in nights.before]
        now = scale.values(tonight)
        return [
            _Part(Ranks(before, now), 1 - _OF_MIDMEANS),
            _Part(Midmeans(before, now), _OF_MIDMEANS),
        ]
    means = [mean(each.middle) for each in nights.before]
    return [_Part(Means(scale, means, tonight), 1.0)]


class _Finding(NamedTuple):
    """Finding of one comparison, on the rule's scale; its share of the error is spent in it.

    p: probability of such a miss where nothing changed, over its share.
    effect: shift of tonight's samples above the expected; `lower`, `upper` its interval.
    detectable: shift that would be found with the probability `POWER`.
    """

    p: float
    effect: float
    lower: float
    upper: float
    detectable: float


def _judge(
    verdict: DriftVerdict, rule: Rule, nights: _Nights, corrected_error: float
) -> DriftVerdict:
    scale = Scale(rule.effect != "difference")
    found: list[_Finding] = []
    for part in _parts(rule, scale, nights):
        expected = expect(part.scores.before)
        miss = _miss(part.scores, expected.value, rule, scale, nights)
        rounding = _ROUNDING * (abs(part.scores.tonight(0)) + abs(expected.value))
        misses = expected.at_least(part.scores.least_spread)
        if not found and expected.misses.spread <= rounding:
            return _judge_copies(verdict, rule, differs=miss > rounding)
        # A spread of zero makes any difference infinitely many spreads large.
        if misses.spread <= rounding:
            continue  # nearly all samples are equal, and ranks compare the rest
        yardsticks = [misses, *part.scores.tonight_yardsticks(expected.value)]
        found.append(_finding(part, expected.value, miss, yardsticks, rule, corrected_error))

    first = min(found, key=lambda one: one.p)
    lower, upper = max(one.lower for one in found), min(one.upper for one in found)
    # Two comparisons that exclude each other's values leave no interval: the clearer one stands.
    if lower > upper:
        lower, upper = first.lower, first.upper
    # The estimate of the first comparison, as far as the second one does not exclude it.
    effect = min(max(found[0].effect, lower), upper)
    # What the observers could not tell is no noise that averages out, so it is added in full.
    lower -= scale.down_to(nights.level) + scale.up_to(nights.usual)
    upper += scale.up_to(nights.level) + scale.down_to(nights.usual)
    detectable = min((one.detectable for one in found), key=abs)
    p = min(first.p, 1.0)
    # Without a stated change no power is enough for "unchanged".
    stated = _stated(rule)
    sees = stated is not None and abs(detectable) <= scale.shift(stated)
    outcome: DriftOutcome = "unchanged" if sees else "cannot tell"
    verdict = replace(
        verdict,
        outcome="departed, unconfirmed" if p <= rule.error else outcome,
        effect=scale.change(effect),
        lower=scale.change(-math.inf if rule.direction == "down" else lower),
        upper=scale.change(math.inf if rule.direction == "up" else upper),
        p=p,
        detectable=scale.change(detectable) if math.isfinite(detectable) else None,
        sees=sees,
        ratio=scale.ratio,
    )
    return replace(verdict, reason=_reason(verdict, rule, scale))


def _miss(scores: Comparison, expected: float, rule: Rule, scale: Scale, nights: _Nights) -> float:
    """By how much tonight misses the expected score in the rule's direction."""
    miss = scores.tonight(0) - expected
    # A shift that wider or narrower intervals of the observers explain is no change.
    if width_shift := _shift_of_widths(scale, nights):
        left = scores.tonight(math.copysign(width_shift, miss)) - expected
        miss = left if left * miss > 0 else 0.0
    return {"both": abs(miss), "up": miss, "down": -miss}[rule.direction]


def _finding(
    part: _Part,
    expected: float,
    miss: float,
    yardsticks: Sequence[Yardstick],
    rule: Rule,
    corrected_error: float,
) -> _Finding:
    scores, sides = part.scores, 2 if rule.direction == "both" else 1
    error, corrected = (each * part.share / sides for each in (rule.error, corrected_error))
    p = max(sides * yardstick.tail(miss) for yardstick in yardsticks) / part.share
    reach = max(yardstick.reach(error) for yardstick in yardsticks)
    found = max(yardstick.found(corrected, POWER) for yardstick in yardsticks)
    found = -found if rule.direction == "down" else found
    return _Finding(
        p,
        scores.shift_to(expected),
        scores.shift_to(expected + reach),
        scores.shift_to(expected - reach),
        scores.growth(expected, expected + found),
    )


def _shift_of_widths(scale: Scale, nights: _Nights) -> float:
    """Return the midpoint shift that wider or narrower intervals tonight can explain."""
    tonight, before = (level.middle - level.low for level in (nights.level, nights.usual))
    return abs(tonight - before) / (nights.usual.middle if scale.ratio else 1)


def _stated(rule: Rule) -> float | None:
    """Return the change that a rule states to detect; None without one (`Rule.in_unit`)."""
    return None if rule.detect is None or math.isinf(rule.detect) else rule.detect


def _reason(verdict: DriftVerdict, rule: Rule, scale: Scale) -> str:
    samples = f"Tonight's {verdict.n:,} samples"
    expectation = f"what the {verdict.nights} nights before led to expect"
    if verdict.outcome == "departed, unconfirmed":
        assert verdict.effect is not None
        sure = f"{format_share(1 - rule.error)} interval {verdict.lower:.3g} … {verdict.upper:.3g}"
        effect = scale.formatted(verdict.effect)
        return f"{samples} are {effect} {expectation} ({sure}, p = {verdict.p:.2g})."
    if verdict.detectable is None:
        power = "no change would have been found, with nights as far apart"
    else:
        found = scale.formatted(verdict.detectable)
        power = f"{found} would have been found with a probability of {format_share(POWER)}"
    if verdict.sees:
        return f"{samples} agree with {expectation} (p = {verdict.p:.2g}); {power}."
    stated = _stated(rule)
    if stated is None:
        return f"Cannot tell: the rule states no change to detect (p = {verdict.p:.2g}); {power}."
    wanted = scale.formatted(-stated if rule.direction == "down" else stated)
    return (
        f"Cannot tell: nights lie too far apart to find {wanted} {expectation}"
        f" (p = {verdict.p:.2g}); {power}."
    )


def _judge_copies(verdict: DriftVerdict, rule: Rule, *, differs: bool) -> DriftVerdict:
    """Judge against nights that agree to the last digit, whose scatter is unknown.

    They are copies, or the quantity cannot vary much. If nothing changed, tonight is the only
    night that differs with a probability of 1 / (nights + 1).
    """
    before = f"the {verdict.nights} nights before"
    if not differs:
        reason = f"Tonight is as {before}, which agree to the last digit."
        return replace(verdict, outcome="unchanged", reason=reason, p=1.0)
    p = 1 / (verdict.nights + 1)
    if p <= rule.error:
        reason = f"Tonight differs from {before}, which agree to the last digit (p = {p:.2g})."
        return replace(verdict, outcome="departed, unconfirmed", reason=reason, p=p)
    needed = math.ceil(1 / rule.error) - 1 - verdict.nights
    reason = (
        f"Not enough data: tonight differs, but {before} agree to the last digit, which says"
        f" nothing of how much nights differ; {needed} more needed."
    )
    return replace(verdict, reason=reason, p=p, needed=0, needed_nights=needed)
