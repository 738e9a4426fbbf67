"""How much each circuit loses at each temperature, as a heat map."""

from __future__ import annotations

import math

import numpy as np

from harness.report.captions import captioned
from harness.report.figures import heat_map
from harness.report.frames import TestFrame, natural


def by_temperature(tests: list[TestFrame], quantity: str) -> str:
    """A heat map of circuits over temperatures, where several of both were measured."""
    cells: dict[tuple[str, float], list[float]] = {}
    for test in tests:
        series = test.series[quantity]
        warm = series.conditions.get("temperature_c")
        if warm is None:
            continue
        for subject, at, value in zip(
            series.subject, np.round(warm).tolist(), series.value.tolist(), strict=True
        ):
            if not math.isnan(at):
                cells.setdefault((subject, at), []).append(value)
    circuits = sorted({circuit for circuit, _ in cells}, key=natural)
    warmths = sorted({at for _, at in cells})
    if len(circuits) < 2 or len(warmths) < 2:
        return ""
    matrix = np.full((len(circuits), len(warmths)), np.nan)
    for (circuit, at), values in cells.items():
        matrix[circuits.index(circuit), warmths.index(at)] = np.median(values)
    title = f"{quantity.replace('_', ' ')} by temperature"
    counts = {len(values) for values in cells.values()}
    each = str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    drawn = heat_map(
        *(matrix, circuits, [f"{at:.0f} °C" for at in warmths], "dB"),
        label=f"Heat map of {title}",
        row_name="circuit",
        column_name="temperature",
    )
    simulated = any(test.simulated for test in tests)
    drawn = captioned(title, simulated, f"Median of {each} for each cell.", drawn, "lr-narrow")
    return f'<div class="lr-figures">{drawn}</div>'
