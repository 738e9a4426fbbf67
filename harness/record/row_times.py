"""Calendar times of rows: a run's header says what time it was on the clock of its rows."""

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lightrig.instruments.clock import SystemClock, wall_time

if TYPE_CHECKING:
    from lightrig.harness.record.run_folder import RunFacts

ANCHOR = "clock"
"""Key of the header: `{"utc": "2026-03-14T02:00:00.000000", "ns": 81000000000000}`."""


def clock_anchor() -> dict[str, Any]:
    """Return the time now by the calendar, and by the system's clock, on which rows of labs are."""
    return {"utc": f"{wall_time():%FT%T.%f}", "ns": SystemClock().now()}


@dataclass(frozen=True, slots=True)
class Anchor:
    """The same moment by the calendar and by the clock of rows, in ns."""

    utc: datetime.datetime
    ns: int


def anchor_of(header: Mapping[str, Any]) -> Anchor | None:
    """Return the anchor of a run's header; None where it has none."""
    found = header.get(ANCHOR)
    try:
        at = datetime.datetime.fromisoformat(found["utc"])  # type: ignore[index]
        return Anchor(at.replace(tzinfo=datetime.UTC), int(found["ns"]))  # type: ignore[index]
    except (TypeError, KeyError, ValueError):
        return None


def time_at(anchor: Anchor, time_ns: int) -> datetime.datetime | None:
    """Return when a row was taken; None where that is not known.

    Rows of virtual time begin at 0, and have no time of the calendar: a row that would be older
    than its run is one of those.
    """
    if time_ns < anchor.ns:
        return None
    return anchor.utc + datetime.timedelta(microseconds=(time_ns - anchor.ns) / 1e3)


def time_of_row(header: Mapping[str, Any], time_ns: int) -> datetime.datetime | None:
    """Return when a row of the run with a header was taken; None where that is not known."""
    anchor = anchor_of(header)
    return None if anchor is None else time_at(anchor, time_ns)


class RowTimes:
    """Calendar times of many rows, by the names of their runs: a function of DuckDB.

    Args:
        runs: returns all runs; it is called once, at the first use.
    """

    def __init__(self, runs: Callable[[], "Iterable[RunFacts]"]) -> None:
        self._runs = runs
        self._anchors: dict[str, Anchor | None] | None = None

    def __call__(self, runs: Any, times: Any) -> Any:
        """Return UTC of each row, null where it is not known (see `time_at`): arrays of Arrow.

        DuckDB evaluates the annotations, so they name nothing that is not loaded.
        """
        import numpy as np  # noqa: PLC0415 - `live` asks for single rows
        import pyarrow as pa

        if self._anchors is None:
            self._anchors = {facts.run: anchor_of(facts.header) for facts in self._runs()}
        coded = pa.concat_arrays(runs.chunks).dictionary_encode()
        known = [self._anchors.get(name) for name in coded.dictionary.to_pylist()]
        # A run without an anchor has rows before the end of time alone.
        began = np.array([each.ns if each else _ENDLESS for each in known], np.int64)
        utc = np.array([_microseconds(each.utc) if each else 0 for each in known], np.int64)
        codes, ns = coded.indices.to_numpy(), times.to_numpy()
        unknown = ns < began[codes]
        passed = np.where(unknown, 0, ns - np.where(unknown, 0, began[codes]))
        return pa.array(utc[codes] + passed // 1000, pa.timestamp("us"), mask=unknown)


_ENDLESS = (1 << 63) - 1
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _microseconds(at: datetime.datetime) -> int:
    return (at - _EPOCH) // datetime.timedelta(microseconds=1)
