"""The first table of a run's page: for each testbed and quantity the answer, and its verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightrig.harness.quantities.registry import quantity_of
from lightrig.harness.report.answer_intervals import draw
from lightrig.harness.report.estimates import CONFIDENCE, Estimate
from lightrig.harness.report.markup import (
    SIGNS,
    bounded_value,
    extreme_value,
    median_value,
    outcome_counts,
    plain_outcome,
)
from lightrig.harness.report.templates import render_macro
from lightrig.harness.report.units import Value
from lightrig.harness.statistics.quantiles import NotEnough, quantile
from lightrig.testbeds import Limit

_MEDIAN = 0.5
_MEASURED = frozenset(
    (
        *("insertion_loss", "path_loss", "bit_error_ratio", "nic_error_ratio.before_fec"),
        *("nic_error_ratio.after_fec", "nic_error_ratio.symbols_after_fec"),
        *("nic_error_ratio.pattern", "rdma.latency", "rdma.bandwidth", "rdma.recovered"),
    )
)
"""Quantities that have an answer without a limit too, beside the headlines of the terminal."""
_WORST_FIRST = ("fail", "marginal", "pass", "not enough data")
"""Order of verdicts on one quantity: a test that took a few samples on its way decides nothing
where others decide."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The estimates of one quantity on one testbed.

    Attributes:
        testbed: its name.
        anchor: the id of the testbed's part of the page.
        quantity: its name.
        limit: of the testbed on this quantity, if any.
        estimates: one for each test that recorded it; none where only a limit exists.
    """

    testbed: str
    anchor: str
    quantity: str
    limit: Limit | None
    estimates: Sequence[Estimate]

    @property
    def worst(self) -> Estimate | None:
        """The estimate of the worst verdict and, among equal verdicts, of the worst median."""
        return min(self.estimates, key=self._order, default=None)

    @property
    def outcomes(self) -> Mapping[str, str]:
        """Worst verdict on the samples of each test, also of tests that do not judge the limit."""
        found: dict[str, list[str]] = {}
        for one in self.estimates:
            if one.verdict is not None:
                found.setdefault(one.test.name, []).append(one.verdict.shown)
        return {
            test: min(outcomes, key=lambda shown: _place(plain_outcome(shown), _WORST_FIRST))
            for test, outcomes in found.items()
        }

    @property
    def verdicts(self) -> Mapping[str, int]:
        """The number of tests by outcome, the worst outcome first."""
        return outcome_counts(self.outcomes.values())

    @property
    def shown(self) -> Sequence[Value | NotEnough]:
        """Value of the worst test and, where it has too few samples for its limit, their number."""
        one = self.worst
        return () if one is None else tuple(_with_beside(each, one) for each in self._shown(one))

    def _shown(self, one: Estimate) -> Sequence[Value | NotEnough]:
        if one.answer is not None:
            return (one.answer,)
        asked = _asked(one)
        if isinstance(asked, Value):
            return (asked,)
        median = median_value(one.median, one.test.simulated, one.unit)
        if isinstance(median, NotEnough):
            return (asked or median,)
        return (median,) if asked is None else (median, asked)

    @property
    def drawing(self) -> Markup:
        """The worst test's interval against the limit."""
        return draw(self.worst) if self.worst else Markup()

    @property
    def tests(self) -> int:
        """The number of tests with an estimate."""
        return len({each.test.name for each in self.estimates})

    @property
    def rank(self) -> int:
        """Place on the page: failures first, then what is undecided, passes, what has no limit."""
        worst = self.worst
        if self.limit is not None and (worst is None or worst.verdict is None):
            return _place("not enough data", SIGNS)
        return _place(worst.verdict.outcome if worst and worst.verdict else None, SIGNS)

    def _order(self, one: Estimate) -> tuple[int, float]:
        verdict = _place(one.verdict.outcome if one.verdict else None, _WORST_FIRST)
        if isinstance(one.median, NotEnough):
            return verdict, math.inf
        better = quantity_of(one.quantity, one.unit).better
        higher = self.limit.side == "lower" if self.limit else better == "higher"
        return verdict, one.median.value if higher else -one.median.value


def answers(
    testbed: str, anchor: str, estimates: Iterable[Estimate], limits: Mapping[str, Limit]
) -> Iterator[Answer]:
    """Yield an answer for each limit of a testbed, and for each other quantity that `is_answer`."""
    found: dict[str, list[Estimate]] = {}
    for one in estimates:
        found.setdefault(one.quantity, []).append(one)
    for quantity, limit in limits.items():
        yield Answer(testbed, anchor, quantity, limit, found.pop(quantity, ()))
    for quantity, each in found.items():
        if is_answer(quantity, each[0].unit):
            yield Answer(testbed, anchor, quantity, None, each)


def is_answer(quantity: str, unit: str) -> bool:
    """Whether a quantity has an answer without a limit too."""
    declared = quantity_of(quantity, unit)
    headline = declared.terminal == "headline" and declared.better is not None
    return headline or quantity in _MEASURED


def render_answers(found: Iterable[Answer]) -> Markup:
    """Return the table of all answers, the worst verdicts first; nothing without answers."""
    ordered = sorted(found, key=lambda answer: answer.rank)
    if not ordered:
        return Markup()
    simulated = any(each.test.simulated for one in ordered for each in one.estimates)
    return render_macro("answers", "answers", ordered, simulated)


def _place(outcome: str | None, order: Iterable[str]) -> int:
    """Return the place of an outcome in `order`: an unknown one is first, None is last."""
    places = [*order]
    if outcome is None:
        return len(places)
    return places.index(outcome) if outcome in places else -1


def _with_beside(found: Value | NotEnough, one: Estimate) -> Value | NotEnough:
    """Add what rows state beside a value: the wavelength and the temperature of a loss."""
    if isinstance(found, NotEnough):
        return found
    return Value(found.text, (*found.context, *one.test.series[one.quantity].beside.values()))


def _asked(one: Estimate) -> Value | NotEnough | None:
    """Return the statistic that the limit is on, where it is a high quantile or an extreme."""
    limit = one.limit
    if limit is None:
        return None
    if limit.side == "upper" and _MEDIAN < limit.quantile < 1:
        low, high, value = one.test.valued_samples(one.quantity, limit.side)
        found = quantile(low, high, limit.quantile, CONFIDENCE, "upper", value)
        return bounded_value(found, one.test.simulated, one.unit)
    if limit.quantile in {0.0, 1.0} and limit.confidence is None:
        return extreme_value(one)
    return None
