"""Bit errors over received power: points, fits, sensitivity, and what warmth does to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.report.captions import captioned, keys
from harness.report.drawing import Axis, Numbers, Plot, decades, even, tone
from harness.report.figures import Line, arrow, curve
from harness.report.frames import TestbedFrame, TestFrame
from harness.report.markup import figure, heading, row, table, text
from harness.report.units import plain, shown, span
from harness.statistics.sensitivity import Sensitivity

OVER_POWER = "bit_error_ratio.over_power"

_SENSITIVITY = "sensitivity"
_WIDTH, _HEIGHT = 520.0, 320.0
_LOWEST = 1e-18


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """One sweep of received power; arrays of one length, by power."""

    test: TestFrame
    counter: str
    name: str
    celsius: float
    dbm: Numbers
    errors: Numbers
    ratio: Numbers
    lower: Numbers
    upper: Numbers
    found: tuple[Sensitivity, ...]


def power_curves(frame: TestbedFrame) -> Iterator[PowerCurve]:
    """Every sweep of every test, by counter and temperature."""
    for test in frame.having(OVER_POWER):
        series = test.series[OVER_POWER]
        if "received_power_dbm" not in series.conditions:
            continue
        counters = np.array(list(map(counter_of, series.subject)))
        warm = series.conditions.get("temperature_c", np.full(counters.size, np.nan))
        for counter in dict.fromkeys(counters.tolist()):
            for celsius in np.unique(warm[counters == counter]):
                same = (warm == celsius) | (np.isnan(warm) & np.isnan(celsius))
                own = np.flatnonzero((counters == counter) & same)
                dbm = series.conditions["received_power_dbm"]
                own = own[np.argsort(dbm[own])]
                name = f"{celsius:g} °C" if np.isfinite(celsius) else test.label
                yield PowerCurve(
                    test,
                    counter,
                    name,
                    float(celsius),
                    dbm[own],
                    series.conditions["errors"][own],
                    series.value[own],
                    series.lower[own],
                    series.upper[own],
                    tuple(_found(test, counter, celsius)),
                )


def _found(test: TestFrame, counter: str, celsius: float) -> Iterator[Sensitivity]:
    series = test.series.get(_SENSITIVITY)
    if series is None:
        return
    held = series.conditions
    none = np.full(series.value.size, np.nan)
    warm = held.get("temperature_c", none)
    for n, subject in enumerate(series.subject):
        if subject == counter and (warm[n] == celsius or not np.isfinite(celsius)):
            floor = held.get("floor", none)[n]
            yield Sensitivity(
                float(held["target"][n]),
                float(series.value[n]),
                float(series.lower[n]),
                float(series.upper[n]),
                float(held["slope"][n]),
                float(floor) if np.isfinite(floor) else None,
                int(held["points"][n]),
                float(held["confidence"][n]),
                float(held["misfit"][n]),
            )


def sensitivity_part(frame: TestbedFrame, curves: list[PowerCurve]) -> str:
    """The table of all sensitivities, and figures for each counter, from one curve or more."""
    figures = []
    for counter in dict.fromkeys(each.counter for each in curves):
        own = [each for each in curves if each.counter == counter]
        by_test = [each for each in own if not np.isfinite(each.celsius)]
        by_heat = sorted((c for c in own if np.isfinite(c.celsius)), key=lambda c: c.celsius)
        figures += [_over_power(counter, group) for group in (by_test, by_heat) if group]
        if len({each.celsius for each in by_heat}) > 1:
            figures.append(_over_temperature(counter, by_heat))
    return _table(frame, curves) + f'<div class="lr-figures">{"".join(figures)}</div>'


def _table(frame: TestbedFrame, curves: list[PowerCurve]) -> str:
    rows = []
    for each in curves:
        apart = _oma_apart(each)
        for one in each.found:
            power = shown(one.dbm, "dBm")
            sure = (
                f"{100 * one.confidence:g} % interval {span(one.lower, one.upper, 'dBm', power)}",
                f"{one.points} powers",
                "simulated" if each.test.simulated else "",
            )
            floor = f"floor {plain(one.floor)}" if one.floor is not None else "no floor needed"
            misfit = f"p = {plain(one.misfit)}"
            oma = "" if apart is None else shown(one.dbm + apart, "dBm")
            cells = (
                text(each.counter),
                whole(each.name),
                f"<b>{whole(_scientific(one.target))}</b>",
            )
            fitted = f"{one.slope:.3f} decades of Q a dB; {floor}; {misfit}"
            rows.append(row((*cells, figure(power, sure), whole(oma), whole(fitted))))
    if not rows:
        return ""
    return heading(
        "Sensitivity",
        frame.simulated,
        "Received power at which the fitted ratio is reached: average, and outer modulation "
        "amplitude (OMA) where the extinction ratio is known. The interval holds what the counts "
        "do not know, not the error of the power monitor's own scale. A floor is fitted only "
        "where a curve without one does not fit.",
    ) + table(("counter", "at", "ratio", "sensitivity", "OMA", "fit"), rows, "Sensitivity")


def _scientific(value: float) -> str:
    """Write a ratio as 1e-12 or 2.4e-4."""
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}"


def _oma_apart(each: PowerCurve) -> float | None:
    held = each.test.series[OVER_POWER].conditions
    if "oma_dbm" not in held:
        return None
    return float(np.nanmedian(held["oma_dbm"] - held["received_power_dbm"]))


def _over_power(counter: str, curves: list[PowerCurve]) -> str:
    targets = sorted({one.target for each in curves for one in each.found})
    low = min([*targets, *(float(e.ratio[e.ratio > 0].min(initial=1)) for e in curves)])
    high = max(float(each.upper.max()) for each in curves)
    every = np.concatenate([each.dbm for each in curves])
    marked = [one.dbm for each in curves for one in each.found]
    across = even(min(every.min(), *marked, 99), max(every.max(), *marked, -99), "dBm")
    x = Axis(across.low, across.high, across.ticks, "received power (dBm)")
    plot = Plot(_WIDTH, _HEIGHT, x, decades(max(low / 3, _LOWEST), high), left=42, top=16)
    for target in targets:
        plot.rule(target, _scientific(target), level=True)
    for index, each in enumerate(curves):
        _draw(plot, each, index, x, low)
    about = (
        "Points with exact 95 % intervals; an arrow where no bit was wrong; the fit, and on the "
        "dashed ratios the sensitivity with its interval."
        + keys(enumerate(each.name for each in curves))
    )
    title = f"Bit error ratio of {counter} over received power"
    return captioned(
        title, any(each.test.simulated for each in curves), about, plot.svg(title, 360)
    )


def _draw(plot: Plot, each: PowerCurve, index: int, x: Axis, low: float) -> None:
    seen = each.errors > 0
    plot.dots(each.dbm[seen], each.ratio[seen], index)
    bars = []
    ends = zip(
        *plot.places(each.dbm[seen], each.lower[seen]),
        plot.places(each.dbm[seen], each.upper[seen])[1],
        strict=True,
    )
    for across, down, up in ends:
        bars.append(f"M{across:.1f} {down:.1f}V{up:.1f}m-2.5 0h5M{across - 2.5:.1f} {down:.1f}h5")
    if bars:
        plot.add(f'<path class="lr-range {tone(index)}" d="{"".join(bars)}"/>')
    for dbm, bound in zip(each.dbm[~seen], each.upper[~seen], strict=True):
        arrow(plot, float(dbm), float(bound), index)
    if each.found:
        fitted = each.found[0]
        powers = np.linspace(x.low, x.high, 160)
        ratios = np.array([fitted.ratio_at(float(dbm)) for dbm in powers])
        inside = (ratios > low / 3) & (ratios <= each.upper.max())
        if inside.any():
            plot.line(powers[inside], ratios[inside], index)
    for one in each.found:
        plot.range(one.lower, one.upper, one.target, index, half=5)


def _over_temperature(counter: str, curves: list[PowerCurve]) -> str:
    targets = sorted({one.target for each in curves for one in each.found})
    lines = []
    for target in targets:
        points = [
            (each.celsius, one.dbm, one.lower, one.upper)
            for each in curves
            for one in each.found
            if one.target == target
        ]
        lines.append(Line(f"at {_scientific(target)}", *np.array(points).T))
    title = f"Sensitivity of {counter} over temperature"
    drawn = curve(lines, x="temperature", x_unit="°C", y_unit="dBm", label=title, logarithmic=False)
    about = "Its interval is the band." + keys(enumerate(line.name for line in lines))
    return captioned(title, any(each.test.simulated for each in curves), about, drawn)


def counter_of(subject: str) -> str:
    """The counter of a row; words that held for the row stand behind it."""
    return subject.partition(", ")[0]


def whole(words: str) -> str:
    """Words that stay on one line, however narrow the page."""
    return f'<span class="lr-what">{text(words)}</span>'
