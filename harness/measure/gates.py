"""Gates that count bit errors: planned, counted and judged; one without valid bits fails."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from lightrig.harness.findings import VOID_COUNT, FoundError, each_at
from lightrig.harness.statistics.bit_errors import (
    ErrorRatio,
    anytime_interval,
    bits_needed,
    error_ratio,
)
from lightrig.harness.statistics.bursts import GateErrors, judge_gates
from lightrig.harness.statistics.limits import judge
from lightrig.harness.statistics.sequential import Decision, SequentialTest
from lightrig.harness.statistics.verdicts import Outcome, Verdict
from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import ErrorCount, ErrorCounter
from lightrig.testbeds import Limit, format_duration

_SPARE = 1.01
"""A tester may close its gate a little early."""

_RATE_ERROR = 2e-4
"""By how much a line may be slower than its nominal rate: two clocks of 100 ppm."""

_LOOKS = 24
"""Number of looks at a running gate per shortest deciding duration, or its fixed one."""

_GATE_TIME = "A gate states its own time only."
"""A link that is bad for a part of the time is good in most gates."""

_NOTHING = "counted nothing that bounds a ratio"
_RANK: tuple[Outcome, ...] = ("pass", "marginal", "not enough data", "fail")


class NothingCountedError(FoundError):
    """A gate bounds no ratio: the pattern or the signal was lost, or counters began anew."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        """`reasons`: why, by counter."""
        each = (f"{counter} {_NOTHING}: {reason}" for counter, reason in reasons.items())
        super().__init__("; ".join(each), each_at(VOID_COUNT, reasons))


@dataclass(frozen=True, slots=True)
class GatePlan:
    """Gate duration that a verdict needs.

    limit, confidence: the claim to show. bits: number of error-free bits that show it.
    duration: their duration, in ns.
    """

    limit: float
    confidence: float
    bits: int
    duration: int

    def __str__(self) -> str:
        return (
            f"gate of {format_duration(self.duration)}; to keep the limit {self.limit:g} at "
            f"{100 * self.confidence:g} % confidence, at least {self.bits:.3g} bits must be read "
            "without an error"
        )


def plan_gate(
    limit: float,
    confidence: float,
    bits_per_second: float,
    least: int = 0,
    burst: float | None = None,
) -> GatePlan:
    """The shortest gate of `least` ns or more after which a channel without errors passes.

    burst: declared mean number of errors in a burst, which takes so many times the bits.
    """
    bits = bits_needed(limit / (burst or 1.0), confidence)
    return GatePlan(limit, confidence, bits, max(gate_for(bits, bits_per_second), least))


def gate_for(bits: float, bits_per_second: float) -> int:
    """Return the duration of `bits`, in ns, with a small reserve."""
    return math.ceil(bits / bits_per_second * 1e9 * _SPARE)


@dataclass(frozen=True, slots=True)
class Counted:
    """Count of one gate.

    counter: name of the counter. expected: fewest bits within the gate. decision: of the
    sequential test that stopped it, None for a gate of fixed length. scale: the limit.
    looks: errors at each look while it was open. burst: declared mean number of errors in a burst.
    pattern: that was compared; empty where FEC counted errors of any traffic.
    dispersion: the variance of the number of errors, over that of independent ones, by which a
    sequential test decided.
    """

    counter: str
    count: ErrorCount
    expected: float
    confidence: float
    scale: float
    decision: Decision | None = None
    looks: tuple[int, ...] = ()
    burst: float | None = None
    dispersion: float = 1.0
    pattern: str = ""

    @property
    def named(self) -> str:
        """The counter with its pattern, where it has one: "ber.1, PRBS31Q"."""
        return ", ".join(filter(None, (self.counter, self.pattern)))

    @property
    def errors(self) -> GateErrors:
        """The errors, and at how many looks they were added."""
        errors = [*self.looks, self.count.errors]
        return GateErrors.of_looks(self.count.bits, errors, self.count.most_bits)

    @property
    def void_reason(self) -> str | None:
        """Reason for which the count bounds no ratio; None where it does."""
        count = self.count
        if count.void is not None:
            return count.void
        if count.clock_lost:
            return "it had no signal for a part of the gate"
        if count.sync_lost:
            return "it did not follow the pattern all the time"
        if count.bits < self.expected:
            return (
                f"it compared {count.bits:.4g} of {self.expected:.4g} bits: the signal was lost "
                "for a while, or its counters began anew"
            )
        return None

    @property
    def ratio(self) -> ErrorRatio | None:
        """The ratio with its two-sided interval; None where nothing was counted.

        The interval of a gate of fixed length is exact; that of a gate stopped by its counts is
        valid at any time.
        """
        return self.ratio_at(self.confidence)

    def ratio_at(self, confidence: float) -> ErrorRatio | None:
        """The ratio with its interval at another confidence."""
        errors, bits = self.count.errors, self.count.bits
        if self.void_reason is not None or not bits:
            return None
        if self.decision is None:
            return error_ratio(errors, bits, confidence, self.count.most_bits)
        lower, upper = anytime_interval(errors, bits, self.scale, confidence, self.dispersion)
        most = max(bits, self.count.most_bits or bits)
        value = 2 * errors / (bits + most)
        return ErrorRatio(errors, bits, value, lower * bits / most, upper, confidence)


def count_for(counter: ErrorCounter, plan: GatePlan) -> Counted:
    """Count for as long as planned."""
    (counted,) = count_together([(counter, plan)])
    return counted


def count_with_looks(
    counter: ErrorCounter, plan: GatePlan, clock: Clock, burst: float | None = None
) -> Counted:
    """Count for as long as planned, and read the running gate meanwhile: bursts show in that.

    burst: declared mean number of errors in a burst, for the verdict.
    """
    gate = counter.count(duration=plan.duration)
    looks = []
    for _ in range(_LOOKS - 1):
        clock.sleep(plan.duration // _LOOKS)
        looks.append(gate.now().errors)
    counted = _counted(counter, gate.result(), plan.confidence, plan.limit)
    if any(late < early for early, late in pairwise([*looks, counted.count.errors])):
        looks = []  # counters that began anew void the gate by their bits, or say nothing of bursts
    return replace(counted, looks=tuple(looks), burst=burst)


def count_together(planned: Sequence[tuple[ErrorCounter, GatePlan]]) -> list[Counted]:
    """Open the gates of all counters, then wait for one after the other."""
    open_gates = [counter.count(duration=plan.duration) for counter, plan in planned]
    return [
        _counted(counter, gate.result(), plan.confidence, plan.limit)
        for (counter, plan), gate in zip(planned, open_gates, strict=True)
    ]


def count_until_decided(
    counter: ErrorCounter, test: SequentialTest, clock: Clock, longest: int
) -> Counted:
    """Count until `test` decides, or for `longest` ns.

    The running gate is read repeatedly, which a sequential test permits.
    """
    gate = counter.count(duration=longest)
    shortest = gate_for(test.bits_to_settle_without_errors(), counter.bits_per_second)
    decision: Decision = "go on"
    confidence = 1 - max(test.alpha, test.beta)
    while True:
        clock.sleep(min(shortest, longest) // _LOOKS)
        seen = _counted(counter, gate.now(), confidence, test.bad, "go on")
        if seen.void_reason is None:
            decision = test.settle(seen.count.errors, seen.count.bits)
        if decision != "go on" or seen.void_reason is not None or _over(seen.count, longest):
            break
    last = _counted(counter, gate.stop(), confidence, test.bad, "go on")
    if decision != "go on":
        last = seen  # what was counted since it was decided is not part of it
    elif last.void_reason is None:
        decision = test.settle(last.count.errors, last.count.bits)
    burst, dispersion = test.burst if test.burst > 1 else None, test.dispersion
    return replace(last, decision=decision, burst=burst, dispersion=dispersion)


def _over(count: ErrorCount, longest: int) -> bool:
    return count.ended.latest - count.began.earliest >= longest


def _counted(
    counter: ErrorCounter,
    count: ErrorCount,
    confidence: float,
    scale: float,
    decision: Decision | None = None,
) -> Counted:
    open_for = max(count.ended.earliest - count.began.latest, 0)
    expected = (1 - _RATE_ERROR) * counter.bits_per_second * (open_for - counter.slack) / 1e9
    return Counted(counter.name, count, max(expected, 0.0), confidence, scale, decision)


def judge_counts(limit: Limit, counts: Sequence[Counted]) -> Verdict:
    """Every counter must show that the limit is kept, at the limit's confidence.

    Its gates of fixed length are judged together by `judge_gates`; one that a sequential test
    stopped, by that test's decision. A gate that bounds nothing fails, but where its counter cannot
    be believed: then there is not enough data.
    """
    if not counts:
        return judge(limit, [], [])
    each = [_judge_alone(limit, one) for one in counts if _stands_alone(limit, one)]
    together: dict[str, list[Counted]] = {}
    for one in counts:
        if not _stands_alone(limit, one):
            together.setdefault(one.counter, []).append(one)
    each += [_judge_together(limit, gates) for gates in together.values()]
    worst = max(each, key=lambda one: (_RANK.index(one.outcome), one.upper))
    bad = sum(one.outcome == "fail" for one in each)
    doubtful = sum(one.outcome in {"fail", "not enough data"} for one in each)
    several = f"Of {len(counts)} gates the worst: " if len(counts) > 1 else ""
    reason = f"{several}{worst.reason} {_GATE_TIME}"
    outcome, needed, name = worst.outcome, worst.needed, worst.counter
    return Verdict(outcome, len(counts), bad, doubtful, needed, reason, name)


class _Judged(NamedTuple):
    """Outcome of a counter's gates, bits still needed, and upper bound of the error ratio."""

    counter: str
    outcome: Outcome
    needed: int | None
    reason: str
    upper: float


def _stands_alone(limit: Limit, one: Counted) -> bool:
    """Whether a gate bounds nothing, or was decided by a sequential test of this limit."""
    decided = one.decision in {"accept", "reject"} and limit.value == one.scale
    return decided or one.void_reason is not None


def _judge_alone(limit: Limit, counted: Counted) -> _Judged:
    name = counted.counter
    if (void_reason := counted.void_reason) is not None:
        reason = f"{name} {_NOTHING}: {void_reason}."
        # A counter that cannot be believed says nothing of the line; a pattern that was lost does.
        doubted = counted.count.void is not None
        return _Judged(name, "not enough data" if doubted else "fail", None, reason, math.inf)
    retained = counted.decision == "accept"
    text = "accepted" if retained else "rejected"
    errors, bits = counted.count.errors, counted.count.bits
    counted_as = f"{counted.named}: {errors:,} errors in {bits:.4g} bits"
    assumed = f"bursts of {counted.burst:g}" if counted.burst else "independent errors"
    reason = f"{counted_as}, {text} by the sequential test for {assumed}."
    upper = counted.ratio.upper if counted.ratio else math.inf
    return _Judged(name, "pass" if retained else "fail", None, reason, upper)


def _judge_together(limit: Limit, counts: Sequence[Counted]) -> _Judged:
    """Judge the gates of one counter."""
    name, confidence = counts[0].counter, limit.confidence or counts[0].confidence
    gates, burst = [one.errors for one in counts], counts[0].burst
    found = judge_gates(gates, limit.value, confidence, burst)
    if found.outcome == "pass" and limit.warn is not None:
        warned = judge_gates(gates, limit.warn, confidence, burst)
        if warned.outcome != "pass":
            reason = f"{counts[0].named}: {found.reason} But to warn: {warned.reason}"
            return _Judged(name, "marginal", None, reason, found.upper)
    reason = f"{counts[0].named}: {found.reason}"
    return _Judged(name, found.outcome, found.needed, reason, found.upper)
