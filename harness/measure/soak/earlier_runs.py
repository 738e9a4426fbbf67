"""A soak that is gone on with after a kill or a power cut: what its journal tells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lightrig.harness.record import RecordError, Row, read_journal
from lightrig.harness.record.journal import is_written
from lightrig.testbeds import LightrigError

FAMILY, BEFORE = "soak.", "soak_before."
_WHOLE = ("turn", "gap", "flap", "rdma_flap")
"""Quantities whose rows are each an event; of the others the sums count."""
_SUMS = ("watched", "datagrams", "datagrams_lost", "fec_corrected", "fec_uncorrectable")


class SoakResumeError(LightrigError):
    """A run that no soak can go on with."""


@dataclass(frozen=True, slots=True)
class EarlierSoak:
    """A soak that ended before its time, with those that it went on with itself.

    Attributes:
        run: name of the run.
        planned: how long the soak was to be, in ns.
        began: UTC at its first moment, in ns since 1970.
        last: time since then until when it is known to have watched, in ns.
        watched: longest time for which any link was watched, in ns.
        rows: what happened in it, under names of their own, for the run that goes on.
    """

    run: str
    planned: int
    began: int
    last: int
    watched: int
    rows: tuple[Row, ...]


def read_earlier(results: Path, run: str, testbed: str) -> EarlierSoak:
    """Read the soak of `testbed` in the run of that name, or that path, below `results`.

    Raises `SoakResumeError` for a run that is not there, still goes on, or has no such soak.
    """
    folder = Path(run) if "/" in run else results / "runs" / run
    journal = folder / "journal.jsonl"
    if not journal.is_file():
        known = sorted((p.parent.name for p in results.glob("runs/*/journal.jsonl")), reverse=True)
        shown = f"; the latest are {', '.join(known[:3])}" if known else ""
        raise SoakResumeError(f"--soak-resume: there is no run {run} in {results}{shown}")
    if is_written(journal):
        raise SoakResumeError(f"--soak-resume: the run {folder.name} still goes on")
    try:
        found = [
            row
            for context, row in read_journal(journal).rows()
            if context.testbed == testbed and re.match(r"soak(_before)?\.", row.quantity)
        ]
    except RecordError as error:
        raise SoakResumeError(f"--soak-resume: {error}") from error
    begun = [row for row in found if row.quantity == "soak.begun"]
    if not begun:
        raise SoakResumeError(f"--soak-resume: the run {folder.name} has no soak of {testbed}")
    (anchor, *_) = begun
    offset = _elapsed(anchor)
    return EarlierSoak(
        folder.name,
        int(anchor.conditions["planned_s"]) * 1_000_000_000,
        int(anchor.value or 0) - offset,
        max(map(_elapsed, found)),
        _longest(found),
        tuple(_carried(found)),
    )


def _elapsed(row: Row) -> int:
    return round(float(row.conditions.get("elapsed_s", 0)) * 1e9)


def _longest(rows: list[Row]) -> int:
    """Return the time for which the whole testbed, or else the longest link, was watched."""
    times: Counter[str] = Counter()
    for row in rows:
        if row.quantity in (f"{FAMILY}watched", f"{BEFORE}watched"):
            times[row.subject] += int(row.value or 0)
    return max(times.values(), default=0)


def _carried(rows: list[Row]) -> Iterator[Row]:
    """Yield the rows for the run that goes on: events as they are, sums by subject."""
    down: dict[object, Row] = {}
    sums: dict[tuple[str, str, object], Row] = {}
    for row in rows:
        name = row.quantity.removeprefix(FAMILY).removeprefix(BEFORE)
        if name in _WHOLE:
            down.pop(row.conditions.get("event"), None)
            yield replace(row, quantity=f"{BEFORE}{name}")
        elif name == "down":  # of a flap that may have no end in this journal
            down[row.conditions.get("event")] = row
        elif name in _SUMS:
            key = name, row.subject, row.conditions.get("links")
            before = sums.get(key)
            total = (row.value or 0) + ((before.value or 0) if before else 0)
            sums[key] = replace(
                row, quantity=f"{BEFORE}{name}", value=total, lower=total, upper=total
            )
    for row in down.values():
        yield replace(row, quantity=f"{BEFORE}{row.conditions.get('loss', 'flap')}", upper=None)
    yield from sums.values()
