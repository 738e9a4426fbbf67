"""What was measured, kept: rows, the journal they are appended to, the Parquet data set.

A run appends rows to a journal, which survives a killed process. `write_dataset` turns a
journal, whole or torn, into Parquet files partitioned by testbed and night, that DuckDB,
pandas and anything else that reads Parquet query in place:

    SELECT quantity, quantile_disc(value, 0.99)
    FROM read_parquet('ROOT/*/*/*.parquet', hive_partitioning = true) GROUP BY quantity
"""

from harness.record.dataset import read_dataset, write_dataset
from harness.record.errors import JournalDamagedError, RecordError, RowError
from harness.record.journal import SCHEMA, Journal
from harness.record.reading import RunRecord, read_journal
from harness.record.row import Context, Instrument, Number, Row, Scalar

__all__ = [
    "SCHEMA",
    "Context",
    "Instrument",
    "Journal",
    "JournalDamagedError",
    "Number",
    "RecordError",
    "Row",
    "RowError",
    "RunRecord",
    "Scalar",
    "read_dataset",
    "read_journal",
    "write_dataset",
]
