"""What a test has measured so far, and what the testbed's limits say of it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from harness.measure.bit_errors import BitErrors, judge_counts
from harness.record import Row
from harness.statistics import Verdict, judge
from testbeds import LightrigError, Limit


class LimitExceededError(LightrigError, AssertionError):
    """What was measured breaks a limit of the testbed."""


class NotEnoughDataError(LightrigError):
    """Too few samples for a verdict at the stated confidence."""


class Judged:
    """Measurements of one test under limits.

    Args:
        limits: by quantity.
    """

    def __init__(self, limits: Mapping[str, Limit]) -> None:
        self._limits = limits
        self._counters: list[BitErrors] = []
        self._spans: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)

    def verdicts(self, family: str) -> list[tuple[Limit, Verdict]]:
        """The verdict on each of the testbed's limits under `family`, e.g. "reconfiguration".

        A limit on what was never measured is not kept: there is not enough data.
        """
        return [
            (limit, self._verdict(limit))
            for quantity, limit in self._limits.items()
            if quantity == family or quantity.startswith(f"{family}.")
        ]

    def judge(self, family: str) -> None:
        """Hold what this test measured against the testbed's limits under `family`.

        Raises:
            LimitExceededError: a limit is broken; names each with what was found.
            NotEnoughDataError: none is broken, but one needs more samples.
        """
        verdicts = self.verdicts(family)
        if broken := [pair for pair in verdicts if pair[1].outcome == "fail"]:
            raise LimitExceededError(_sentences(broken))
        if unclear := [pair for pair in verdicts if pair[1].outcome == "not enough data"]:
            raise NotEnoughDataError(_sentences(unclear))

    def _take(self, rows: Iterable[Row]) -> None:
        """Let the limits on their quantities judge `rows`."""
        for row in rows:
            low, high = row.lower, row.upper
            span = row.value if low is None else low, row.value if high is None else high
            self._spans[row.quantity].append(span)

    def _verdict(self, limit: Limit) -> Verdict:
        counts = [c for one in self._counters if one.quantity == limit.quantity for c in one.counts]
        if counts:
            return judge_counts(limit, counts)
        spans = self._spans.get(limit.quantity, [])
        return judge(limit, [low for low, _ in spans], [high for _, high in spans])


def _sentences(verdicts: Iterable[tuple[Limit, Verdict]]) -> str:
    return "; ".join(f"{limit}: {verdict.reason}" for limit, verdict in verdicts)
