"""Reading the Parquet data set, with the present names of quantities.

Apart from writing, since pyarrow's data sets load pandas, which no run needs that writes.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from lightrig.harness.quantities.registry import aliases
from lightrig.harness.record.dataset import COLUMNS, PARTITIONS
from lightrig.harness.record.moved_tests import former_files, present_test
from lightrig.harness.record.row import RecordError


def open_dataset(
    files: Sequence[str], root: str, filesystem: Any = None, texts: Sequence[str] = ()
) -> pa.dataset.Dataset:
    """The rows of `files`, all below `root`, with the columns of `COLUMNS` and `PARTITIONS`.

    Nothing is read yet. `filesystem` is fsspec's, or None for this machine's. `texts` are columns
    that come as dictionaries. A file of an older schema lacks columns, which are null.
    """
    schema = pa.unify_schemas([COLUMNS, PARTITIONS])
    for name in texts:
        place = schema.get_field_index(name)
        coded = schema.field(place).with_type(pa.dictionary(pa.int32(), pa.string()))
        schema = schema.set(place, coded)
    if not files:
        return pa.dataset.dataset(schema.empty_table())
    return pa.dataset.dataset(
        list(files),
        schema=schema,
        filesystem=filesystem,
        format=pa.dataset.ParquetFileFormat(
            read_options=pa.dataset.ParquetReadOptions(dictionary_columns=set(texts)),
            default_fragment_scan_options=pa.dataset.ParquetFragmentScanOptions(
                page_checksum_verification=True
            ),
        ),
        partitioning=pa.dataset.partitioning(PARTITIONS, flavor="hive"),
        partition_base_dir=root,
    )


def is_one_of(column: str, values: Sequence[Any]) -> pc.Expression:
    """Return the condition that `column` has one of `values`, by which row groups are left out."""
    field = pa.dataset.field(column)
    return field == values[0] if len(values) == 1 else field.isin(values)


def present_names(relation: str, *, tests: bool) -> str:
    """Return the SQL of `relation` with the present names of quantities, and of tests if asked."""
    cases = " ".join(f"WHEN '{old}' THEN '{new}'" for old, new in aliases().items())
    named = f"CASE quantity {cases} ELSE quantity END AS quantity" if cases else "quantity"
    moved = " ".join(
        f"WHEN starts_with(test, '{old}::') THEN '{new}' || substr(test, {len(old) + 1})"
        for old, new in former_files().items()
    )
    test = f", CASE {moved} ELSE test END AS test" if tests and moved else ""
    # The names are declared ones, of letters, digits, dots and underscores.
    return f"SELECT * REPLACE ({named}{test}) FROM {relation}"  # noqa: S608


def named(dataset: pa.dataset.Dataset, pattern: str) -> pa.Table:
    """Return the rows whose quantity's present name matches the regular expression `pattern`.

    Raises `RecordError` for rows that lack what every row has.
    """
    former = {old: new for old, new in aliases().items() if re.fullmatch(pattern, new)}
    quantity = pa.dataset.field("quantity")
    table = dataset.to_table(
        filter=pc.match_substring_regex(quantity, f"^{pattern}$")
        | quantity.isin(pa.array(list(former), pa.string()))
        | quantity.is_null()
    )
    check_complete(table)
    if former:
        table = _renamed(table, "quantity", lambda name: aliases().get(name, name))
    return _renamed(table, "test", present_test)


def _renamed(table: pa.Table, name: str, rename: Callable[[str], str]) -> pa.Table:
    """Return a table whose column of texts has other names."""
    found = table[name].combine_chunks().dictionary_encode()
    names = found.dictionary.to_pylist()
    present = list(map(rename, names))
    if present == names:
        return table
    index = table.schema.get_field_index(name)
    column = pa.DictionaryArray.from_arrays(found.indices, pa.array(present))
    return table.set_column(index, table.schema.field(index), column.cast(table[name].type))


def check_complete(table: pa.Table) -> None:
    """Raise `RecordError` for rows that lack what every row has."""
    names = [field.name for field in COLUMNS if not field.nullable]
    for name in set(names) & set(table.schema.names):
        # The names of columns stand where no checksum is: one that was changed reads as missing.
        if table[name].null_count:
            raise RecordError(f"the data set has rows without {name}: a file of it is damaged")
