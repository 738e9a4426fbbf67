"""Samples of the data set, gathered by series and night: a cell is one night of one series.

Rows are read by Arrow with texts as codes, so that hundreds of millions of rows are grouped by
integers, and the samples of all cells of one size are sorted together.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.quantities.registry import aliases
from lightrig.harness.record import BESIDE_VALUES
from lightrig.harness.record.attempts import ATTEMPT, attempt_of
from lightrig.harness.record.moved_tests import present_test
from lightrig.harness.record.nights import Night

if TYPE_CHECKING:
    import pyarrow as pa

Numbers: TypeAlias = npt.NDArray[Any]

TEXTS = ("run", "quantity", "subject", "test", "conditions", "unit")
_EPOCH = datetime.date(1970, 1, 1)
_MOST_OF_A_DATE = 4
"""Nights that may have the same date: further ones would be one with the last."""

COLUMNS = (*TEXTS, "simulated", "night", "value", "lower", "upper")
"""Columns that are read."""


class Key(NamedTuple):
    """A series on one testbed; conditions: those that distinguish cases, as JSON."""

    simulated: bool
    quantity: str
    subject: str
    test: str
    conditions: str
    unit: str


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of one testbed, and their samples.

    keys: series, in any order. series, night: of each cell, the place in `keys` and the number of
    its night, as `night_number` has it. offsets: where the samples of each cell begin in `lower`,
    `upper` and `value`, and the end of all; samples of a cell are sorted. runs: whether simulated,
    number of the night and name of each run.
    """

    keys: tuple[Key, ...]
    series: Numbers
    night: Numbers
    offsets: Numbers
    lower: Numbers
    upper: Numbers
    value: Numbers
    runs: frozenset[tuple[bool, int, str]]


def night_number(night: Night) -> int:
    """Return the number of a night: nights of one date lie between those of the days beside it."""
    return (night.day - _EPOCH).days * _MOST_OF_A_DATE + min(night.place, _MOST_OF_A_DATE - 1)


def night_of_number(number: int) -> Night:
    """Return the night of a number, without its zone."""
    day, place = divmod(number, _MOST_OF_A_DATE)
    return Night((_EPOCH + datetime.timedelta(day)).isoformat(), place)


def cells_of(table: pa.Table, places: Mapping[str, int] | None = None) -> Cells:
    """Return the cells of rows of one testbed with `COLUMNS`, the texts as dictionaries.

    places: of runs whose night is not the first one of its date.
    """
    import pyarrow as pa  # pages of nights alone read rows

    table = _last_attempts(table)
    texts = {name: _codes(table, name) for name in TEXTS}
    nights = table["night"].cast(pa.int32()).to_numpy()
    # Hardly any results have two nights of one date, and more numbers take longer to group.
    width = 1
    if places and not places.keys().isdisjoint(texts["run"].names):
        width = _MOST_OF_A_DATE
        place_of = [min(places.get(run, 0), width - 1) for run in texts["run"].names]
        nights = nights * width + np.array(place_of, np.int32)[texts["run"].codes]
    scale = _MOST_OF_A_DATE // width
    first = int(nights.min())
    simulated = _Codes(table["simulated"].to_numpy().astype(np.int32), [False, True])
    named = {
        "simulated": simulated,
        "quantity": texts["quantity"].renamed(lambda name: aliases().get(name, name)),
        "subject": texts["subject"],
        "test": texts["test"].renamed(present_test),
        "conditions": texts["conditions"].renamed(_case_conditions),
        "unit": texts["unit"],
    }
    series, keys = _dense(list(named.values()))
    span = int(nights.max()) - first + 1
    codes, cells = _numbered(series * span + (nights - first), len(keys) * span)
    # Cells of one size follow each other, so that their samples are sorted at once.
    counts = np.bincount(codes, minlength=len(cells))
    by_size = np.argsort(counts, kind="stable")
    place = np.empty(len(cells), np.int64)
    place[by_size] = np.arange(len(cells))
    sizes = counts[by_size]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    order = _order(place[codes], len(cells))

    value = table["value"].to_numpy()
    lower, upper = table["lower"].to_numpy(), table["upper"].to_numpy()
    if table["lower"].null_count or table["upper"].null_count:
        times = np.array([name == "ns" for name in texts["unit"].names])[texts["unit"].codes]
        # Nothing happens before the command; without an upper bound it was not seen to happen.
        lower = np.where(np.isnan(lower), np.where(times, 0.0, value), lower)
        upper = np.where(np.isnan(upper), np.where(times, np.inf, value), upper)
    lists = [one.names for one in named.values()]
    named_keys = [
        Key(*(names[code] for names, code in zip(lists, key, strict=True))) for key in keys.tolist()
    ]
    return Cells(
        keys=tuple(named_keys),
        series=cells[by_size] // span,
        night=(cells[by_size] % span + first) * scale,
        offsets=offsets,
        lower=_sorted(lower[order], sizes, offsets),
        upper=_sorted(upper[order], sizes, offsets),
        value=_sorted(value[order], sizes, offsets),
        runs=frozenset(_runs(texts["run"], simulated, nights * scale)),
    )


class _Codes(NamedTuple):
    """A column as integers: `names` has the value of each."""

    codes: Numbers
    names: list[Any]

    def renamed(self, rename: Callable[[str], str]) -> _Codes:
        """Return the column with other values, of which several may become one."""
        numbers: dict[str, int] = {}
        found = [numbers.setdefault(rename(name), len(numbers)) for name in self.names]
        return _Codes(np.array(found, np.int32)[self.codes], list(numbers))


def _codes(table: pa.Table, name: str) -> _Codes:
    column = table[name].unify_dictionaries()
    codes = [chunk.indices.to_numpy() for chunk in column.chunks]
    return _Codes(np.concatenate(codes), column.chunk(0).dictionary.to_pylist())


def _last_attempts(table: pa.Table) -> pa.Table:
    """Return the rows of the last attempt of each test in each run."""
    conditions = _codes(table, "conditions")
    attempts = [attempt_of(json.loads(t)) if f'"{ATTEMPT}"' in t else 1 for t in conditions.names]
    if max(attempts, default=1) == 1:
        return table
    attempt = np.array(attempts)[conditions.codes]
    tests, keys = _dense([_codes(table, "run"), _codes(table, "test")])
    last = np.ones(len(keys), np.int64)
    np.maximum.at(last, tests, attempt)
    import pyarrow as pa

    return table.filter(pa.array(attempt == last[tests]))


def _dense(columns: Sequence[_Codes]) -> tuple[Numbers, Numbers]:
    """Return the number of each row's combination of codes, and the codes of each combination."""
    sizes = [len(column.names) for column in columns]
    if reduce(lambda a, b: a * b, sizes) >= 1 << 62:
        together, combined = _dense(columns[:-1])
        numbers, found = _dense([_Codes(together, list(range(len(combined)))), columns[-1]])
        return numbers, np.column_stack([combined[found[:, 0]], found[:, 1]])
    key = np.zeros(len(columns[0].codes), np.int64)
    for column, size in zip(columns, sizes, strict=True):
        key *= size
        key += column.codes
    numbers, found = _numbered(key, reduce(lambda a, b: a * b, sizes))
    return numbers, np.column_stack(np.unravel_index(found, sizes))


def _numbered(key: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """Return the number of each row's key, and the keys by number; keys are less than `count`."""
    if count > len(key):
        import pandas as pd  # loads slowly, and few nights have so many keys

        numbers, found = pd.factorize(key)
        return numbers, found
    # Keys in a small range are looked up in a table, faster than by their hashes.
    present = np.zeros(count, bool)
    present[key] = True
    found = np.flatnonzero(present)
    numbers = np.zeros(count, np.int64)
    numbers[found] = np.arange(len(found))
    return numbers[key], found


def _order(codes: Numbers, count: int) -> Numbers:
    """Return the rows by their codes, of which there are `count`."""
    # Short integers are sorted by their digits, several times as fast.
    return np.argsort(codes.astype(np.uint16) if count <= 1 << 16 else codes, kind="stable")


def _sorted(samples: Numbers, sizes: Numbers, offsets: Numbers) -> Numbers:
    """Sort the samples of each cell in place; cells come by size."""
    for size, start, end in _alike(sizes):
        samples[offsets[start] : offsets[end]].reshape(-1, size).sort(axis=1)
    return samples


def _alike(sizes: Numbers) -> Iterator[tuple[int, int, int]]:
    """Yield each size, and where the cells of that size begin and end."""
    found, starts = np.unique(sizes, return_index=True)
    yield from zip(found.tolist(), starts.tolist(), [*starts[1:].tolist(), len(sizes)], strict=True)


def _runs(run: _Codes, simulated: _Codes, nights: Numbers) -> Iterator[tuple[bool, int, str]]:
    columns = run.codes, simulated.codes, nights
    differ = reduce(np.logical_or, (each[1:] != each[:-1] for each in columns))
    for place in (0, *(np.flatnonzero(differ) + 1).tolist()):
        yield bool(simulated.codes[place]), int(nights[place]), run.names[run.codes[place]]


def _case_conditions(conditions: str) -> str:
    """Return the conditions of a row that distinguish cases, as JSON.

    Those of `BESIDE_VALUES` do not, nor do numbers with a fraction, which are measurements.
    """
    distinguishing = {
        name: value
        for name, value in json.loads(conditions).items()
        if name not in BESIDE_VALUES and not isinstance(value, float)
    }
    return json.dumps(distinguishing, sort_keys=True)
