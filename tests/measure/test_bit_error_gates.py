"""Gates: planned from limit and confidence, stopped when decided, void if nothing counts."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lightrig.harness.measure.gates import (
    Counted,
    count_for,
    count_until_decided,
    count_with_looks,
    judge_counts,
    plan_gate,
)
from lightrig.harness.statistics.sequential import SequentialTest
from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import ErrorCount
from lightrig.testbeds import Limit

SECOND = 1_000_000_000
RATE = 100e9
LIMIT = Limit("bit_error_ratio", "upper", 1.0, 1e-12, "1", 0.95)


@dataclass
class Line:
    """A counter whose bits fail with a ratio of `ratio`; its counts are `wrong` as said."""

    clock: Clock
    ratio: float
    wrong: dict[str, object] = field(default_factory=dict)
    compared: float = 1.0
    name: str = "line"
    bits_per_second: float = RATE
    slack: int = 0
    draws: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))
    burst: int = 1

    def count(self, *, duration: int) -> "Gate":
        return Gate(self, duration)


class Gate:
    def __init__(self, line: Line, duration: int) -> None:
        self.line, self.duration = line, duration
        self.begun = self.last = line.clock.now()
        self.errors = 0

    def now(self) -> ErrorCount:
        now = min(self.line.clock.now(), self.begun + self.duration)
        fresh = (now - self.last) / 1e9 * RATE
        self.last = now
        bursts = self.line.draws.poisson(fresh * self.line.ratio / self.line.burst)
        self.errors += int(bursts) * self.line.burst
        bits = round((now - self.begun) / 1e9 * RATE * self.line.compared)
        at = (Span(self.begun, self.begun), Span(now, now))
        count = ErrorCount(*at, bits, self.errors, sync_lost=False, clock_lost=False)
        return replace(count, **self.line.wrong)  # type: ignore[arg-type]

    def result(self) -> ErrorCount:
        self.line.clock.sleep(self.begun + self.duration - self.line.clock.now())
        return self.now()

    stop = now


# ---------------------------------------------------------------------------------- plans


@given(
    st.floats(1e-15, 1e-3),
    st.floats(0.5, 0.999),
    st.floats(1e9, 1e12),
)
@example(1e-15, 0.6990828221683858, 1e9)  # where the bound was beyond the limit by rounding
def test_a_planned_gate_passes_without_an_error(
    limit: float, confidence: float, rate: float
) -> None:
    plan = plan_gate(limit, confidence, rate)
    bits = math.floor(plan.duration / 1e9 * rate)
    assert bits >= plan.bits
    assert bits < 1.02 * plan.bits + rate / 1e8  # and it is not much longer
    at = Span(0, 0), Span(plan.duration, plan.duration)
    count = ErrorCount(*at, plan.bits, 0, sync_lost=False, clock_lost=False)
    counted = Counted("line", count, 0.0, confidence, limit)
    stated = Limit("bit_error_ratio", "upper", 1.0, limit, "1", confidence)
    assert judge_counts(stated, [counted]).outcome == "pass"
    one = Counted("line", replace(count, errors=1), 0.0, confidence, limit)
    assert judge_counts(stated, [one]).outcome != "pass"


def test_a_gate_plan_states_its_duration_and_claim() -> None:
    words = str(plan_gate(1e-12, 0.95, RATE))
    assert "30.3 s" in words
    assert "3e+12 bits" in words
    assert "the limit 1e-12" in words
    assert "95 % confidence" in words


def test_a_gate_is_no_shorter_than_asked() -> None:
    assert plan_gate(1e-4, 0.95, RATE, 30 * SECOND).duration == 30 * SECOND


# ------------------------------------------------------------------------------- counting


def test_a_gate_bounds_the_ratio_exactly(clock: Clock) -> None:
    counted = count_for(Line(clock, 1e-9), plan_gate(1e-12, 0.95, RATE))
    assert counted.void_reason is None
    assert counted.ratio is not None
    assert counted.ratio.lower < 1e-9 < counted.ratio.upper
    assert judge_counts(LIMIT, [counted]).outcome == "fail"


@pytest.mark.parametrize(
    ("wrong", "compared", "said", "outcome"),
    [
        ({"sync_lost": True}, 1.0, "did not follow the pattern", "fail"),
        ({"clock_lost": True}, 1.0, "no signal", "fail"),
        ({"void": "its counters began anew"}, 1.0, "its counters began anew", "not enough data"),
        ({"bits": 0}, 1.0, "compared 0 of", "fail"),
        ({}, 0.99, "the signal was lost for a while, or its counters began anew", "fail"),
    ],
)
def test_a_void_gate_is_not_zero_errors(
    clock: Clock, wrong: dict[str, object], compared: float, said: str, outcome: str
) -> None:
    counted = count_for(Line(clock, 0.0, wrong, compared), plan_gate(1e-12, 0.95, RATE))
    assert counted.void_reason is not None
    assert said in counted.void_reason
    assert counted.ratio is None
    verdict = judge_counts(LIMIT, [counted])
    assert verdict.outcome == outcome
    assert said in verdict.reason


def test_a_counter_that_cannot_be_believed_passes_nothing_beside_a_good_one(clock: Clock) -> None:
    plan = plan_gate(1e-12, 0.95, RATE)
    good = count_for(Line(clock, 0.0), plan)
    doubted = count_for(Line(clock, 0.0, {"void": "a counter is at its maximum"}), plan)
    assert judge_counts(LIMIT, [good]).outcome == "pass"
    verdict = judge_counts(LIMIT, [good, doubted])
    assert verdict.outcome == "not enough data"
    assert "a counter is at its maximum" in verdict.reason


def test_a_counter_may_be_a_little_behind(clock: Clock) -> None:
    line = Line(clock, 0.0, compared=0.98, slack=SECOND)
    assert count_for(line, plan_gate(1e-12, 0.95, RATE)).void_reason is None


TEST = SequentialTest(1e-13, 1e-12)


def test_a_good_line_is_accepted_as_soon_as_it_can_be(clock: Clock) -> None:
    counted = count_until_decided(Line(clock, 0.0), TEST, clock, 600 * SECOND)
    assert counted.decision == "accept"
    shortest = TEST.bits_to_settle_without_errors()
    assert TEST.bits_without_errors() < shortest <= counted.count.bits < 1.1 * shortest
    assert judge_counts(LIMIT, [counted]).outcome == "pass"
    # The interval beside a pass does not hold the limit.
    assert counted.ratio is not None
    assert counted.ratio.upper <= LIMIT.value


def test_a_declared_burst_takes_more_bits_and_is_named(clock: Clock) -> None:
    declared = SequentialTest(1e-13, 1e-12, burst=4)
    counted = count_until_decided(Line(clock, 0.0), declared, clock, 6000 * SECOND)
    alone = count_until_decided(Line(clock, 0.0), TEST, clock, 600 * SECOND)
    # Twice a burst less one: seven times the variance of independent errors.
    assert counted.count.bits == pytest.approx(7 * alone.count.bits, rel=0.06)
    assert counted.ratio is not None
    assert counted.ratio.upper <= LIMIT.value
    assert "by the sequential test for bursts of 4" in judge_counts(LIMIT, [counted]).reason
    assert "for independent errors" in judge_counts(LIMIT, [alone]).reason


def test_a_bad_line_is_rejected_long_before_its_time(clock: Clock) -> None:
    counted = count_until_decided(Line(clock, 1e-10), TEST, clock, 600 * SECOND)
    assert counted.decision == "reject"
    assert counted.count.bits < 0.2 * plan_gate(1e-12, 0.95, RATE).bits
    assert counted.ratio is not None
    assert counted.ratio.lower < 1e-10 < counted.ratio.upper
    assert judge_counts(LIMIT, [counted]).outcome == "fail"


def test_a_line_that_cannot_be_decided_ends_in_time(clock: Clock) -> None:
    before = clock.now()
    counted = count_until_decided(Line(clock, 4e-13), TEST, clock, 40 * SECOND)
    assert clock.now() - before < 45 * SECOND
    assert counted.decision == "go on"
    assert judge_counts(LIMIT, [counted]).outcome == "not enough data"


def test_a_line_that_loses_its_pattern_is_not_waited_for(clock: Clock) -> None:
    before = clock.now()
    line = Line(clock, 0.0, {"sync_lost": True})
    counted = count_until_decided(line, TEST, clock, 600 * SECOND)
    assert clock.now() - before < 10 * SECOND
    assert counted.void_reason is not None
    assert judge_counts(LIMIT, [counted]).outcome == "fail"


def test_a_gate_whose_pattern_is_lost_at_its_end_is_not_decided(clock: Clock) -> None:
    """Readings before tell too little; the last one has enough bits, and is void."""

    class Late(Gate):
        def now(self) -> ErrorCount:
            return replace(super().now(), bits=1_000)

        def stop(self) -> ErrorCount:
            return replace(super().now(), bits=10**15, sync_lost=True)

    class LateLine(Line):
        def count(self, *, duration: int) -> Gate:
            return Late(self, duration)

    counted = count_until_decided(LateLine(clock, 0.0), TEST, clock, 40 * SECOND)
    assert (counted.decision, counted.count.bits) == ("go on", 10**15)
    assert counted.void_reason is not None


# ------------------------------------------------------------------------------- verdicts


def counted_as(errors: int, bits: int = 3 * 10**13, counter: str = "line") -> Counted:
    count = ErrorCount(Span(0, 0), Span(1, 1), bits, errors, sync_lost=False, clock_lost=False)
    return Counted(counter, count, 0.0, 0.95, 1e-12)


def test_the_worst_gate_speaks_for_all() -> None:
    verdict = judge_counts(LIMIT, [counted_as(0), counted_as(60), counted_as(1)])
    assert verdict.outcome == "fail"
    assert verdict.reason.startswith("Of 3 gates the worst: line: 60 errors")
    assert (verdict.n, verdict.exceeding) == (3, 1)


def test_of_gates_that_all_pass_the_one_with_most_errors_is_named() -> None:
    """By Poisson, 7 errors in 3e13 bits are at most 13.15 / 3e13, or 4.4e-13."""
    one_counter = judge_counts(LIMIT, [counted_as(0), counted_as(7), counted_as(3)])
    assert one_counter.reason.startswith("Of 3 gates the worst: line: 7 errors"), one_counter
    several = [counted_as(0, counter="a"), counted_as(4, counter="b"), counted_as(2, counter="c")]
    assert judge_counts(LIMIT, several).reason.startswith("Of 3 gates the worst: b: 4 errors")
    decided = [replace(each, decision="accept") for each in several]
    assert judge_counts(LIMIT, decided).reason.startswith("Of 3 gates the worst: b: 4 errors")


def test_an_undecided_gate_states_the_further_bits() -> None:
    verdict = judge_counts(LIMIT, [counted_as(0), counted_as(30)])
    assert verdict.outcome == "not enough data"
    assert verdict.needed is not None
    assert verdict.needed > 10**12


def test_a_warning_makes_a_pass_marginal() -> None:
    warned = replace(LIMIT, warn=2e-13)
    assert judge_counts(warned, [counted_as(5)]).outcome == "marginal"
    assert judge_counts(warned, [counted_as(0)]).outcome == "pass"


# --------------------------------------------------------------------------------- bursts


def test_a_gate_that_is_read_while_open_shows_its_bursts(clock: Clock) -> None:
    plan = plan_gate(1e-12, 0.95, RATE)
    counted = count_with_looks(Line(clock, 8e-12, burst=7), plan, clock, burst=7)
    seen = counted.errors
    assert counted.void_reason is None
    assert counted.count.bits == pytest.approx(plan.duration / 1e9 * RATE)
    assert seen.errors == counted.count.errors
    assert seen.errors % 7 == 0
    assert 1 <= seen.events <= seen.errors // 7 <= 24
    assert seen.largest >= 7
    assert counted.burst == 7
    # The same light, counted as one look: it shows one addition of all.
    assert counted_as(14).errors.squares == 14**2


def test_counters_that_fell_show_no_bursts(clock: Clock) -> None:
    line, counts = Line(clock, 0.0), iter([5, 9, 2, *range(2, 30)])

    class Falling(Gate):
        def now(self) -> ErrorCount:
            return replace(super().now(), errors=next(counts))

    line.count = lambda *, duration: Falling(line, duration)  # type: ignore[method-assign]
    assert count_with_looks(line, plan_gate(1e-12, 0.95, RATE), clock).looks == ()


def test_a_declared_burst_lengthens_the_gate() -> None:
    short, long = plan_gate(1e-12, 0.95, RATE), plan_gate(1e-12, 0.95, RATE, burst=3.5)
    assert long.duration / short.duration == pytest.approx(3.5, rel=1e-6)
    assert long.limit == short.limit


def test_the_gates_of_one_counter_are_judged_together() -> None:
    """Twelve errors in one gate of three: each keeps the limit, and they differ."""
    alike = [counted_as(k, 10**13) for k in (2, 1, 2)]
    apart = [counted_as(k, 10**13) for k in (0, 12, 0)]
    limit = replace(LIMIT, value=3e-12)
    assert judge_counts(limit, alike).outcome == "pass"
    assert judge_counts(limit, apart).outcome == "not enough data"
    others = [replace(one, counter=f"line{number}") for number, one in enumerate(apart)]
    assert judge_counts(limit, others).outcome == "pass"


def test_no_gate_is_not_enough_data() -> None:
    assert judge_counts(LIMIT, []).outcome == "not enough data"
