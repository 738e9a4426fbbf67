"""What was measured, kept: rows, the journal they are appended to, the data set, all results.

A run appends rows to a journal, which survives a killed process. When it ends, or is recovered,
they become Parquet files partitioned by testbed and night, that DuckDB, pandas and anything
else that reads Parquet query in place:

    SELECT quantity, quantile_disc(value, 0.99)
    FROM read_parquet('ROOT/*/*/*.parquet', hive_partitioning = true) GROUP BY quantity

One call makes a tidy frame of them: `Results("results").frame(quantity="reconfiguration.*")`.
"""

from typing import TYPE_CHECKING, Any

from harness.record.dataset import write_dataset
from harness.record.descriptions import keep_descriptions, kept_descriptions
from harness.record.errors import (
    JournalDamagedError,
    JournalEmptyError,
    JournalInUseError,
    QuestionError,
    RecordError,
    RowError,
)
from harness.record.facts import Measured, RunFacts
from harness.record.journal import SCHEMA, Journal
from harness.record.outcome import TestOutcome
from harness.record.publishing import publish
from harness.record.reading import RunRecord, read_journal
from harness.record.recovery import Recovered, recover, settle, to_recover
from harness.record.row import Context, Instrument, Number, Row, Scalar

__all__ = [
    "SCHEMA",
    "Context",
    "Instrument",
    "Journal",
    "JournalDamagedError",
    "JournalEmptyError",
    "JournalInUseError",
    "Measured",
    "Number",
    "QuestionError",
    "RecordError",
    "Recovered",
    "Results",
    "Row",
    "RowError",
    "RunFacts",
    "RunRecord",
    "Scalar",
    "TestOutcome",
    "keep_descriptions",
    "kept_descriptions",
    "publish",
    "read_journal",
    "recover",
    "settle",
    "to_recover",
    "write_dataset",
]

if TYPE_CHECKING:
    from harness.record.results import Results


def __getattr__(name: str) -> Any:
    """`Results` at its first use: what reads results is large, and no run that writes needs it."""
    if name == "Results":
        from harness.record.results import Results  # noqa: PLC0415

        return Results
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
