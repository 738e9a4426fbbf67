"""Records of measurements: rows, journals, the data set, and the results of all runs.

A run appends rows to a journal, which survives a killed process. When it ends, or is recovered,
they become Parquet files partitioned by testbed and night, that DuckDB, pandas and anything
else that reads Parquet query in place:

    SELECT quantity, quantile_disc(value, 0.99)
    FROM read_parquet('ROOT/*/*/*.parquet', hive_partitioning = true) GROUP BY quantity

One call makes a tidy frame of them: `Results("results").frame(quantity="reconfiguration.*")`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lightrig.harness.record.journal import SCHEMA, Journal
from lightrig.harness.record.row import (
    BESIDE_VALUES,
    COUNTERS,
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
    SharedConditions,
    TestOutcome,
)

__all__ = [
    "BESIDE_VALUES",
    "COUNTERS",
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
    "SharedConditions",
    "TestOutcome",
    "load_descriptions",
    "load_quantities",
    "publish",
    "read_journal",
    "recover",
    "settle",
    "store_descriptions",
    "store_quantities",
    "to_recover",
    "write_dataset",
]

if TYPE_CHECKING:
    from lightrig.harness.record.dataset import write_dataset
    from lightrig.harness.record.journal_reading import RunRecord, read_journal
    from lightrig.harness.record.recovery import Recovered, recover, settle, to_recover
    from lightrig.harness.record.results import Results
    from lightrig.harness.record.run_folder import (
        Measured,
        RunFacts,
        load_descriptions,
        load_quantities,
        publish,
        store_descriptions,
        store_quantities,
    )

_LOADED_AT_FIRST_USE = {
    name: module
    for module, names in {
        "results": ("Results",),
        "dataset": ("write_dataset",),
        "journal_reading": ("RunRecord", "read_journal"),
        "recovery": ("Recovered", "recover", "settle", "to_recover"),
        "run_folder": (
            *("Measured", "RunFacts", "load_descriptions", "load_quantities", "publish"),
            *("store_descriptions", "store_quantities"),
        ),
    }.items()
    for name in names
}
"""Names that load large libraries, by module: pandas and DuckDB; pyarrow; NumPy."""


def __getattr__(name: str) -> Any:
    if name in _LOADED_AT_FIRST_USE:
        module = import_module(f"lightrig.harness.record.{_LOADED_AT_FIRST_USE[name]}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
