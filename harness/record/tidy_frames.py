"""Tidy frames: rows with a column for each condition, and frames as plain values."""

import datetime
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from lightrig.harness.record.attempts import ATTEMPT

COLUMNS = (
    "run",
    "night",
    "testbed",
    "test",
    "subject",
    "quantity",
    "value",
    "lower",
    "upper",
    "unit",
    "simulated",
    "instruments",
    "time_ns",
)


# pandas would make an integer of which some are missing a float, and a truth an object.
_DTYPES = {
    frozenset((bool,)): "boolean",
    frozenset((int,)): "Int64",
    frozenset((float,)): "float64",
    frozenset((int, float)): "float64",
    frozenset((str,)): "string",
}


def tidy(rows: pd.DataFrame) -> pd.DataFrame:
    """Return `COLUMNS` of `rows`, and each condition as a column of its own."""
    frame = rows[list(COLUMNS)]
    codes, texts = pd.factorize(rows["conditions"])
    conditions = [json.loads(text) for text in texts]
    names = dict.fromkeys(name for one in conditions for name in one)
    found = {
        f"condition_{name}" if name in COLUMNS else name: _column(
            [one.get(name, 1 if name == ATTEMPT else None) for one in conditions]
        ).take(codes)
        for name in names
    }
    return pd.concat([frame, pd.DataFrame(found, index=frame.index)], axis="columns")


def ordered(table: pa.Table) -> pd.DataFrame:
    """Return rows by testbed, night and run, with their instruments as one text.

    Compacted files and those of one run take turns.
    """
    # An array in a cell cannot be grouped by.
    instruments = pc.binary_join(table["instruments"], "; ")
    place = table.schema.get_field_index("instruments")
    table = table.set_column(place, "instruments", instruments)
    rows = table.to_pandas(date_as_object=False)
    return rows.sort_values(["testbed", "night", "run"], kind="stable", ignore_index=True)


def _column(values: list[object]) -> pd.api.extensions.ExtensionArray:
    kinds = frozenset(type(value) for value in values if value is not None)
    return pd.array(values, dtype=_DTYPES.get(kinds, "object"))


def records(frame: pd.DataFrame) -> list[dict[str, object]]:
    """The rows of any frame as `plain` values by column."""
    return [
        {str(name): plain(value) for name, value in row.items()} for row in frame.to_dict("records")
    ]


def plain(value: Any) -> object:
    """Return `value` as JSON knows it, numbers exact.

    A moment at midnight is a date; what is missing, or no finite number, is None.
    """
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, datetime.datetime):
        midnight = value.time() == datetime.time.min
        return (value.date() if midnight else value).isoformat()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int) else str(value)
