"""Attempts of a test that a rerun plugin repeats: all rows stay, and the last attempt counts.

The rows of each attempt have its number, from 1, as a condition of their context; without a rerun
plugin they have none, which is the first. The events of each attempt are numbered from 0, so rows
of two attempts must never be combined by event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lightrig.harness.record.row import Context

if TYPE_CHECKING:
    import pandas as pd

ATTEMPT = "attempt"
"""The condition."""


def superseded(contexts: Mapping[int, Context]) -> frozenset[int]:
    """Return the numbers of the contexts whose test has measured in a later attempt."""
    last: dict[tuple[str, str], int] = {}
    for context in contexts.values():
        key = context.testbed, context.test
        last[key] = max(last.get(key, 1), attempt_of(context.conditions))
    return frozenset(
        number
        for number, context in contexts.items()
        if attempt_of(context.conditions) < last[context.testbed, context.test]
    )


def attempt_of(conditions: Mapping[str, object]) -> int:
    """Return the number of the attempt that conditions state."""
    stated = conditions.get(ATTEMPT, 1)
    return stated if isinstance(stated, int) else 1


def without_attempt(context: Context) -> Context:
    """Return a context as another attempt of the same test has it."""
    conditions = {n: value for n, value in context.conditions.items() if n != ATTEMPT}
    return replace(context, conditions=conditions)


def last_attempts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a tidy frame of the last attempt of each test in each run."""
    if ATTEMPT not in frame:
        return frame
    attempt = frame[ATTEMPT]
    last = attempt.groupby([frame[name] for name in ("run", "testbed", "test")]).transform("max")
    return frame[attempt == last].drop(columns=ATTEMPT)
