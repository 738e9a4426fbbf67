"""Two runs side by side, and what the nights before say of the later one.

Two medians say nothing of drift: nights differ though nothing has changed. So the medians are
shown, and the verdict is that of the nights page on the night of the later run: of the same
series, by the same rules. What was simulated is compared with nothing but the same.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, TypeAlias

from lightrig.harness.quantities.registry import current_name
from lightrig.harness.record import QuestionError, Results
from lightrig.harness.report.estimates import CONFIDENCE
from lightrig.harness.report.nights import NIGHTS
from lightrig.harness.report.nights.last_night_departures import (
    JudgedSeries,
    LastNightJudge,
    Word,
    change_of,
)
from lightrig.harness.report.nights.series import MEDIAN_NEEDS, Lab, NightSeries, read
from lightrig.harness.report.nights.source import Source
from lightrig.harness.report.nights.stored_rules import stored_rules
from lightrig.harness.statistics.departures import CONFIDENCE as OF_CHANGE
from lightrig.harness.statistics.departures import FEWEST_BEFORE, POWER, Departure, Reach
from lightrig.harness.statistics.quantiles import NotEnough, Quantile
from lightrig.testbeds import format_share
from lightrig.testbeds.intervals import interval
from lightrig.testbeds.plans import without_first_port

Outcome: TypeAlias = Word | Literal["unchanged", "cannot tell", "not enough data"]


@dataclass(frozen=True, slots=True)
class Drift:
    """What the nights before say of a series on the night of the later run.

    Attributes:
        outcome: "unchanged" only where a change as large as the rule's would have been found.
        reason: one sentence for people.
        n: samples of the night. nights: nights before that were looked at.
        level: of the night. before: what the nights before led to expect.
        effect: by what factor, or how much (a difference), the level is above that. lower, upper:
            its interval at 95 %.
        p: the probability of such a night, or of such nights in a row, where nothing changed.
        detectable: the change, expressed as `effect`, that would have departed with a probability
            of 80 %; None where none would. sees: whether that is at most the rule's change.
        needed_nights: how many more nights before a verdict takes.
        run: nights in a row, this the last of them, that depart.
        ratio: whether `effect` and `detectable` are factors, else differences.
    """

    outcome: Outcome
    reason: str
    n: int
    nights: int
    level: float | None = None
    before: float | None = None
    effect: float | None = None
    lower: float | None = None
    upper: float | None = None
    p: float | None = None
    detectable: float | None = None
    sees: bool | None = None
    needed_nights: int | None = None
    run: int = 1
    ratio: bool = True


class Case(NamedTuple):
    """A series of the nights page that two runs have.

    name: the test and what it set, for people. conditions: those that are set, not counted or
    measured, as JSON. simulated: whether anything simulated took part.
    """

    testbed: str
    test: str
    quantity: str
    subject: str
    name: str
    statistic: str
    unit: str
    conditions: str
    simulated: bool

    @property
    def family(self) -> tuple[str, bool, str, str, str]:
        """Key that is equal for series that are compared with each other."""
        return self.testbed, self.simulated, self.quantity, self.test, self.name


@dataclass(frozen=True, slots=True)
class Comparison:
    """A case in two runs: its medians, and whether the later one has drifted.

    before, after: medians with their 95 % intervals, one sample an event; of a statistic other
    than the median, its values.
    """

    case: Case
    before: Quantile | NotEnough
    after: Quantile | NotEnough
    drift: Drift


def compare(results: Results, before: str, after: str, quantity: str = "*") -> list[Comparison]:
    """Compare all series that two runs have in common, by the rules that the later one kept.

    `quantity` is a name or a pattern; it chooses what is returned, and the error is shared among
    all series of the night, as on its page. Quantities without a rule are not compared. Raises
    `QuestionError` if there is no such run, or nothing in common, and `TestbedError` for rules
    that cannot be read.
    """
    first, second = results.find(before), results.find(after)
    was, has = (_medians(results, one.run) for one in (first, second))
    # Of a port whose NIC has got a second one since, or lost it, the later name is shown.
    later = {_of_port(case): case for case in has if case not in was}
    was = {case if case in has else later.get(_of_port(case), case): was[case] for case in was}
    testbeds = {case.testbed for case in was.keys() & has.keys()}
    source = Source(
        results.place, NIGHTS, until=second.night, through=second.run, testbeds=testbeds
    )
    history = read(source)
    pattern = current_name(quantity)
    found: list[Comparison] = []
    for testbed in sorted(testbeds):
        labs = [lab for lab in history.labs if lab.testbed == testbed] if history else []
        judge = LastNightJudge(labs, stored_rules(results, second, testbed), source.sharing)
        for lab in labs:
            for judged in judge.judged(lab):
                case = _case(lab, judged.series)
                if fnmatchcase(case.quantity, pattern) and case in was and case in has:
                    found.append(Comparison(case, was[case], has[case], _drift(judged)))
    if not found:
        raise QuestionError(
            f"{first.run} and {second.run} have nothing in common: no test measured the same on "
            "the same testbed, both simulated or both not"
        )
    return found


def _medians(results: Results, run: str) -> Mapping[Case, Quantile | NotEnough]:
    """Return the median of each series of one run."""
    history = read(Source(results.place, run=run))
    labs = history.labs if history else ()
    return {_case(lab, one): _median(one) for lab in labs for one in lab.series}


def _case(lab: Lab, one: NightSeries) -> Case:
    conditions = json.dumps(dict(one.conditions), sort_keys=True)
    shown = one.test, one.quantity, one.subject, one.case, one.statistic, one.unit
    return Case(lab.testbed, *shown, conditions, lab.simulated)


def _of_port(case: Case) -> Case:
    return case._replace(subject=without_first_port(case.subject))


def _median(series: NightSeries) -> Quantile | NotEnough:
    last = series.last
    n = int(series.n[last])
    if n < MEDIAN_NEEDS and series.statistic == "median":
        return NotEnough(n, MEDIAN_NEEDS)
    value, lower, upper = (float(of[last]) for of in (series.median, series.lower, series.upper))
    return Quantile(0.5, value, lower, upper, CONFIDENCE, n)


# ----------------------------------------------------------------------------------- verdicts


def _drift(judged: JudgedSeries) -> Drift:
    """Return what is said of a series, with what it rests on."""
    reach, found = judged.reach, judged.found
    if reach is None:
        if found is None:
            return _not_enough(judged)
        level, nights = found.departure.level, judged.nights
        return Drift(found.word, found.guard, judged.n, nights, level)
    drift = _sized(judged, reach, found.departure if found and found.departure.p < 1 else reach)
    if found is not None:
        drift = replace(drift, outcome=found.word, run=found.departure.run)
        return replace(drift, reason=found.guard or _departed(drift))
    if not reach.copies:
        return replace(drift, reason=_not_departed(drift, judged))
    before = f"the {reach.nights} nights before"
    if not reach.differs:
        reason = f"Tonight is as {before}, which agree to the last digit."
        return replace(drift, outcome="unchanged", reason=reason, p=1.0)
    needed = math.ceil(1 / judged.error) - 1 - reach.nights
    reason = (
        f"Not enough data: tonight differs, but {before} agree to the last digit, which says"
        f" nothing of how much nights differ; {needed:,} more needed."
    )
    return replace(drift, outcome="not enough data", reason=reason, needed_nights=needed)


def _sized(judged: JudgedSeries, reach: Reach, change: Departure | Reach) -> Drift:
    """Return the size of a change, and of that which would have been found."""
    unit, before = judged.series.unit, change.before
    rule = judged.rule.in_unit(unit)
    ratio = rule.effect == "ratio" and min(before, change.level) > 0

    def effect(level: float, usual: float = before) -> float:
        return level / usual if ratio else level - usual

    least = reach.below if rule.direction == "down" else reach.above
    size = None if least is None else change_of(rule, unit, reach.before, least)
    assert rule.detect is not None
    sees = size is not None and size <= rule.detect
    return Drift(
        "unchanged" if sees else "cannot tell",
        "",
        judged.n,
        change.nights,
        change.level,
        before,
        *(effect(change.level), effect(change.lower), effect(change.upper), change.p),
        None if least is None else effect(least, reach.before),
        sees,
        ratio=ratio,
    )


def _not_enough(judged: JudgedSeries) -> Drift:
    samples = max(judged.rule.minimum - judged.n, 0)
    nights = max(FEWEST_BEFORE - judged.nights, 0)
    parts = [f"{judged.n:,} samples tonight, {samples:,} more needed"] if samples else []
    if nights:
        parts.append(f"{judged.nights} nights before that count, {nights} more needed")
    why = "; ".join(parts) or "the median of the night has no bounds"
    return Drift(
        "not enough data", f"Not enough data: {why}.", judged.n, judged.nights, needed_nights=nights
    )


def _departed(drift: Drift) -> str:
    assert drift.effect is not None
    expected = f"what the {drift.nights} nights before led to expect"
    assert drift.lower is not None
    assert drift.upper is not None
    written = interval(drift.lower, drift.upper, "", drift.effect)
    change = f"{written.value} times"
    if not drift.ratio:
        change = f"{written.value.removeprefix('-')} {'above' if drift.effect >= 0 else 'below'}"
    sure = f"{format_share(OF_CHANGE)} interval {written.ends}"
    reason = f"{_samples(drift)} are {change} {expected} ({sure}"
    if drift.run == 1:
        return f"{reason}, p = {drift.p:.2g})."
    end = "." if drift.outcome == "changed" else "; a third in a row would confirm it."
    nights = f"Each of the last {drift.run} nights departs to this side (p = {drift.p:.2g} of all)"
    return f"{reason}). {nights}{end}"


def _not_departed(drift: Drift, judged: JudgedSeries) -> str:
    expected = f"what the {drift.nights} nights before led to expect"
    power = "no change would have been found, with nights as far apart"
    if drift.detectable is not None:
        least = _formatted(drift.detectable, drift)
        power = f"{least} would have been found with a probability of {format_share(POWER)}"
    if drift.sees:
        return f"{_samples(drift)} agree with {expected} (p = {drift.p:.2g}); {power}."
    wanted = judged.rule.in_unit(judged.series.unit).detect
    if wanted is None or math.isinf(wanted):
        return f"Cannot tell: the rule states no change to detect (p = {drift.p:.2g}); {power}."
    return (
        f"Cannot tell: nights lie too far apart to find a change by {wanted:.3g} from {expected}"
        f" (p = {drift.p:.2g}); {power}."
    )


def _samples(drift: Drift) -> str:
    return f"Tonight's {drift.n:,} samples"


def _formatted(change: float, drift: Drift) -> str:
    """Format a change so that "what was expected" may follow."""
    if drift.ratio:
        return f"{change:.3g} times"
    return f"{abs(change):.3g} {'above' if change >= 0 else 'below'}"
