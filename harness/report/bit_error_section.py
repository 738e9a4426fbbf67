"""Bit errors: counts of gates, error ratio over received power, sensitivity, temperature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lightrig.harness.quantities import optical
from lightrig.harness.report.drawing import Axis, Numbers, Plot, decades, even, tone
from lightrig.harness.report.estimates import CONFIDENCE, Estimate, estimate
from lightrig.harness.report.figures import Line, arrow, curve
from lightrig.harness.report.frames import Series, TestbedFrame, TestFrame
from lightrig.harness.report.quantity_section import beside_column
from lightrig.harness.report.sections import (
    Cell,
    Column,
    Estimates,
    Figure,
    Figures,
    Limits,
    RowGroup,
    Section,
    SectionData,
    Styled,
    Table,
    sentence,
    test_column,
    verdict_column,
)
from lightrig.harness.report.units import Value, plain, shown
from lightrig.harness.statistics.bit_errors import (
    ErrorRatio,
    ErrorRatioVerdict,
    error_ratio,
    judge_error_ratio,
)
from lightrig.harness.statistics.bursts import GateErrors, judge_gates
from lightrig.harness.statistics.sensitivity import Sensitivity
from lightrig.harness.statistics.verdicts import Verdict
from lightrig.testbeds import Limit
from lightrig.testbeds.intervals import interval

_OVER_POWER, _SENSITIVITY, _VOID = "bit_error_ratio.over_power", "sensitivity", "bit_errors.void"
_RATIOS = frozenset(
    one.name
    for one in optical.OPTICAL
    if one.name.startswith(("bit_error_ratio", "nic_error_ratio.")) and one.name != _OVER_POWER
)
_SHOWN = _RATIOS | {_OVER_POWER, _VOID, "bit_errors", _SENSITIVITY, f"{_SENSITIVITY}.oma"}
_DECIDED = {"accept": "pass", "reject": "fail"}
_RANK = ("pass", "not enough data", "fail")


# ---------------------------------------------------------------------------------- gates


def _estimates(frame: TestbedFrame, limits: Limits) -> Estimates:
    """Estimate each ratio, with the verdict on its limit gate by gate, as its test judged."""
    found: dict[str, list[Estimate]] = {}
    for quantity in dict.fromkeys(name for test in frame.tests for name in test.series):
        if quantity not in _RATIOS:
            continue
        limit = limits.get(quantity)
        for test in frame.having(quantity):
            one = estimate(test, quantity)
            if one is not None:
                verdict = None if limit is None else _judge(limit, test.series[quantity])
                one = replace(one, limit=limit, verdict=verdict, answer=_worst(one))
                found.setdefault(quantity, []).append(one)
    return found


def _counters(one: Estimate) -> Cell:
    names = sorted({_counter_of(each) for each in one.test.series[one.quantity].subject})
    return names[0] if len(names) == 1 else f"{len(names)} counters"


def _worst(one: Estimate) -> Value:
    """Return the ratio of the worst counter with its interval and counts."""
    series = one.test.series[one.quantity]
    counters = np.array(list(map(_counter_of, series.subject)))
    names = dict.fromkeys(counters.tolist())
    found = {name: _pooled(series, counters == name) for name in names}
    name = max(found, key=lambda each: (found[each].value, found[each].upper))
    ratio = found[name]
    decided = any(map(_decided, series.subject))
    written = interval(ratio.lower, ratio.upper, "1", ratio.value)
    context = (
        f"worst: {name}" if len(names) > 1 else "",
        f"{ratio.errors:,} errors in {plain(float(ratio.bits))}",
        f"{100 * CONFIDENCE:g} % interval {written.ends}, "
        f"{'valid at any time' if decided else 'exact'} for {_assumed(series, decided)}",
        "simulated" if one.test.simulated else "",
    )
    stated = written.value if ratio.errors else f"at most {written.upper}"
    return Value(stated, context)


def _assumed(series: Series, decided: bool) -> str:
    """Return what an interval assumes of the errors: a sequential test uses the declared burst."""
    declared = series.conditions.get("burst")
    if not decided or declared is None or np.isnan(declared).all():
        return "independent errors"
    return f"bursts of {np.nanmax(declared):g}"


def _pooled(series: Series, chosen: Numbers) -> ErrorRatio:
    """Pool the gates of one counter; a sequential test states the bounds itself."""
    errors, bits = (int(series.conditions[name][chosen].sum()) for name in ("errors", "bits"))
    most = series.conditions.get("most_bits", series.conditions["bits"])[chosen]
    most_bits = int(np.where(np.isnan(most), series.conditions["bits"][chosen], most).sum())
    exact = error_ratio(errors, bits, CONFIDENCE, most_bits)
    if not any(map(_decided, series.subject)):
        return exact
    return replace(
        exact, lower=float(series.lower[chosen].min()), upper=float(series.upper[chosen].max())
    )


def _decided(subject: str) -> str | None:
    """Return the decision of a sequential test, a textual condition behind the subject."""
    return _DECIDED.get(subject.rpartition(", ")[2])


def _judge(limit: Limit, series: Series) -> Verdict:
    """Judge as the test did: the gates of one counter together, or by its sequential test."""
    confidence = limit.confidence or CONFIDENCE
    gates: dict[str, list[GateErrors]] = {}
    judged: list[tuple[int, ErrorRatioVerdict]] = []
    burst = None
    for subject, gate, declared in _gates(series):
        burst = burst if np.isnan(declared) else declared
        if (outcome := _decided(subject)) is None:
            gates.setdefault(_counter_of(subject), []).append(gate)
        else:
            one = judge_error_ratio(gate.errors, gate.bits, limit.value, confidence)
            judged.append((_RANK.index(outcome), one))
    for each in gates.values():
        one = judge_gates(each, limit.value, confidence, burst)
        judged.append((_RANK.index(one.outcome), one))
    worst, one = max(judged, key=lambda pair: pair[0])
    failed = sum(rank == 2 for rank, _ in judged)
    unsure = sum(rank > 0 for rank, _ in judged)
    outcome = _RANK[worst]
    needed = one.needed if outcome == "not enough data" else None
    return Verdict(outcome, series.value.size, failed, unsure, needed, one.reason)  # type: ignore[arg-type]


def _gates(series: Series) -> Iterator[tuple[str, GateErrors, float]]:
    """Yield subject, errors and declared burst of each gate.

    Rows of earlier versions state errors and bits alone, as of a single look.
    """
    stated = series.conditions
    none = np.full(series.value.size, np.nan)
    names = "errors", "bits", "most_bits", "error_looks", "error_squares", "error_largest", "burst"
    columns = (stated.get(name, none).tolist() for name in names)
    for subject, errors, bits, most, looks, squares, largest, burst in zip(
        series.subject, *columns, strict=True
    ):
        most_bits = None if np.isnan(most) else int(most)
        gate = GateErrors.of_looks(int(bits), [int(errors)], most_bits)
        if not np.isnan(looks):
            seen = int(looks), int(squares), int(largest)
            gate = GateErrors(int(errors), int(bits), *seen, most_bits)
        yield subject, gate, burst


def _counter_of(subject: str) -> str:
    """Return the counter of a row; textual conditions follow it."""
    return subject.partition(", ")[0]


class _VoidGate(NamedTuple):
    """A gate that counted nothing, and why."""

    test: TestFrame
    counter: str
    received_dbm: float
    reason: str


def _void_gates(data: SectionData) -> Iterator[_VoidGate]:
    for test in data.frame.having(_VOID):
        series = test.series[_VOID]
        power = series.conditions.get("received_power_dbm", np.full(series.value.size, np.nan))
        for subject, dbm in zip(series.subject, power, strict=True):
            counter, _, reason = subject.partition(", ")
            yield _VoidGate(test, counter, float(dbm), reason)


def _received(gate: _VoidGate) -> Cell:
    stated = shown(gate.received_dbm, "dBm") if np.isfinite(gate.received_dbm) else ""
    return Styled(stated, "line")


_GATES = Table(
    "Gates",
    (
        test_column(),
        Column("counter", _counters),
        Column("gates", lambda one: f"{one.test.series[one.quantity].value.size:,}"),
        Column("ratio", _worst),
        beside_column("pattern"),
        verdict_column(),
    ),
    rows=lambda data: data.each(),
    about="All gates of a counter pooled; of several counters the worst. The interval is exact "
    "(Clopper and Pearson); no error in n bits bounds a ratio and does not make it zero. A gate "
    "that lost its pattern, its signal or its counters is listed below and in no number. A gate "
    "states its own time only: a link that is bad now and then is good in most gates. No GUM "
    "budget: a counting interval, from errors and bits.",
    group=lambda one: RowGroup(sentence(one.quantity), limit=one.limit),
)

_GATES_THAT_COUNTED_NOTHING = Table(
    "Gates that counted nothing",
    (
        Column[_VoidGate]("test", lambda gate: gate.test),
        Column[_VoidGate]("counter", lambda gate: gate.counter),
        Column[_VoidGate]("received", _received),
        Column[_VoidGate]("reason", lambda gate: Styled(gate.reason, "strong")),
    ),
    rows=_void_gates,
    about="These bound no ratio. One is expected where power is reduced to pattern loss.",
)


# ------------------------------------------------------------- ratio over received power

_WIDTH, _HEIGHT = 520.0, 320.0
_LOWEST = 1e-18


@dataclass(frozen=True, slots=True)
class _PowerCurve:
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


def _power_curves(frame: TestbedFrame) -> Iterator[_PowerCurve]:
    """Yield every sweep of every test, by counter and temperature."""
    for test in frame.having(_OVER_POWER):
        series = test.series[_OVER_POWER]
        if "received_power_dbm" not in series.conditions:
            continue
        counters = np.array(list(map(_counter_of, series.subject)))
        warm = series.conditions.get("temperature_c", np.full(counters.size, np.nan))
        for counter in dict.fromkeys(counters.tolist()):
            for celsius in np.unique(warm[counters == counter]):
                same = (warm == celsius) | (np.isnan(warm) & np.isnan(celsius))
                chosen = np.flatnonzero((counters == counter) & same)
                dbm = series.conditions["received_power_dbm"]
                chosen = chosen[np.argsort(dbm[chosen])]
                name = f"{celsius:g} °C" if np.isfinite(celsius) else test.label
                yield _PowerCurve(
                    test,
                    counter,
                    name,
                    float(celsius),
                    dbm[chosen],
                    series.conditions["errors"][chosen],
                    series.value[chosen],
                    series.lower[chosen],
                    series.upper[chosen],
                    tuple(_found(test, counter, celsius)),
                )


def _found(test: TestFrame, counter: str, celsius: float) -> Iterator[Sensitivity]:
    series = test.series.get(_SENSITIVITY)
    if series is None:
        return
    conditions = series.conditions
    none = np.full(series.value.size, np.nan)
    warm = conditions.get("temperature_c", none)
    for n, subject in enumerate(series.subject):
        if subject == counter and (warm[n] == celsius or not np.isfinite(celsius)):
            floor = conditions.get("floor", none)[n]
            yield Sensitivity(
                float(conditions["target"][n]),
                float(series.value[n]),
                float(series.lower[n]),
                float(series.upper[n]),
                float(conditions["slope"][n]),
                float(floor) if np.isfinite(floor) else None,
                int(conditions["points"][n]),
                float(conditions["confidence"][n]),
                float(conditions["misfit"][n]),
                "PAM4" if conditions.get("levels", none)[n] == 4 else "NRZ",
            )


class _Found(NamedTuple):
    """One sensitivity and the sweep that it was fitted to."""

    curve: _PowerCurve
    found: Sensitivity


def _sensitivities(data: SectionData) -> Iterator[_Found]:
    for each in _power_curves(data.frame):
        for one in each.found:
            yield _Found(each, one)


def _sensitivity(row: _Found) -> Cell:
    one = row.found
    written = interval(one.lower, one.upper, "dBm", one.dbm)
    context = (
        f"{100 * one.confidence:g} % interval {written.ends}",
        f"{one.points} powers",
        "simulated" if row.curve.test.simulated else "",
    )
    return Value(written.value, context)


def _pattern(row: _Found) -> Cell:
    return Styled(row.curve.test.series[_SENSITIVITY].beside.get("pattern", ""), "line")


def _oma(row: _Found) -> Cell:
    offset = _oma_offset_db(row.curve)
    return None if offset is None else Styled(shown(row.found.dbm + offset, "dBm"), "line")


def _fit(row: _Found) -> Cell:
    one = row.found
    floor = f"floor {plain(one.floor)}" if one.floor is not None else "no floor needed"
    curve_of = f"{one.modulation}, {one.slope:.3f} decades of Q a dB"
    fitted = f"{curve_of}; {floor}; p = {plain(one.misfit)} of the fit"
    return Styled(fitted, "line")


def _figures(data: SectionData) -> Iterator[Figure]:
    curves = list(_power_curves(data.frame))
    for counter in dict.fromkeys(each.counter for each in curves):
        of_counter = [each for each in curves if each.counter == counter]
        by_test = [each for each in of_counter if not np.isfinite(each.celsius)]
        by_temperature = sorted(
            (each for each in of_counter if np.isfinite(each.celsius)), key=lambda c: c.celsius
        )
        for group in (by_test, by_temperature):
            if group:
                yield _over_power(counter, group)
        if len({each.celsius for each in by_temperature}) > 1:
            yield _over_temperature(counter, by_temperature)


def _scientific(value: float) -> str:
    """Write a ratio as 1e-12 or 2.4e-4."""
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}"


def _oma_offset_db(each: _PowerCurve) -> float | None:
    """Return OMA less average power in dB; None where the extinction ratio is unknown."""
    conditions = each.test.series[_OVER_POWER].conditions
    if "oma_dbm" not in conditions:
        return None
    return float(np.nanmedian(conditions["oma_dbm"] - conditions["received_power_dbm"]))


def _over_power(counter: str, curves: Sequence[_PowerCurve]) -> Figure:
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
    title = f"Bit error ratio of {counter} over received power"
    return Figure(
        title,
        plot.svg(title, 360),
        any(each.test.simulated for each in curves),
        "Points with exact 95 % intervals; an arrow where no bit was wrong; the fit, and on the "
        "dashed ratios the sensitivity with its interval.",
        [(number, each.name) for number, each in enumerate(curves)],
    )


def _draw(plot: Plot, each: _PowerCurve, index: int, x: Axis, low: float) -> None:
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


def _over_temperature(counter: str, curves: Sequence[_PowerCurve]) -> Figure:
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
    return Figure(
        title,
        drawn,
        any(each.test.simulated for each in curves),
        "Its interval is the band.",
        [(number, line.name) for number, line in enumerate(lines)],
    )


BIT_ERRORS = Section(
    optical.BIT_ERRORS,
    estimates=_estimates,
    shows=_SHOWN.__contains__,
    parts=(
        _GATES,
        _GATES_THAT_COUNTED_NOTHING,
        Table(
            "Sensitivity",
            (
                Column[_Found]("counter", lambda row: row.curve.counter),
                Column[_Found]("at", lambda row: Styled(row.curve.name, "line")),
                Column[_Found]("ratio", lambda row: Styled(_scientific(row.found.target), "line")),
                Column[_Found]("sensitivity", _sensitivity),
                Column[_Found]("OMA", _oma),
                Column[_Found]("pattern", _pattern),
                Column[_Found]("fit", _fit),
            ),
            rows=_sensitivities,
            about="Received power at which the fitted ratio is reached: average, and outer "
            "modulation amplitude (OMA) where the extinction ratio is known. The interval covers "
            "the counting statistics and the scale of received power (0.06 dB, k = 1). The curve "
            "is that of the modulation. A floor is fitted only where a curve without one does not "
            "fit; counts that fit neither (p below 0.01) give no sensitivity.",
        ),
        Figures(_figures),
    ),
)
