"""What was seen of each value while a bench was watched: changes, least, greatest and last."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightrig.harness.bench.live_values import Seen
from lightrig.harness.bench.named_values import NO_LIGHT, NamedValue, Value, shown_value

NOTICED = {"dBm": 0.5, "dB": 0.5, "°C": 1.0}
"""By unit, from which difference on a new value is a change, and not noise; else any is."""


@dataclass(slots=True)
class ValueHistory:
    """What was seen of one value.

    Attributes:
        latest: the newest reading.
        least, greatest: of numbers, those that were read; None of anything else.
        count: number of readings.
        changes: number of changes, as `NOTICED` has it.
        changed: when the last change was seen, in ns of the system's clock; None before one.
        zero: the value from which differences are shown; None where there are none.
    """

    latest: Seen
    least: float | None = None
    greatest: float | None = None
    count: int = 0
    changes: int = 0
    changed: int | None = None
    zero: float | None = None
    _settled: Value = field(default=None, init=False)

    def add(self, seen: Seen) -> bool:
        """Add a reading; return whether it is a change."""
        value, before = seen.value.value, self._settled
        self.latest = seen
        self.count += 1
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            number = float(value)
            self.least = number if self.least is None else min(self.least, number)
            self.greatest = number if self.greatest is None else max(self.greatest, number)
        if self.count == 1:
            self._settled = value
            return False
        if not _differs(value, before, seen.value.unit):
            return False
        self._settled = value
        self.changes += 1
        self.changed = seen.at
        return True

    def set_zero(self) -> None:
        """Show differences from the newest reading, where it is a power or a ratio."""
        if self.latest.value.unit in ("dBm", "dB"):
            self.zero = _number(self.latest.value.value)

    @property
    def text(self) -> str:
        """The newest value as a person reads it, beside its difference from zero."""
        value = self.latest.value
        shown = _shown(value, value.value)
        number = _number(value.value)
        if self.zero is None or number is None:
            return shown
        return f"{shown} ({number - self.zero:+.2f} dB)"

    def summary(self) -> dict[str, Any]:
        """Return least, greatest and last value as plain values."""
        value = self.latest.value
        return {
            "name": value.name,
            "unit": value.unit,
            "least": _plain(self.least),
            "greatest": _plain(self.greatest),
            "last": _plain(value.value),
            "readings": self.count,
            "changes": self.changes,
            "remark": value.remark,
        }

    def summary_cells(self) -> tuple[str, str, str, str]:
        """Return name, least, greatest and last value as a person reads them."""
        value = self.latest.value
        ends = (self.least, self.greatest)
        least, greatest = ("" if end is None else _shown(value, end) for end in ends)
        return value.name, least, greatest, self.text


class LiveHistory:
    """The histories of all values, by name, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.values: dict[str, ValueHistory] = {}

    def add(self, readings: Iterable[Seen]) -> list[ValueHistory]:
        """Add readings that are new; return the histories of those that are first or changes."""
        noticed = []
        for seen in readings:
            history = self.values.get(seen.value.name)
            if history is None:
                history = self.values[seen.value.name] = ValueHistory(seen)
            elif history.latest.at == seen.at:
                continue
            if history.add(seen) or history.count == 1:
                noticed.append(history)
        return noticed

    def set_zero(self) -> None:
        """Show differences of all powers from what they are now."""
        for history in self.values.values():
            history.set_zero()

    def by_subject(self) -> Mapping[str, list[ValueHistory]]:
        """Return the histories by port, channel or instrument."""
        found: dict[str, list[ValueHistory]] = {}
        for name, history in self.values.items():
            found.setdefault(name.rpartition(".")[0], []).append(history)
        return found


def _number(value: Value) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def _differs(value: Value, before: Value, unit: str) -> bool:
    number, former = _number(value), _number(before)
    if number is None or former is None:
        return value != before
    return abs(number - former) >= NOTICED.get(unit, 0) and number != former


def _plain(value: Value) -> Value:
    """Return a value as JSON can hold it."""
    return NO_LIGHT if value == -math.inf else value


def _shown(value: NamedValue, present: Value) -> str:
    kind = value.name.rpartition(".")[2]
    if value.unit in ("dBm", "dB") and _number(present) is not None:
        return f"{present:.2f} {value.unit}"  # of one width, so that a column does not jump
    return shown_value(kind, present, value.unit)
