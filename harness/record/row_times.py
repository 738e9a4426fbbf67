"""Calendar times of rows: a run's header says what time it was on the clock of its rows."""

import datetime
from collections.abc import Mapping
from typing import Any

from lightrig.instruments.clock import SystemClock, wall_time

ANCHOR = "clock"
"""Key of the header: `{"utc": "2026-03-14T02:00:00.000000", "ns": 81000000000000}`."""


def clock_anchor() -> dict[str, Any]:
    """Return the time now by the calendar, and by the system's clock, on which rows of labs are."""
    return {"utc": f"{wall_time():%FT%T.%f}", "ns": SystemClock().now()}


def anchor_of(header: Mapping[str, Any]) -> tuple[datetime.datetime, int] | None:
    """Return calendar time and clock, in ns, of a run's header; None where it has none."""
    found = header.get(ANCHOR)
    try:
        at = datetime.datetime.fromisoformat(found["utc"])  # type: ignore[index]
        return at.replace(tzinfo=datetime.UTC), int(found["ns"])  # type: ignore[index]
    except (TypeError, KeyError, ValueError):
        return None


def time_of_row(header: Mapping[str, Any], time_ns: int) -> datetime.datetime | None:
    """Return when a row was taken; None where that is not known.

    Rows of virtual time begin at 0, and have no time of the calendar: a row that would be older
    than its run is one of those.
    """
    anchor = anchor_of(header)
    if anchor is None or time_ns < anchor[1]:
        return None
    return anchor[0] + datetime.timedelta(microseconds=(time_ns - anchor[1]) / 1e3)
