"""The lines of a journal, both ways.

Line 1      {"night":"2026-03-14","run":"r1","schema":2, ...}   the run header
a context   {"context":0,"test":...,"testbed":..., ...}         before its first row
a row       [0,subject,quantity,value,lower,upper,unit,time_ns,{conditions}]
a test      {"test":{"nodeid":...,"outcome":..., ...}}          when it has ended
the end     {"end":{summary}}                                   only after a run that closed

Objects have sorted keys and floats their shortest exact form, so equal input gives equal bytes.
Schema 1 is the same without the lines of tests, and stays readable.
"""

import datetime
import functools
import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from harness.record.errors import RowError
from harness.record.outcome import TestOutcome
from harness.record.row import Context, Number, Row, Scalar, check_text

SCHEMA = 2
READABLE = (1, SCHEMA)

Json: TypeAlias = Mapping[str, Any]

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")
_ROW_FIELDS = 9
_TEST_FIELDS = frozenset(("nodeid", "outcome", "duration_s", "details"))

_encode = json.JSONEncoder(
    separators=(",", ":"), sort_keys=True, allow_nan=False, ensure_ascii=False
).encode


def to_json(name: str, value: object) -> str:
    """Write `value` in one line; raises `RowError` with `name` if JSON or UTF-8 cannot hold it."""
    try:
        text = _encode(value)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise RowError(f"{name}: {error}") from error
    return text


def header_line(header: Json) -> str:
    """Write line 1; raises `RowError` if `check_header` does or `header` sets the schema itself."""
    if "schema" in header:
        raise RowError("header: found key 'schema', which the journal sets")
    check_header(header)
    return to_json("header", {**header, "schema": SCHEMA})


def check_header(header: Json) -> None:
    """Raise `RowError` unless `header` has a `run` that can name a file, and a `night`.

    `night` is the date, YYYY-MM-DD, that the run counts for.
    """
    run, night = header.get("run"), header.get("night")
    if not isinstance(run, str) or not _RUN.fullmatch(run):
        raise RowError(f"header: found run {run!r}, expected letters, digits and ._+-")
    check_text("header: night", night)
    try:
        date = datetime.date.fromisoformat(str(night)).isoformat()
    except ValueError:
        date = ""
    if date != night:
        raise RowError(f"header: found night {night!r}, expected YYYY-MM-DD")


def context_line(number: int, context: Context) -> str:
    """Write the line that gives `context` its number."""
    return to_json(
        "context",
        {
            "context": number,
            "testbed": context.testbed,
            "test": context.test,
            "instruments": context.instruments,
            "simulated": context.simulated,
            "conditions": context.conditions,
        },
    )


def parse_context(line: Json) -> tuple[int, Context]:
    """Read the number and the context of a context line; raises `RowError`."""
    number, instruments = line["context"], line.get("instruments")
    if type(number) is not int:
        raise RowError(f"context: found {number!r}, expected an integer")
    if not isinstance(instruments, list):
        raise RowError(f"instruments: found {instruments!r}, expected a list")
    return number, Context(
        testbed=line.get("testbed", ""),
        test=line.get("test", ""),
        instruments=tuple(instruments),
        simulated=line.get("simulated", ""),
        conditions=line.get("conditions", ""),
    )


def row_line(context: int, row: Row) -> str:
    """Write the line of `row` in the context of that number."""
    # Rows are checked when made; encoding them again for `to_json` would halve the rate.
    # Their texts come again and again, and numbers need no encoder.
    return (
        f"[{context},{_text(row.subject)},{_text(row.quantity)},{_number(row.value)},"
        f"{_number(row.lower)},{_number(row.upper)},{_text(row.unit)},{row.time_ns},"
        f"{_conditions(row.conditions)}]"
    )


def _conditions(conditions: Mapping[str, Scalar]) -> str:
    if len(conditions) == 1:  # as good as always, and then the number of an event
        ((name, value),) = conditions.items()
        if type(value) is int:
            return f"{{{_text(name)}:{value}}}"
    return _encode(conditions)


@functools.lru_cache(maxsize=10_000)
def _text(text: str) -> str:
    return _encode(text)


def _number(number: Number | None) -> str:
    if number is None:
        return "null"
    # A float may be one of numpy's, whose repr names its type.
    return repr(number) if type(number) is int else float.__repr__(number)


def parse_row(fields: object) -> tuple[int, Row]:
    """Read the number of the context, and the row, of a row line; raises `RowError`."""
    if not isinstance(fields, list) or len(fields) != _ROW_FIELDS:
        raise RowError(f"found {fields!r}, expected a list of {_ROW_FIELDS} fields")
    if type(fields[0]) is not int:
        raise RowError(f"context: found {fields[0]!r}, expected an integer")
    return fields[0], Row(*fields[1:])


def test_line(outcome: TestOutcome) -> str:
    """Write the line of a test that has ended; raises `RowError` if no JSON holds its details."""
    fields = {
        "nodeid": outcome.nodeid,
        "outcome": outcome.outcome,
        "duration_s": outcome.duration_s,
        "details": outcome.details,
    }
    return to_json("test", {"test": fields})


def parse_test(line: Json) -> TestOutcome:
    """Read the line of a test; raises `RowError`."""
    fields = line["test"]
    if not isinstance(fields, dict) or set(fields) != _TEST_FIELDS:
        raise RowError(
            f"test: found {fields!r}, expected the fields {', '.join(sorted(_TEST_FIELDS))}"
        )
    return TestOutcome(**fields)
