"""Bit errors: what gates counted, ratio over received power, sensitivity and temperature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from harness.report.bit_error_curves import (
    OVER_POWER,
    counter_of,
    power_curves,
    sensitivity_part,
    whole,
)
from harness.report.drawing import Numbers
from harness.report.estimates import CONFIDENCE, Estimate, estimate
from harness.report.frames import Series, TestbedFrame
from harness.report.markup import figure, heading, mark, row, table, text, verdict_mark
from harness.report.tables import named
from harness.report.units import plain, shown, span
from harness.statistics import Verdict
from harness.statistics.bit_errors import ErrorRatio, error_ratio, judge_error_ratio
from testbeds import Limit

FAMILIES = frozenset(
    ("bit_error_ratio", "nic_error_ratio", "bit_errors", "sensitivity", "temperature")
)
"""The quantities of this section."""

_VOID = "bit_errors.void"
_DECIDED = {"accept": "pass", "reject": "fail"}
_RANK = ("pass", "not enough data", "fail")


def bit_error_estimates(
    frame: TestbedFrame, limits: Mapping[str, Limit]
) -> dict[str, list[Estimate]]:
    """Each ratio with the verdict on its limit, gate by gate as its test judged."""
    found: dict[str, list[Estimate]] = {}
    for quantity in _ratios(frame):
        limit = limits.get(quantity)
        for test in frame.having(quantity):
            one = estimate(test, quantity)
            if one is not None:
                verdict = None if limit is None else _judge(limit, test.series[quantity])
                found.setdefault(quantity, []).append(replace(one, limit=limit, verdict=verdict))
    return found


def bit_error_section(frame: TestbedFrame, found: Mapping[str, list[Estimate]]) -> str:
    """Everything about bit errors; empty where none were counted."""
    curves = list(power_curves(frame))
    if not found and not curves and not frame.having(_VOID):
        return ""
    return (
        f'<h3 class="lr-h3">Bit errors {mark(frame.simulated)}</h3>'
        + (_gates(frame, found) if found else "")
        + _void(frame)
        + (sensitivity_part(frame, curves) if curves else "")
    )


def _ratios(frame: TestbedFrame) -> list[str]:
    every = dict.fromkeys(quantity for test in frame.tests for quantity in test.series)
    kinds = ("bit_error_ratio", "nic_error_ratio")
    return [q for q in every if q.partition(".")[0] in kinds and q != OVER_POWER]


# ---------------------------------------------------------------------------------- gates


def _gates(frame: TestbedFrame, found: Mapping[str, list[Estimate]]) -> str:
    index = {id(test): place for place, test in enumerate(frame.tests)}
    rows = []
    for quantity, each in found.items():
        limit = each[0].limit
        claim = f" · limit <b>{text(str(limit).partition(' ')[2])}</b>" if limit else ""
        name = text(quantity.replace("_", " "))
        rows.append(f'<tr class="lr-group"><td colspan="5"><b>{name}</b>{claim}</td></tr>')
        for one in each:
            series = one.test.series[quantity]
            rows.append(
                row(
                    (
                        named(one.test, index[id(one.test)]),
                        text(_counters(series)),
                        f"{series.value.size:,}",
                        _worst(series, one.test.simulated),
                        verdict_mark(one.verdict) if one.verdict else "",
                    )
                )
            )
    return heading(
        "Gates",
        frame.simulated,
        "All gates of a counter together, and of several counters the worst. The interval is exact "
        "(Clopper and Pearson); no error in n bits bounds a ratio, and does not make it zero. A "
        "gate that lost its pattern, its signal or its counters stands below, and nowhere among "
        "the numbers.",
    ) + table(("test", "counter", "gates", "ratio", "verdict"), rows, "Gates")


def _counters(series: Series) -> str:
    names = sorted({counter_of(each) for each in series.subject})
    return names[0] if len(names) == 1 else f"{len(names)} counters"


def _worst(series: Series, simulated: bool) -> str:
    counters = np.array(list(map(counter_of, series.subject)))
    names = dict.fromkeys(counters.tolist())
    found = {name: _pooled(series, counters == name) for name in names}
    name = max(found, key=lambda each: (found[each].value, found[each].upper))
    one = found[name]
    decided = any(map(_decided, series.subject))
    bounds = span(one.lower, one.upper, "1")
    company = (
        f"worst: {name}" if len(names) > 1 else "",
        f"{one.errors:,} errors in {plain(float(one.bits))}",
        f"{100 * CONFIDENCE:g} % interval {bounds}, {'held at any time' if decided else 'exact'}",
        "simulated" if simulated else "",
    )
    return figure(plain(one.value) if one.errors else f"at most {plain(one.upper)}", company)


def _pooled(series: Series, own: Numbers) -> ErrorRatio:
    """All gates of one counter; one that a sequential test stopped keeps its own bounds."""
    errors, bits = (int(series.conditions[name][own].sum()) for name in ("errors", "bits"))
    exact = error_ratio(errors, bits, CONFIDENCE)
    if not any(map(_decided, series.subject)):
        return exact
    return replace(
        exact, lower=float(series.lower[own].min()), upper=float(series.upper[own].max())
    )


def _decided(subject: str) -> str | None:
    """What a sequential test decided: words that held for a row stand behind its subject."""
    return _DECIDED.get(subject.rpartition(", ")[2])


def _judge(limit: Limit, series: Series) -> Verdict:
    confidence = limit.confidence or CONFIDENCE
    counts = zip(
        series.subject, series.conditions["errors"], series.conditions["bits"], strict=True
    )
    judged = []
    for subject, errors, bits in counts:
        one = judge_error_ratio(int(errors), int(bits), limit.value, confidence)
        outcome = _decided(subject) or one.outcome
        judged.append((_RANK.index(outcome), one))
    worst, one = max(judged, key=lambda pair: pair[0])
    failed = sum(rank == 2 for rank, _ in judged)
    unsure = sum(rank > 0 for rank, _ in judged)
    outcome = _RANK[worst]
    needed = one.needed if outcome == "not enough data" else None
    return Verdict(outcome, len(judged), failed, unsure, needed, one.reason)  # type: ignore[arg-type]


def _void(frame: TestbedFrame) -> str:
    rows = []
    for test in frame.having(_VOID):
        series = test.series[_VOID]
        power = series.conditions.get("received_power_dbm", np.full(series.value.size, np.nan))
        for subject, dbm in zip(series.subject, power, strict=True):
            counter, _, trouble = subject.partition(", ")
            at = shown(float(dbm), "dBm") if np.isfinite(dbm) else ""
            cells = (whole(test.label), text(counter), whole(at), f"<b>{whole(trouble)}</b>")
            rows.append(row((*cells, mark(test.simulated))))
    if not rows:
        return ""
    head = ("test", "counter", "received", "what happened", "")
    about = "These bound no ratio. Where light is taken away until the pattern is lost, one is due."
    title = "Gates that counted nothing"
    return heading(title, frame.simulated, about) + table(head, rows, title)
