"""The Parquet data set of `harness.record.dataset`, opened in place."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from harness.record.dataset import COLUMNS, PARTITIONS


def open_dataset(files: Sequence[str], root: str, filesystem: Any = None) -> pa.dataset.Dataset:
    """The rows of `files`, all below `root`, with the columns of `COLUMNS` and `PARTITIONS`.

    Nothing is read yet. `filesystem` is fsspec's, or None for this machine's. A file of an
    older schema lacks columns, which are null.
    """
    schema = pa.unify_schemas([COLUMNS, PARTITIONS])
    if not files:
        return pa.dataset.dataset(schema.empty_table())
    return pa.dataset.dataset(
        list(files),
        schema=schema,
        filesystem=filesystem,
        format="parquet",
        partitioning=pa.dataset.partitioning(PARTITIONS, flavor="hive"),
        partition_base_dir=root,
    )
