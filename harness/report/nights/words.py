"""How the nights' page says things: anchors, levels, counts."""

from __future__ import annotations

from collections.abc import Iterable

from harness.report.markup import text
from harness.report.units import shown, span
from harness.statistics.changes import Change, Trend


def anchor(lab: int, series: int | None = None) -> str:
    """The id of a lab's card or, with the number of a series at the lab, of its figure."""
    return f"n{lab}" if series is None else f"n{lab}-{series}"


def fold(lab: int, quantity: str) -> str:
    """The id of a quantity at a lab."""
    return f"n{lab}-{quantity}"


def count(number: int, one: str, many: str) -> str:
    """A number and what it counts."""
    return f"{number:,} {one if number == 1 else many}"


def searched(*parts: Iterable[str]) -> str:
    """Words that the filter finds an element by, as the value of an attribute."""
    return text(" ".join(dict.fromkeys(word for part in parts for word in part)).lower())


def level(value: float, lower: float, upper: float, unit: str) -> str:
    """A level with its interval, as markup."""
    value_shown = shown(value, unit)
    return (
        f"<b>{text(value_shown)}</b> "
        f'<span class="lr-with">({text(span(lower, upper, unit, value_shown))})</span>'
    )


def before(change: Change, unit: str) -> str:
    """The level before a change."""
    return level(change.before, change.before_lower, change.before_upper, unit)


def after(change: Change, unit: str) -> str:
    """The level from a change on."""
    return level(change.after, change.after_lower, change.after_upper, unit)


def slope(drift: Trend, unit: str) -> str:
    """How far a level drifts from night to night, as markup."""
    of = "dB" if unit == "dBm" else unit
    return f"{level(drift.per_night, drift.lower, drift.upper, of)} a night, {chance(drift.p)}"


def chance(p: float) -> str:
    """A p value, to one digit."""
    return f"p = {p:.0e}" if p > 1e-99 else "p < 1e-99"
