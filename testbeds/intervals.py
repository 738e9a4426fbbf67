"""A value with its interval as text: to the digits that its uncertainty carries, ends outward.

What is printed holds what is known: the lower end is rounded down and the upper end up, so that
the printed interval contains the computed one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from lightrig.testbeds.quantities import SCALES

ENDLESS = 1e300
"""A bound at least this far away is none."""
NO_BOUND = "no bound"

_LEGIBLE_DIGITS = 6
"""Of values with an interval, however narrow: the ends are rounded outward to that."""
_MOST_DIGITS = 9
"""Of a value that is known exactly; more are rounded outward too."""
_BOUND_DIGITS = 3
"""Of a bound that stands alone."""
_MOST_FURTHER = 3
"""Digits behind the last one of the interval, of an end near zero; ratios have any number."""
_LEAST_DECIMAL = Decimal("1e-3")
"""Smaller ratios have an exponent, so that those of errors are compared at a glance."""
_LONGEST = 7
"""Whole digits of a plain number; greater ones have an exponent."""
_CONTEXT = Context(prec=400)


@dataclass(frozen=True, slots=True)
class Written:
    """A value and the ends of its interval as text, all in one unit and to the same digit.

    Attributes:
        value: the value with its unit; empty where none was given.
        lower, upper: the ends without a unit; "no bound" where there is none.
        unit: the unit as it follows a number; empty for a plain number.
    """

    value: str
    lower: str
    upper: str
    unit: str

    @property
    def ends(self) -> str:
        """Both ends; with their unit where no value with its unit stands beside them."""
        both = f"{self.lower} … {self.upper}"
        bare = self.value or not self.unit or self.upper == NO_BOUND
        return both if bare else f"{both} {self.unit}"


def interval(lower: float, upper: float, unit: str, value: float | None = None) -> Written:
    """Write an interval in `unit`, and the value that it belongs to, all to the same digit.

    That digit is the second one of half the interval's width (GUM, JCGM 100:2008, 7.2.6). A
    value that is smaller than that has one digit of its own, an end two. The lower end is
    rounded down, the upper end up, the value to the nearest. Ends from `ENDLESS` on are
    "no bound".
    """
    known = [float(each) for each in (lower, upper, value) if each is not None]
    finite = [Decimal(repr(each)) for each in known if abs(each) < ENDLESS]
    size, name = _scale(unit, finite, value)
    finite = [_CONTEXT.divide(each, size) for each in finite]
    half = (max(finite) - min(finite)) / 2 if finite else Decimal(0)
    place = Decimal(f"{half:.1e}").adjusted() - 1
    if half:
        place = max(place, max(map(abs, finite)).adjusted() - _LEGIBLE_DIGITS + 1)
    else:
        place = _place(finite[0], _MOST_DIGITS) if finite else 0
    if half and not all(finite):
        # From or to zero, as a bound that stands alone.
        place = min(place, max(map(abs, finite)).adjusted() - _BOUND_DIGITS + 1)

    def write(end: float, rounding: str) -> str:
        if not abs(end) < ENDLESS:
            return NO_BOUND
        number = _CONTEXT.divide(Decimal(repr(float(end))), size)
        last = place
        if half and number:
            digits = 2 if rounding != ROUND_HALF_EVEN else 1
            least = place - _MOST_FURTHER if unit != "1" else -math.inf
            last = int(max(min(place, number.adjusted() - digits + 1), least))
        return _number(number, last, rounding, unit)

    middle = "" if value is None else write(value, ROUND_HALF_EVEN)
    if middle and name and middle != NO_BOUND:
        middle = f"{middle} {name}"
    return Written(middle, write(lower, ROUND_FLOOR), write(upper, ROUND_CEILING), name)


def at_most(bound: float, unit: str, digits: int = 3) -> str:
    """Write an upper bound, or an uncertainty, in `unit` with a few digits, rounded up."""
    return _bound(bound, unit, ROUND_CEILING, digits)


def at_least(bound: float, unit: str) -> str:
    """Write a lower bound in `unit` with three digits, rounded down."""
    return _bound(bound, unit, ROUND_FLOOR, _BOUND_DIGITS)


def _bound(bound: float, unit: str, rounding: str, digits: int) -> str:
    if not abs(bound) < ENDLESS:
        return NO_BOUND
    exact = Decimal(repr(float(bound)))
    size, name = _scale(unit, [exact], bound)
    number = _CONTEXT.divide(exact, size)
    return f"{_number(number, _place(number, digits), rounding, unit)} {name}".rstrip()


def _scale(unit: str, finite: list[Decimal], value: float | None) -> tuple[Decimal, str]:
    """Return the factor and the name of the unit that suits the value, else the greater end."""
    steps = SCALES.get(unit, ((1.0, "" if unit == "1" else unit),))
    if value is not None and 0 < abs(value) < ENDLESS:
        greatest = Decimal(repr(abs(float(value))))
    else:
        greatest = max(map(abs, finite), default=Decimal(0))
    # Three digits are cut first, as for a value alone: 999.9 µs is 1 ms.
    fitting = [
        (Decimal(repr(size)), name)
        for size, name in steps
        if float(f"{float(greatest) / size:.3g}") >= 1
    ]
    return fitting[-1] if fitting else (Decimal(repr(steps[0][0])), steps[0][1])


def _place(number: Decimal, digits: int) -> int:
    """Return the power of ten of a number's last digit, of at most `digits`."""
    last = number.normalize().as_tuple().exponent
    assert isinstance(last, int)
    return max(number.adjusted() - digits + 1, last)


def _number(number: Decimal, place: int, rounding: str, unit: str) -> str:
    """Write a number to the digit at `place`, a power of ten."""
    cut = number.quantize(Decimal(1).scaleb(place), rounding=rounding, context=_CONTEXT)
    if not cut:
        return "0"
    small = unit == "1" and abs(cut) < _LEAST_DECIMAL
    if small or cut.adjusted() >= _LONGEST:
        digits = max(cut.adjusted() - place, 0)
        mantissa = cut.scaleb(-cut.adjusted(), context=_CONTEXT)
        return f"{mantissa:.{digits}f}e{cut.adjusted()}"
    return f"{cut:.{max(-place, 0)}f}"
