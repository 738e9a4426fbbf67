"""Each answer of a run's page as a small picture: its interval, its value and its limit."""

import math
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from lightrig.harness.report.estimates import CONFIDENCE, Estimate
from lightrig.harness.report.frames import Numbers
from lightrig.harness.report.units import shown
from lightrig.harness.statistics.quantiles import NotEnough, Quantile, quantile

WIDTH, HEIGHT = 150, 16
_EDGE = 4
_MEDIAN = 0.5


class Interval(NamedTuple):
    """What is drawn of an estimate, in its unit.

    is_bound: whether the ends are those of an interval; else all samples lie between them.
    """

    lower: float
    value: float
    upper: float
    is_bound: bool


def interval_of(one: Estimate) -> Interval | None:
    """Return the statistic that the limit is on with its interval, else the median with its own.

    Too few samples for one have the range of all of them; None where those are not finite.
    """
    limit = one.limit
    side = limit.side if limit else None
    low, high, value = one.test.valued_samples(one.quantity, side)
    found: Quantile | NotEnough = one.median
    if limit is not None and limit.quantile in {0.0, 1.0}:
        middle = (low + high) / 2
        at = int(middle.argmax() if side == "upper" else middle.argmin())
        drawn = Interval(float(low[at]), float(middle[at]), float(high[at]), is_bound=True)
        return drawn if _is_finite(drawn) else None
    if limit is not None and side == "upper" and limit.quantile > _MEDIAN:
        found = quantile(low, high, limit.quantile, CONFIDENCE, "upper", value)
    if isinstance(found, NotEnough):
        drawn = Interval(float(low.min()), float(np.median(value)), float(high.max()), False)
    else:
        lower = found.value if found.lower is None else found.lower
        upper = found.value if found.upper is None else found.upper
        drawn = Interval(lower, found.value, upper, is_bound=True)
    return drawn if _is_finite(drawn) else None


def draw(one: Estimate) -> Markup:
    """Draw an estimate against its limit, without an axis; nothing where it has no finite value.

    The drawing begins at zero, but for levels in dBm; ratios are drawn by their exponents.
    """
    found = interval_of(one)
    if found is None:
        return Markup()
    limit = one.limit.value if one.limit else None
    every = np.array([*found[:3], *([] if limit is None else [limit])], dtype=float)
    places = _places(every, one.unit)
    lower, value, upper = places[:3]
    kind = "lr-i-interval" if found.is_bound else "lr-i-all"
    parts = [
        f'<path class="{kind}" d="M{lower:.1f} {HEIGHT / 2:g}H{max(upper, lower + 1):.1f}"/>',
        f'<circle class="lr-i-value" cx="{value:.1f}" cy="{HEIGHT / 2:g}" r="3"/>',
    ]
    label = shown(found.value, one.unit)
    if limit is not None:
        parts.append(f'<path class="lr-i-limit" d="M{places[3]:.1f} 1V{HEIGHT - 1}"/>')
        label += f" beside the limit {shown(limit, one.unit)}"
    return Markup(
        '<svg class="lr-interval" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(WIDTH, HEIGHT, label, Markup("".join(parts)))  # noqa: S704 - numbers


def _places(values: Numbers, unit: str) -> Numbers:
    """Return where values are drawn, from left to right in the picture's units."""
    if unit == "1" and values.min() > 0:
        values = np.log10(values)
        low, high = math.floor(values.min()), math.ceil(values.max())
    elif unit == "dBm":
        low, high = values.min(), values.max()
    else:
        low, high = min(0.0, values.min()), max(0.0, values.max())
    span = (high - low) or 1.0
    return np.asarray(_EDGE + (values - low) / span * (WIDTH - 2 * _EDGE))


def _is_finite(found: Interval) -> bool:
    return all(map(math.isfinite, found[:3]))
