"""Inspection of rows files without a digest, in a process of its own.

A native reader of Parquet can end its process at a file that is damaged. So what has no digest
(runs of earlier versions, and killed ones) is read here first: paths come as lines on standard
input, and each is answered by a line, empty for a file that is whole. A process that ends instead,
or that reading keeps busy for too long, says that the file is damaged too.

A checksum stands on each page, none on what describes the pages. So all that is stated twice is
compared: names of columns, their types as two readers find them, numbers of rows, statistics, and
the header of the run.
"""

import json
import math
import os
import re
import resource
import sys
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from lightrig.harness.record.dataset import COLUMNS, COMPACTED_COLUMNS

_OF_DUCKDB = {
    "string": "VARCHAR",
    "double": "DOUBLE",
    "int64": "BIGINT",
    "bool": "BOOLEAN",
    "date32[day]": "DATE",
    str(COLUMNS.field("instruments").type): "VARCHAR[]",
}
"""Types of columns as a second reader names them: a file states them for older readers too."""

_LONGEST_S = 5.0
_LEAST_BYTES_A_S = 1e6
"""A file takes `_LONGEST_S` of the processor and its size by this rate, or it never ends."""


class InspectionError(Exception):
    """Raised for a file whose parts do not fit each other."""


class MisplacedError(InspectionError):
    """Raised for the file of another run, testbed or night than its name and folder say."""


def inspect(
    path: str, run: str, headers: Mapping[str, Any], testbed: str = "", night: str = ""
) -> None:
    """Read the file at `path` wholly.

    run: the run that it has; empty for a compacted one. headers: of its runs, as `run.json` has
    them, where there is one. testbed, night: of its folder, where it is in one.

    Raises:
        MisplacedError: its header is that of a run elsewhere.
        InspectionError, pa.ArrowException, duckdb.Error, OSError, ValueError: it is damaged.
    """
    file = pa.parquet.ParquetFile(path, page_checksum_verification=True)
    stated = _headers(file.metadata.metadata or {})
    if run:
        _check_place(stated, run, "" if run in headers else testbed, night)
    known = {field.name: field.type for field in (COLUMNS if run else COMPACTED_COLUMNS)}
    for field in file.schema_arrow:
        if known.get(field.name) != field.type:
            raise InspectionError(f"its column {field.name!r} is none of rows")
    if len(set(file.schema_arrow.names)) != len(file.schema_arrow):
        raise InspectionError("two of its columns have the same name")
    groups = [checked_group(file, number) for number in range(file.metadata.num_row_groups)]
    rows = sum(len(group) for group in groups)
    if rows != file.metadata.num_rows:
        raise InspectionError(f"{rows} rows, and {file.metadata.num_rows} are stated")
    table = pa.concat_tables(groups) if groups else file.schema_arrow.empty_table()
    for name, header in stated.items():
        if header != headers.get(name, header):
            raise InspectionError(f"its header of run {name!r} is another than in run.json")
    if run and rows and pc.unique(table["run"]).to_pylist() != [run]:
        # Without a header, as other programs write it, only the rows say whose they are.
        raise (InspectionError if stated else MisplacedError)("it has rows of another run")
    with duckdb.connect(config={"threads": 1}) as connection:
        second = connection.sql(
            "SELECT * FROM read_parquet($path, hive_partitioning = false)", params={"path": path}
        )
        types = dict(zip(second.columns, map(str, second.types), strict=True))
    for name in table.schema.names:
        if types[name] != _OF_DUCKDB[str(known[name])]:
            raise InspectionError(f"two readers find other types of {name}")


def _check_place(stated: Mapping[str, Any], run: str, testbed: str, night: str) -> None:
    """Raise `MisplacedError` where a header does not fit the file's name and folder.

    testbed: empty where `run.json` was asked, which knows more than the header: that has the
    testbeds of the command line, or none in the first version.
    """
    for name, header in stated.items():
        if name != run:
            raise MisplacedError(f"its header is of run {name!r}, not of {run!r}")
        if night and header.get("night", night) != night:
            raise MisplacedError(f"its header is of the night {header['night']!r}, not of {night}")
        if testbed and testbed not in header.get("testbeds", {testbed: ""}):
            raise MisplacedError(f"its header is of a run on other testbeds than {testbed!r}")


def checked_group(file: Any, number: int) -> pa.Table:
    """Return a row group whose statistics are those of its rows."""
    table = file.read_row_group(number)
    stated = file.metadata.row_group(number)
    if len(table) != stated.num_rows:
        raise InspectionError(f"row group {number}: {stated.num_rows} rows are stated")
    for place in range(stated.num_columns):
        column = stated.column(place)
        name = column.path_in_schema.partition(".")[0]
        found = column.statistics
        if found is None or name == "instruments":
            continue
        values = table[name]
        if found.has_null_count and found.null_count != values.null_count:
            raise InspectionError(f"row group {number}: {name} has another number of gaps")
        if found.num_values != len(values) - values.null_count:
            raise InspectionError(f"row group {number}: {name} has another number of values")
        if found.has_min_max and len(values) > values.null_count:
            least: dict[str, object] = pc.min_max(values).as_py()
            if (found.min, found.max) != (least["min"], least["max"]):
                raise InspectionError(f"row group {number}: {name} is not within its bounds")
    return table


def _headers(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the header of each run, of which files of other programs have none."""
    if (runs := metadata.get(b"lightrig.runs")) is not None:
        return {name: each["header"] for name, each in json.loads(runs).items()}
    if (text := metadata.get(b"lightrig.header")) is not None:
        header = json.loads(text)
        return {str(header["run"]): header}
    return {}


def main() -> None:
    """Answer each path of standard input by a line."""
    for line in sys.stdin:
        path, *about = json.loads(line)
        try:
            limit_time(os.path.getsize(path))
            inspect(path, *about)
            answer = ""
        except (
            *(InspectionError, pa.ArrowException, duckdb.Error),
            *(OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError),
        ) as error:
            answer = re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:300]
        print(answer, flush=True)


def limit_time(size: int) -> None:
    """Have the system end this process where reading `size` bytes takes too long."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = used.ru_utime + used.ru_stime + _LONGEST_S + size / _LEAST_BYTES_A_S
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = math.ceil(until) if hard == resource.RLIM_INFINITY else min(math.ceil(until), hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


if __name__ == "__main__":
    main()
