"""Insertion loss: each circuit as a heat map, what is wrong, the worst ports, and how sure all is.

How sure: how alike a circuit is each time that it is made, what the uncertainty of a loss
consists of, and, in simulation, how well it closes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from harness.report.any_quantity import quantity_section
from harness.report.captions import captioned, keys
from harness.report.distributions import Curve, panel
from harness.report.estimates import CONFIDENCE, Estimate, estimates_of
from harness.report.frames import TestbedFrame, TestFrame, natural
from harness.report.loss_by_temperature import by_temperature
from harness.report.markup import (
    figure,
    heading,
    mark,
    median_figure,
    row,
    share_interval,
    table,
    text,
)
from harness.report.tables import named
from harness.report.units import shown, span
from harness.statistics import quantile
from harness.statistics.binomial import clopper_pearson
from testbeds import Limit

FAMILIES = frozenset(("insertion_loss", "loss"))
"""The quantities of this section."""

LOSSES = ("insertion_loss", "insertion_loss.relative")
_REPEATABILITY = "insertion_loss.repeatability"
_BUDGET = "loss.budget."
_COMBINED = "loss.budget.combined"
_WORST = 6
_LEAST_SAMPLES, _DRAWN_ELSEWHERE = 5, 10
_SIZELESS = frozenset(("stuck monitor", "no light"))


def loss_estimates(frame: TestbedFrame, limits: Mapping[str, Limit]) -> dict[str, list[Estimate]]:
    """The estimates of all losses, and of how alike circuits are from making to making."""
    names = [name for name in (*LOSSES, _REPEATABILITY) if frame.having(name)]
    return estimates_of(frame, names, limits)


def loss_section(frame: TestbedFrame, found: Mapping[str, list[Estimate]]) -> str:
    """Everything about insertion loss; empty where none was measured."""
    measured = [name for name in LOSSES if name in found]
    if not measured:
        return ""
    tests = [test for test in frame.tests if any(name in test.series for name in measured)]
    parts = [
        f'<h3 class="lr-h3">Insertion loss {mark(frame.simulated)}</h3>',
        _faults(frame, tests),
    ]
    for name in measured:
        limit = found[name][0].limit
        having = frame.having(name)
        parts.append(quantity_section(frame, name, found[name], limit))
        parts.append(by_temperature(having, name))
        parts.append(_worst_ports(frame, having, name))
        grids = any(True for test in having for _ in _ports(test, name))
        if grids or all(test.series[name].value.size < _DRAWN_ELSEWHERE for test in having):
            parts.append(_distribution(frame, having, name, limit))
    return "".join([*parts, *(part(frame, tests) for part in (_repeatability, _budget, _closure))])


# --------------------------------------------------------------------------- what is wrong


def _faults(frame: TestbedFrame, tests: list[TestFrame]) -> str:
    rows = []
    for test in tests:
        series = test.series.get("loss.fault")
        if series is None:
            continue
        for subject, value, low, high in zip(
            series.subject, series.value, series.lower, series.upper, strict=True
        ):
            where, _, kind = subject.partition(", ")
            size = (
                ""
                if kind in _SIZELESS
                else figure(
                    shown(value, "dB"),
                    (
                        f"95 % interval {span(low, high, 'dB', shown(value, 'dB'))}",
                        "simulated" if test.simulated else "",
                    ),
                )
            )
            rows.append(row((f"<b>{text(where)}</b>", text(kind), size, _of(frame, test))))
    if not rows:
        return ""
    about = (
        "What is in all circuits of a port is its connector's; what grows with time is the "
        "laser's; what has no noise is a monitor that stands still."
    )
    head = ("where", "what", "how much", "test")
    return heading("What is wrong", frame.simulated, about) + table(head, rows, "What is wrong")


# ------------------------------------------------------------------------------ worst ports


@dataclass(frozen=True, slots=True)
class _Port:
    """One port of a switch: its name, and the bounds of the losses of its circuits."""

    name: str
    side: str
    lower: list[float]
    upper: list[float]

    @property
    def middle(self) -> float:
        return float(np.median((np.array(self.lower) + np.array(self.upper)) / 2))


def _worst_ports(frame: TestbedFrame, tests: list[TestFrame], quantity: str) -> str:
    rows = []
    for test in tests:
        for port in sorted(_ports(test, quantity), key=lambda each: -each.middle)[:_WORST]:
            found = quantile(port.lower, port.upper, 0.5, CONFIDENCE)
            shown_median = median_figure(found, test.simulated, "dB")
            name = f"<b>{text(port.name)}</b>"
            rows.append(row((name, text(port.side), shown_median, _of(frame, test))))
    if not rows:
        return ""
    about = (
        "By the median loss of all circuits of a port; the interval counts circuits, and includes "
        "what each measurement could not tell."
    )
    title = f"Worst ports of {quantity.replace('_', ' ')}"
    head = ("port", "side", "loss of its circuits", "test")
    return heading(title, frame.simulated, about) + table(head, rows, title)


def _ports(test: TestFrame, quantity: str) -> Iterator[_Port]:
    """The ports of every grid that is as good as full."""
    series = test.series[quantity]
    ports: dict[tuple[str, str], _Port] = {}
    circuits = set()
    for subject, low, high in zip(
        series.subject, series.lower.tolist(), series.upper.tolist(), strict=True
    ):
        found = re.fullmatch(r"(?:(\S+)\s)?(\d+)>(\d+)", subject)
        if found is None:
            continue
        circuits.add(subject)
        switch = f"{found[1]}." if found[1] else ""
        for side, number in (("ingress", found[2]), ("egress", found[3])):
            port = ports.setdefault((side, number), _Port(f"{switch}{number}", side, [], []))
            port.lower.append(low)
            port.upper.append(high)
    if len(circuits) > len(ports):
        yield from sorted(ports.values(), key=lambda port: natural(port.name))


# --------------------------------------------------------------------------------- figures


def _distribution(
    frame: TestbedFrame, tests: list[TestFrame], quantity: str, limit: Limit | None
) -> str:
    about = "Share of circuits that lose no more; the band is what each measurement could not tell."
    return _panel(frame, tests, quantity, limit, "Distribution of all circuits", about)


def _repeatability(frame: TestbedFrame, tests: list[TestFrame]) -> str:
    rows = []
    for test in tests:
        series = test.series.get(_REPEATABILITY)
        if series is None:
            continue
        for subject, value, low, high in zip(
            series.subject, series.value, series.lower, series.upper, strict=True
        ):
            made = test.series["loss.remade"].value.size
            company = (
                f"standard deviation of {made:,} makings",
                f"95 % interval {low:.3f} … {high:.3f}",
                "simulated" if test.simulated else "",
            )
            sizes = figure(f"{value:.3f} dB", company)
            rows.append(row((f"<b>{text(subject)}</b>", sizes, _of(frame, test))))
    if not rows:
        return ""
    title = "Repeatability"
    about = (
        "Circuits of two settings were made again and again; noise of the readings is taken off."
    )
    return (
        heading(title, frame.simulated, about)
        + table(("switch", "from making to making", "test"), rows, title)
        + _panel(
            frame,
            tests,
            "loss.remade",
            None,
            "What a making lost more than the mean of its circuit",
            "Share of makings; noise of the readings included.",
        )
    )


def _panel(
    frame: TestbedFrame,
    tests: list[TestFrame],
    quantity: str,
    limit: Limit | None,
    title: str,
    about: str,
) -> str:
    index = {id(test): place for place, test in enumerate(frame.tests)}
    having = [
        test
        for test in tests
        if quantity in test.series and test.series[quantity].value.size >= _LEAST_SAMPLES
    ]
    if not having:
        return ""
    curves = [Curve(index[id(test)], *test.series[quantity].samples()) for test in having]
    shown = text(about) + keys((index[id(test)], test.label) for test in having)
    simulated = any(test.simulated for test in having)
    drawn = captioned(title, simulated, shown, panel(curves, limit, title, "dB"), "lr-narrow")
    return f'<div class="lr-figures">{drawn}</div>'


# ------------------------------------------------------------------------------ uncertainty


def _budget(frame: TestbedFrame, tests: list[TestFrame]) -> str:
    names = list(dict.fromkeys(n for test in tests for n in test.series if n.startswith(_BUDGET)))
    names = [*(name for name in names if name != _COMBINED), _COMBINED]
    rows = []
    for test in tests:
        switches = test.series[_COMBINED].subject if _COMBINED in test.series else ()
        for subject in switches:
            switch, _, method = subject.partition(", ")
            cells = [_share(test, name, subject) for name in names]
            rows.append(row((_of(frame, test), text(switch), text(method), *cells)))
    if not rows:
        return ""
    about = (
        "Standard uncertainties (k = 1) of a loss, in dB: the median of all losses, and in "
        "brackets the least and the greatest. Both sides of a circuit are in each. The intervals "
        "above are the combined ones times Student's t, for 95 %."
    )
    title = "Uncertainty"
    components = (name.removeprefix(_BUDGET).replace("_", " ") for name in names)
    head = ("test", "switch", "seen by", *components)
    return heading(title, frame.simulated, about) + table(head, rows, title)


def _share(test: TestFrame, name: str, subject: str) -> str:
    series = test.series.get(name)
    if series is None or subject not in series.subject:
        return "none"
    at = series.subject.index(subject)
    ends = f"{series.lower[at]:.3f} … {series.upper[at]:.3f}"
    return figure(f"{series.value[at]:.3f}", (ends,))


def _closure(frame: TestbedFrame, tests: list[TestFrame]) -> str:
    rows = []
    for test in tests:
        series = test.series.get("loss.closure")
        if series is None:
            continue
        total = int(series.count.sum())
        held = round(float((series.value * series.count).sum()))
        low, high = clopper_pearson(held, total, CONFIDENCE)
        told = share_interval(f"{held:,} of {total:,}", low, high)
        rows.append(row((told, _of(frame, test))))
    if not rows:
        return ""
    about = (
        "How many 95 % intervals hold the loss that was put into the simulation. Circuits share "
        "the errors of their ports, so one run may be off by more than the interval says."
    )
    title = "Closure of the losses"
    head = ("intervals that hold the truth", "test")
    return heading(title, frame.simulated, about) + table(head, rows, title)


def _of(frame: TestbedFrame, test: TestFrame) -> str:
    return named(test, frame.tests.index(test))
