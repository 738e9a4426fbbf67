"""The verdict on a limit from what gates have counted."""

from collections.abc import Sequence

from lightrig.harness.measure.bit_errors.gates import Counted
from lightrig.harness.statistics import Outcome, Verdict, judge
from lightrig.harness.statistics.bit_errors import judge_error_ratio
from lightrig.testbeds import Limit

_RANK: tuple[Outcome, ...] = ("pass", "marginal", "not enough data", "fail")


def judge_counts(limit: Limit, counts: Sequence[Counted]) -> Verdict:
    """Every gate must show that the limit is kept, at the limit's confidence.

    A gate of fixed length is judged by its exact bound; one that a sequential test stopped, by
    that test's decision. A gate that bounds nothing fails.
    """
    if not counts:
        return judge(limit, [], [])
    each = [_judge(limit, counted) for counted in counts]
    outcome, needed, reason = max(each, key=lambda one: _RANK.index(one[0]))
    bad = sum(one[0] == "fail" for one in each)
    doubtful = sum(one[0] in {"fail", "not enough data"} for one in each)
    stated = reason if len(each) == 1 else f"Of {len(each)} gates the worst: {reason}"
    return Verdict(outcome, len(each), bad, doubtful, needed, stated)


def _judge(limit: Limit, counted: Counted) -> tuple[Outcome, int | None, str]:
    name = counted.counter
    if (void_reason := counted.void_reason) is not None:
        return "fail", None, f"{name} counted nothing that bounds a ratio: {void_reason}."
    confidence = limit.confidence or counted.confidence
    errors, bits = counted.count.errors, counted.count.bits
    if counted.decision in {"accept", "reject"} and limit.value == counted.scale:
        retained = counted.decision == "accept"
        text = "accepted" if retained else "rejected"
        reason = f"{name}: {errors:,} errors in {bits:.4g} bits, {text} by the sequential test."
        return "pass" if retained else "fail", None, reason
    found = judge_error_ratio(errors, bits, limit.value, confidence)
    if found.outcome == "pass" and limit.warn is not None:
        warned = judge_error_ratio(errors, bits, limit.warn, confidence)
        if warned.outcome != "pass":
            return "marginal", None, f"{name}: {found.reason} But to warn: {warned.reason}"
    return found.outcome, found.needed, f"{name}: {found.reason}"
