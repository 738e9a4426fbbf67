"""Rows, their contexts, the outcome of a test, and the errors of records.

Every value is checked when it is made, so that a journal holds nothing that cannot be read back.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from lightrig.testbeds.errors import LightrigError

# ------------------------------------------------------------------------------------------ errors


class RecordError(LightrigError):
    """A journal or data set that cannot be written or read."""


class QuestionError(RecordError):
    """A question that no results could answer: no such place, no such run, no such SQL."""


class RowError(RecordError):
    """A row, context or header with a value that no record may hold."""


class JournalDamagedError(RecordError):
    """A journal line that is not what was written: `path`, `line` (from 1), what was found."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}")
        self.path = path
        self.line = line
        self.problem = problem


class JournalEmptyError(JournalDamagedError):
    """A journal of a process that was killed before it could record anything."""


class JournalInUseError(RecordError):
    """A journal that a process still writes."""


# -------------------------------------------------------------------------------------------- rows


Number: TypeAlias = int | float
Scalar: TypeAlias = str | int | float | bool
Instrument: TypeAlias = str | Mapping[str, Scalar]

_MOST = 2**63 - 1

COUNTERS = frozenset(
    (
        *("attempt", "event", "n", "repetition", "sample", "flaps"),
        *("codewords", "lost", "most_symbol_errors", "extrapolated_from"),
    )
)
"""Conditions that number what was measured; they set nothing."""

BESIDE_VALUES = COUNTERS | {
    *(
        "bits",
        "most_bits",
        "errors",
        "gate_ns",
        "planned_ns",
        "after_ns",
        "usual_ns",
        "degrees",
        "gid_index",
        "gpus_slowed",
        "pcie",
        "points",
    ),
    *("closed", "exchanges", "fails", "not_included", "passes", "tries", "wrong"),
}
"""Conditions that were counted or measured beside a value: rows of a case differ in them."""


class SharedConditions(dict[str, Scalar]):
    """Conditions that many rows have, such as those of one event: checked, and written, once.

    Nobody changes them: a row that has others has a copy. Raises `RowError` for what no record may
    hold.

    Attributes:
        text: as the journal writes them; empty before the first.
    """

    __slots__ = ("text",)

    def __init__(self, conditions: Mapping[str, Scalar]) -> None:
        check_scalars("conditions", conditions)
        super().__init__(conditions)
        self.text = ""


_NO_CONDITIONS: Mapping[str, Scalar] = MappingProxyType({})

_MOST_TEXTS = 10_000
_texts: set[str] = set()
"""Texts that were found to be fit for a row, until there are too many."""


def _note_text(text: str) -> None:
    if type(text) is str:
        if len(_texts) >= _MOST_TEXTS:
            _texts.clear()
        _texts.add(text)


@dataclass(frozen=True, slots=True, init=False)
class Row:
    """One value of one quantity of one subject.

    subject: what was measured: a circuit, a link, a server.
    quantity: dotted name, such as "reconfiguration.control".
    value, lower, upper: in `unit`, lower <= value <= upper, finite. For a time, `lower` and
        `upper` are the earliest and the latest it can have been; elsewhere the bounds of the
        value. None where there is no bound.
    unit: "ns", "dB", "dBm", "bit/s"; "1" for a pure number.
    time_ns: when, on the clock of the run, in integer nanoseconds.
    conditions: what held for this row alone; what held for all goes to its `Context`.

    Integers are within 64 bits. Raises `RowError` for anything else.
    """

    subject: str
    quantity: str
    value: Number
    lower: Number | None
    upper: Number | None
    unit: str
    time_ns: int
    conditions: Mapping[str, Scalar]

    # Some hundreds an event: what `dataclass` makes takes twice the time, for which every field is
    # set by its name and read again.
    def __init__(
        self,
        subject: str,
        quantity: str,
        value: Number,
        lower: Number | None,
        upper: Number | None,
        unit: str,
        time_ns: int,
        conditions: Mapping[str, Scalar] = _NO_CONDITIONS,
    ) -> None:
        # Texts come again and again: one look-up each says that all is well.
        if not (
            type(subject) is type(quantity) is type(unit) is str
            and subject in _texts
            and quantity in _texts
            and unit in _texts
        ):
            for name, text in (("subject", subject), ("quantity", quantity), ("unit", unit)):
                check_text(name, text)
                _note_text(text)
        # Nearly all rows are times with both bounds: one comparison says that all is well.
        if not (
            type(value) is type(lower) is type(upper) is int
            and -_MOST <= lower <= value <= upper <= _MOST
        ):
            _check_numbers(quantity, value, lower, upper)
        if type(time_ns) is not int or not -_MOST <= time_ns <= _MOST:
            raise RowError(f"time_ns: found {time_ns!r}, expected integer nanoseconds")
        if type(conditions) is not SharedConditions:
            if conditions is not _NO_CONDITIONS:
                check_scalars("conditions", conditions)
            conditions = dict(conditions)
        _set_subject(self, subject)
        _set_quantity(self, quantity)
        _set_value(self, value)
        _set_lower(self, lower)
        _set_upper(self, upper)
        _set_unit(self, unit)
        _set_time_ns(self, time_ns)
        _set_conditions(self, conditions)


_set_subject, _set_quantity, _set_value, _set_lower, _set_upper, _set_unit = (
    vars(Row)[name].__set__ for name in ("subject", "quantity", "value", "lower", "upper", "unit")
)
_set_time_ns, _set_conditions = vars(Row)["time_ns"].__set__, vars(Row)["conditions"].__set__


def _check_numbers(
    quantity: str, value: Number, lower: Number | None, upper: Number | None
) -> None:
    check_number("value", value)
    if lower is not None:
        check_number("lower", lower)
        if lower > value:
            raise RowError(f"{quantity}: lower {lower} is above value {value}")
    if upper is not None:
        check_number("upper", upper)
        if upper < value:
            raise RowError(f"{quantity}: upper {upper} is below value {value}")


@dataclass(frozen=True, slots=True)
class Context:
    """The context that many rows share.

    testbed, test: their names.
    instruments: the identity of all that took part: a text, or fields such as model, serial
        and firmware.
    simulated: whether any of them was.
    conditions: what held for all rows, such as the temperature.

    Raises `RowError` for a value that no record may hold.
    """

    testbed: str
    test: str
    # Mappings have no hash; equality still compares them.
    instruments: tuple[Instrument, ...] = field(hash=False)
    simulated: bool
    conditions: Mapping[str, Scalar] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_text("testbed", self.testbed)
        check_text("test", self.test)
        if type(self.simulated) is not bool:
            raise RowError(f"simulated: found {self.simulated!r}, expected True or False")
        if not isinstance(self.instruments, tuple):
            raise RowError(f"instruments: found {self.instruments!r}, expected a tuple")
        for instrument in self.instruments:
            if isinstance(instrument, str):
                check_text("instruments", instrument)
            else:
                check_scalars("instruments", instrument)
        check_scalars("conditions", self.conditions)
        instruments = tuple(i if isinstance(i, str) else dict(i) for i in self.instruments)
        object.__setattr__(self, "instruments", instruments)
        object.__setattr__(self, "conditions", dict(self.conditions))


def check_text(name: str, text: object) -> None:
    """Raise `RowError` unless `text` is a str that is not empty and that UTF-8 can hold."""
    if not isinstance(text, str) or not text:
        raise RowError(f"{name}: found {text!r}, expected text")
    if not _is_text(text):
        raise RowError(f"{name}: found {text!r}, which is not Unicode text")


@functools.lru_cache(maxsize=10_000)
def _is_text(text: str) -> bool:
    """Whether `text` is not empty, and UTF-8 can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return bool(text)


def check_number(name: str, number: object) -> None:
    """Raise `RowError` unless `number` is a finite float or an integer within 64 bits."""
    if type(number) is int and -_MOST <= number <= _MOST:
        return
    if isinstance(number, float):
        if not math.isfinite(number):
            raise RowError(f"{name}: found {number}, expected a finite number")
    elif type(number) is not int:
        raise RowError(
            f"{name}: found {number!r} of type {type(number).__name__}, expected int or float"
        )
    elif not -_MOST <= number <= _MOST:
        raise RowError(f"{name}: found {number}, expected an integer within 64 bits")


def check_scalars(name: str, values: object) -> None:
    """Raise `RowError` unless `values` maps names to texts, numbers and truth values."""
    if type(values) is not dict and not isinstance(values, Mapping):
        raise RowError(f"{name}: found {values!r}, expected a mapping")
    for key in values:
        value = values[key]
        if not (type(key) is str and _is_text(key)):
            check_text(name, key)
        if type(value) is int and -_MOST <= value <= _MOST:  # as good as always
            continue
        if type(value) is str and (not value or _is_text(value)):
            continue
        if isinstance(value, str):
            if value:
                check_text(f"{name}.{key}", value)
        elif not isinstance(value, bool):
            check_number(f"{name}.{key}", value)


# ------------------------------------------------------------------------------- outcomes of tests


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """The outcome of one test.

    nodeid: the test's name, as in the `test` of its rows.
    outcome: "passed", "failed", "skipped", "error" or another of pytest's words.
    duration_s: how long it took, in seconds of the wall.
    details: what a report tells of it: the command that repeats it, the failure in short, the
        wire's last lines. Whatever JSON can hold.

    Raises `RowError` for a name, word or duration that no record may hold.
    """

    __test__ = False

    nodeid: str
    outcome: str
    duration_s: float
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_text("nodeid", self.nodeid)
        check_text("outcome", self.outcome)
        check_number("duration_s", self.duration_s)
        if self.duration_s < 0:
            raise RowError(f"duration_s: found {self.duration_s}, expected seconds from 0")
        if not isinstance(self.details, Mapping):
            raise RowError(f"details: found {self.details!r}, expected a mapping")
        object.__setattr__(self, "details", dict(self.details))
