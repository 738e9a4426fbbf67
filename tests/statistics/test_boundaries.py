"""Values that lie exactly on a boundary, and the first ones beyond it; numbers by hand."""

import math

import numpy as np
import pytest

from lightrig.harness.statistics.binomial import at_least, at_most
from lightrig.harness.statistics.bursts import GateErrors, dispersion, pooled
from lightrig.harness.statistics.confirmation import p_of_run
from lightrig.harness.statistics.independence import runs_p, serial_p
from lightrig.harness.statistics.quantiles import quantile, samples_needed
from lightrig.harness.statistics.sample_plans import Look
from lightrig.harness.statistics.samples import (
    SampleError,
    as_intervals,
    as_samples,
    check_confidence,
    check_share,
)
from lightrig.harness.statistics.uncertainty import (
    Margin,
    en_number,
    margin,
    readings_needed,
)
from lightrig.harness.statistics.uncertainty import pooled as pooled_deviation
from lightrig.harness.statistics.unlike_ports import by_event_and_port, unlike_ports
from lightrig.harness.statistics.verdicts import judge_maximum, judge_plan, judge_quantile


def test_tails_of_three_draws():
    """Of three draws at 1/4: none 27/64, one 27/64, two 9/64, three 1/64."""
    assert [64 * at_most(k, 3, 0.25) for k in range(-1, 5)] == pytest.approx(
        [0, 27, 54, 63, 64, 64]
    )
    assert [64 * at_least(k, 3, 0.25) for k in range(-1, 5)] == pytest.approx(
        [64, 64, 37, 10, 1, 0]
    )


@pytest.mark.parametrize(("side", "sign"), [("upper", 1), ("lower", -1)])
def test_a_sample_on_the_limit_keeps_it(side, sign):
    def verdict(*ends, decision="guarded"):
        low, high = zip(*(sorted((sign * a, sign * b)) for a, b in ends), strict=True)
        found = judge_maximum(low, high, sign * 10, side, decision)
        return found.outcome, found.exceeding, found.possibly_exceeding

    assert verdict((8, 10), (9, 10)) == ("pass", 0, 0)
    assert verdict((8, 9), (10, 11)) == ("not enough data", 0, 1)
    assert verdict((8, 9), (10.5, 11), (9, 12)) == ("fail", 1, 2)
    # By the middle: 10 keeps the limit, 10.5 does not.
    assert verdict((9, 11), decision="simple") == ("pass", 0, 0)
    assert verdict((9, 12), (9, 11), decision="simple") == ("fail", 1, 1)
    # In doubt it is kept.
    assert verdict((9, 12), decision="lenient") == ("pass", 0, 0)
    assert verdict((9, 12), (10.5, 11), decision="lenient") == ("fail", 1, 1)


def test_an_event_without_an_end_is_beyond_an_upper_limit():
    assert judge_maximum([1], [math.inf], 10, "upper", "simple").outcome == "fail"
    assert judge_maximum([1], [math.inf], 10).outcome == "not enough data"
    nothing = judge_maximum([], [], 10)
    assert (nothing.outcome, nothing.needed) == ("not enough data", 1)
    assert judge_maximum([1], [2], 10).needed is None


def test_how_many_samples_of_a_median_decide():
    """Five of five pass at 95 %: 1/32; four of four do not: 1/16. Five of five beyond fail."""
    assert judge_quantile([1] * 5, [1] * 5, 2, 0.5).outcome == "pass"
    four = judge_quantile([1] * 4, [1] * 4, 2, 0.5)
    assert (four.outcome, four.needed) == ("not enough data", 1)
    assert judge_quantile([3] * 5, [3] * 5, 2, 0.5).outcome == "fail"
    assert judge_quantile([3] * 4, [3] * 4, 2, 0.5).outcome == "not enough data"
    # Eight, one beyond: 1/256 + 8/256 is below 5 %; of seven 1/128 + 7/128 is not.
    assert judge_quantile([3] + [1] * 7, [3] + [1] * 7, 2, 0.5).outcome == "pass"
    seven = judge_quantile([3] + [1] * 6, [3] + [1] * 6, 2, 0.5)
    assert (seven.outcome, seven.needed) == ("not enough data", 1)
    # Twice as many of which every other counts are no more.
    halved = judge_quantile([1] * 8, [1] * 8, 2, 0.5, effective=4)
    assert (halved.outcome, halved.needed) == ("not enough data", 2)
    assert "8 samples" in halved.reason
    assert "count as 4 independent ones" in halved.reason


def test_looks_of_a_plan_decide_at_their_numbers():
    plan = (Look(3, 0, 2), Look(5, 1, 2))

    def verdict(*values):
        found = judge_plan(values, values, 10, 0.5, plan)
        return found.outcome, found.n, found.needed

    assert verdict(1, 1) == ("not enough data", 2, 1)
    assert verdict(1, 1, 1, 99, 99) == ("pass", 3, None)
    assert verdict(11, 11) == ("fail", 2, None)
    assert verdict(11, 1, 1) == ("not enough data", 3, 2)
    assert verdict(11, 1, 1, 1) == ("not enough data", 4, 1)
    assert verdict(11, 1, 1, 1, 10) == ("pass", 5, None)
    assert verdict(11, 1, 1, 1, 11) == ("fail", 5, None)
    assert verdict(1, 1, 10) == ("pass", 3, None)


def test_the_third_night_in_a_row_confirms():
    assert p_of_run([0.001, 0.008]) == 0.008
    assert p_of_run([0.008, 0.001, 0.002]) == pytest.approx(0.0016)  # 0.2 ** 3 to the 4/3


def test_ten_samples_have_a_probability_of_following_each_other():
    assert serial_p(range(9)) == 1
    assert serial_p(range(10)) < 0.001
    assert serial_p([7] * 12) == 1
    assert runs_p([1] * 4 + [2] * 9) == 1
    # Ten values, two runs: mean 6, variance 5 * 4 / 9.
    assert runs_p(list(range(10))) == pytest.approx(
        0.5 * math.erfc((6 - 2.5) / math.sqrt(2 * 20 / 9))
    )
    # A value at the median counts for neither side.
    assert runs_p([*range(5), 5, *range(6, 11)]) == runs_p(list(range(10)))


def test_looks_at_a_gate_and_gates_as_one():
    gate = GateErrors.of_looks(1000, [0, 2, 2, 5, 5, 6])
    assert gate == GateErrors(6, 1000, events=3, squares=4 + 9 + 1, largest=3)
    with pytest.raises(SampleError, match="never fall"):
        GateErrors.of_looks(1000, [3, 2])
    both = pooled([gate, GateErrors(9, 500, 2, 41, 5), GateErrors(0, 7, 0, 0, 0)])
    assert both == GateErrors(15, 1507, 5, 55, 5)
    assert dispersion([gate]) == 1
    assert dispersion([GateErrors(1, 10, 1, 1, 1), GateErrors(0, 10, 0, 0, 0)]) == 1
    # Two errors in one of two like gates: one of two ways, which is any way but one each.
    two = dispersion([GateErrors(2, 10, 2, 2, 1), GateErrors(0, 10, 0, 0, 0)])
    assert two == pytest.approx(0.5, abs=0.02)


def test_samples_at_the_ends_of_what_is_allowed():
    assert as_intervals([3, 4], [3, math.inf])[1].tolist() == [3, math.inf]
    with pytest.raises(SampleError, match="index 1: earliest 5 is after latest 4"):
        as_intervals([1, 5], [2, 4])
    with pytest.raises(SampleError, match="infinity at index 2"):
        as_intervals([1, 5, math.inf], [2, 6, math.inf])
    with pytest.raises(SampleError, match="2 earliest and 3 latest"):
        as_intervals([1, 5], [2, 6, 7])
    with pytest.raises(SampleError, match="NaN at index 1"):
        as_samples("x", [1, math.nan, 2])
    assert as_samples("x", []).size == 0
    check_confidence(0.5)
    for wrong in (0.49, 1):
        with pytest.raises(SampleError, match=r"expected 0\.5 to below 1"):
            check_confidence(wrong)
    for wrong in (0, 1, -0.1, 1e-17):
        with pytest.raises(SampleError, match="between 0 and 1"):
            check_share("q", wrong)


def test_order_statistics_of_few_samples():
    """Of six samples the ends bound the median: 2 / 64 is below 5 %; of five, 2 / 32 is not."""
    assert samples_needed(0.5) == 6
    assert samples_needed(0.5, sides="upper") == 5
    assert samples_needed(0.5, 0.9375) == 5  # 2 / 32, exactly
    assert samples_needed(0.1) == samples_needed(0.9)
    low, high = [60, 10, 50, 20, 40, 30], [61, 12, 53, 24, 45, 36]
    found = quantile(low, high, 0.5)
    assert (found.value, found.lower, found.upper) == ((30 + 40 + 36 + 45) / 4, 10, 61)
    assert quantile(low, high, 0.5, sides="upper").lower is None
    assert quantile(low, high, 0.5, points=[1, 2, 3, 4, 5, 6]).value == 3.5
    assert (quantile(low[:5], high[:5], 0.5).needed, quantile(low[:5], high[:5], 0.5).n) == (6, 5)
    # 100 * 0.29 is 28.999999999999996 and means 29.
    hundred = list(range(1, 101))
    assert quantile(hundred, hundred, 0.29).value == 29.5
    assert quantile(hundred, hundred, 0.295).value == 30


def test_uncertainties_by_hand():
    assert en_number(-5, 3, 4) == 1
    with pytest.raises(SampleError, match="no uncertainty"):
        en_number(1, 0, 0)
    # 1, 3 about 2 and 4, 5, 9 about 6: 2 + 14 in 1 + 2 degrees; a lone sample counts for none.
    found = pooled_deviation([[1, 3], [4, 5, 9], [100]], "x")
    assert (found.standard, found.degrees) == (pytest.approx(math.sqrt(16 / 3)), 3)
    with pytest.raises(SampleError, match="no two samples"):
        pooled_deviation([[1], [2]], "x")
    assert [readings_needed(3, x) for x in (1, 0.99, 3, 9, 0.01)] == [9, 10, 2, 2, 1000]
    with pytest.raises(SampleError, match="more than zero"):
        readings_needed(1, 0)
    assert [Margin(v, 2, 0.95).closes for v in (2, 1.9, -2, -2.1)] == [True, None, None, False]
    found = margin((3, 0.3), [(1.5, 0.4), (2.25, 1.2)], (-10, 0))
    assert found.value == 3 - 1.5 - 2.25 + 10
    assert found.expanded == pytest.approx(1.959964 * 1.3, rel=1e-5)


def test_a_port_is_compared_with_two_ports_at_least():
    events = [1, 1, 1, 2, 2, 2]
    ports, (table,) = by_event_and_port(
        events, ["b", "a", "c", "a", "b", "c"], [10, 20, 30, 4, 5, 6]
    )
    assert ports == ["a", "b", "c"]
    assert table.tolist() == [[20, 10, 30], [4, 5, 6]]
    draws = 100.0 + np.arange(20)[:, None] % 3 + np.zeros((20, 3))
    draws[:, 1] += 10
    (one,) = unlike_ports(draws, draws, least=0.09)
    assert (one.port, one.excess, one.usual, one.n) == (1, 10, 101, 20)
    # 10 of 101 is less than 0.1; exactly 10 of 100 is not.
    assert unlike_ports(draws, draws) == []
    level = np.where(np.arange(3) == 1, 110.0, 100.0) + np.zeros((20, 1))
    assert [one.port for one in unlike_ports(level, level)] == [1]
    draws[:, 2] = np.nan
    assert unlike_ports(draws, draws, least=0.01) == []
    with pytest.raises(SampleError, match="one each"):
        unlike_ports(level, level[:, :2])
