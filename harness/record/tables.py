"""Runs and their tests as tables, for queries beside the rows."""

import datetime
from collections.abc import Sequence

import pyarrow as pa

from harness.record.facts import RunFacts
from harness.record.format import to_json

_RUNS = pa.schema(
    [
        ("run", pa.string()),
        ("night", pa.date32()),
        ("state", pa.string()),
        ("torn", pa.bool_()),
        ("testbeds", pa.list_(pa.string())),
        ("simulated", pa.bool_()),
        ("rows", pa.int64()),
        ("passed", pa.int64()),
        ("failed", pa.int64()),
        ("skipped", pa.int64()),
        ("duration_s", pa.float64()),
        ("started", pa.string()),
        ("command", pa.string()),
        ("header", pa.string()),
    ]
)
_TESTS = pa.schema(
    [
        ("run", pa.string()),
        ("night", pa.date32()),
        ("test", pa.string()),
        ("outcome", pa.string()),
        ("duration_s", pa.float64()),
    ]
)


def fields(facts: RunFacts) -> dict[str, object]:
    """A run as plain values; `failed` counts errors too, and no test is counted where unknown."""
    return {
        "run": facts.run,
        "night": facts.night,
        "state": facts.state,
        "torn": facts.torn,
        "testbeds": list(facts.testbeds),
        "simulated": facts.simulated,
        "rows": facts.rows,
        "passed": facts.count("passed", "xfailed"),
        "failed": facts.count("failed", "error", "xpassed"),
        "skipped": facts.count("skipped"),
        "duration_s": facts.duration_s,
        "started": facts.header.get("started"),
        "command": facts.header.get("command"),
    }


def runs_table(runs: Sequence[RunFacts]) -> pa.Table:
    """One line a run: its `fields`, and the whole header of its journal as JSON."""
    return pa.Table.from_pylist(
        [
            {**fields(facts), "night": _date(facts), "header": to_json("header", facts.header)}
            for facts in runs
        ],
        _RUNS,
    )


def tests_table(runs: Sequence[RunFacts]) -> pa.Table:
    """One line for each ending of a test; one that was run again has several."""
    return pa.Table.from_pylist(
        [
            {
                "run": facts.run,
                "night": _date(facts),
                "test": test.nodeid,
                "outcome": test.outcome,
                "duration_s": test.duration_s,
            }
            for facts in runs
            for test in facts.tests or ()
        ],
        _TESTS,
    )


def _date(facts: RunFacts) -> datetime.date:
    return datetime.date.fromisoformat(facts.night)
