"""Runs and their tests as tables, beside the rows: what SQL asks of them."""

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lightrig.harness.record.journal import to_json
from lightrig.harness.record.run_folder import RunFacts

_RUNS = pa.schema(
    [
        ("run", pa.string()),
        ("night", pa.date32()),
        ("state", pa.string()),
        ("torn", pa.bool_()),
        ("testbeds", pa.list_(pa.string())),
        ("simulated", pa.bool_()),
        ("by_hand", pa.bool_()),
        ("rows", pa.int64()),
        ("passed", pa.int64()),
        ("failed", pa.int64()),
        ("inconclusive", pa.int64()),
        ("skipped", pa.int64()),
        ("duration_s", pa.float64()),
        ("started", pa.string()),
        ("zone", pa.string()),
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


def runs_table(runs: Sequence[RunFacts]) -> pa.Table:
    """One line a run: its fields, and the whole header of its journal as JSON."""
    return pa.Table.from_pylist(
        [
            {**facts.fields(), "night": _date(facts), "header": to_json("header", facts.header)}
            for facts in runs
        ],
        _RUNS,
    )


def tests_table(runs: Sequence[RunFacts]) -> pa.Table:
    """One line for each ending of a test; one that was run again has several."""
    ended = [(facts, facts.tests) for facts in runs if facts.tests]
    counts = [len(tests) for _, tests in ended]

    def of_run(values: list[Any]) -> pa.Array:
        return pa.array(values).take(pa.array(np.repeat(np.arange(len(values)), counts)))

    if not ended:
        return _TESTS.empty_table()
    columns = [
        of_run([facts.run for facts, _ in ended]),
        of_run([_date(facts) for facts, _ in ended]),
        pa.array([name for _, tests in ended for name in tests.nodeids]),
        pa.array([outcome for _, tests in ended for outcome in tests.outcomes]),
        pa.array([float(each) for _, tests in ended for each in tests.durations_s]),
    ]
    return pa.Table.from_arrays(columns, schema=_TESTS)


def _date(facts: RunFacts) -> datetime.date:
    return datetime.date.fromisoformat(facts.night)
