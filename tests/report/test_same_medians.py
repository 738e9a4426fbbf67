"""A median on the line of a test and on the page: the same number in the same words."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from report_runs import context

from lightrig.harness.plugin.quantities import Quantities, in_a_line
from lightrig.harness.record import Row

MS = 1_000_000
NAME = "reconfiguration.acknowledged"


def rows(values: Sequence[float]) -> list[Row]:
    return [
        Row("small", NAME, each * MS, each * MS, each * MS, "ns", n, {"event": n})
        for n, each in enumerate(values)
    ]


def on_the_page(page: Any) -> str:
    """Return the cell of the median of the table's only row."""
    text = " ".join(page.text.split())
    found = re.search(r"not enough data: 6 needed|([\d.]+ ms) \(median of", text)
    assert found, text
    return found[1] or found[0]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        # Each is 1 ms more than the one before: they say as much as few independent ones.
        (range(200, 220), "not enough data: 6 needed"),
        ((np.arange(20) * 7) % 20 + 200.0, "209.5 ms"),
        (range(200, 203), "not enough data: 6 needed"),
    ],
    ids=["one after the other", "mixed", "three"],
)
def test_a_median_is_the_same_at_both_places(
    show: Callable[..., Any], values: Sequence[float], says: str
) -> None:
    found = Quantities()
    found.add(True, rows(values))
    line = in_a_line(found.few())
    stated = on_the_page(show((context(), rows(values))))
    assert stated == says
    assert f"acknowledged {stated}" in line


def test_circuits_of_a_switch_count_as_the_same_few_at_both_places(
    show: Callable[..., Any],
) -> None:
    """Sixteen circuits share four ports at each side, and what they lose is these ports'."""
    found = Quantities()
    of_ports = [
        Row(f"ocs {a}>{b}", "insertion_loss", db, db - 0.01, db + 0.01, "dB", 0)
        for a in range(1, 5)
        for b in range(5, 9)
        for db in [1 + a / 10 + (b - 5) / 100]
    ]
    found.add(True, of_ports)
    line = in_a_line(found.few())
    text = " ".join(show((context(), of_ports)).text.split())
    stated = re.search(
        r"median of 16; (as \d+ independent ones); 95 % interval ([\d.]+ … [\d.]+)", text
    )
    assert stated, text
    assert f"[{stated[2]}] (median of 16, {stated[1]}, simulated" in line
