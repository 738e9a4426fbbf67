"""Limits of a testbed, held against samples."""

import numpy as np
import numpy.typing as npt

from harness.statistics.verdicts import Verdict, judge_maximum, judge_quantile
from testbeds import Limit

_LONGEST = float(2**63)


def judge(limit: Limit, earliest: npt.ArrayLike, latest: npt.ArrayLike) -> Verdict:
    """The verdict on `limit` from one interval an event, in the limit's unit.

    A lower bound is judged as the upper bound of the negative. Raises `SampleError`.
    """
    value, quantile = limit.value, limit.quantile
    if limit.side == "lower":
        # What was never seen has no finite end, and an earliest must have one.
        low = -np.minimum(np.asarray(latest, dtype=float), _LONGEST)
        earliest, latest = low, -np.asarray(earliest, dtype=float)
        value, quantile = -value, 1 - quantile
    if limit.confidence is None or quantile >= 1:
        return judge_maximum(earliest, latest, value)
    return judge_quantile(earliest, latest, value, quantile, limit.confidence)
