"""Records of measurements: rows, journals, the data set, and the results of all runs.

A run appends rows to a journal, which survives a killed process. When it ends, or is recovered,
they become Parquet files partitioned by testbed and night, that DuckDB, pandas and anything
else that reads Parquet query in place:

    SELECT quantity, quantile_disc(value, 0.99)
    FROM read_parquet('ROOT/*/*/*.parquet', hive_partitioning = true) GROUP BY quantity

One call makes a tidy frame of them: `Results("results").frame(quantity="reconfiguration.*")`.
"""

from typing import TYPE_CHECKING, Any

from lightrig.harness.record.dataset import write_dataset
from lightrig.harness.record.journal import SCHEMA, Journal
from lightrig.harness.record.journal_reading import RunRecord, read_journal
from lightrig.harness.record.recovery import Recovered, recover, settle, to_recover
from lightrig.harness.record.row import (
    Context,
    Instrument,
    JournalDamagedError,
    JournalEmptyError,
    JournalInUseError,
    Number,
    QuestionError,
    RecordError,
    Row,
    RowError,
    Scalar,
    TestOutcome,
)
from lightrig.harness.record.run_folder import (
    Measured,
    RunFacts,
    load_descriptions,
    publish,
    store_descriptions,
)

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
    "load_descriptions",
    "publish",
    "read_journal",
    "recover",
    "settle",
    "store_descriptions",
    "to_recover",
    "write_dataset",
]

if TYPE_CHECKING:
    from lightrig.harness.record.results import Results


def __getattr__(name: str) -> Any:
    """`Results` at its first use: what reads results is large, and no run that writes needs it."""
    if name == "Results":
        from lightrig.harness.record.results import Results  # noqa: PLC0415

        return Results
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
