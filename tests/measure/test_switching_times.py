"""Switching times by an oscilloscope: each by its definition, and closed against the truth."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.closure import unclosed
from lightrig.harness.measure.path_changes import NotLoggedError
from lightrig.harness.measure.reconfiguration import IncompleteError
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.switching_times import measure_switching, transient
from lightrig.harness.record import Row
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import PowerLog
from lightrig.instruments.simulated.world.ground_truth import GroundTruth

HOME = Path("testbeds/switchlab.yaml")
US, MS = 1_000, 1_000_000
PERIOD = 5 * US
TIMES = np.arange(10_000) * PERIOD


def log(milliwatt: Any, noise: float = 0.0) -> PowerLog:
    drawn = noise * np.random.default_rng(1).standard_normal(len(TIMES))
    return PowerLog(Span(0, 0), PERIOD, np.asarray(milliwatt, dtype=np.float64) + drawn)


def ramp(begun: int, whole: int) -> Any:
    return np.clip((TIMES - begun) / whole, 0, 1)


def ringing(begun: int, depth_db: float) -> Any:
    after = np.maximum(TIMES - begun, 0)
    swing = depth_db * np.exp(-after / MS) * np.sin(math.pi * after / MS) ** 2
    return np.where(begun <= TIMES, 10 ** (-swing / 10), 0.0)


def holds(span: Span | None, moment: float) -> bool:
    return span is not None and span.earliest <= moment <= span.latest


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_rise_lasts_from_ten_to_ninety_percent(noise: float) -> None:
    found = transient(log(0.7 * ramp(20 * MS, 2 * MS), 0.7 * noise), rising=True)
    assert holds(found.tenth, 20.2 * MS)
    assert holds(found.ninetieth, 21.8 * MS)
    assert holds(found.settled, (20 + 2 * 10**-0.05) * MS)
    assert found.level_mw == pytest.approx(0.7, rel=0.01)
    for span in (found.tenth, found.ninetieth, found.settled):
        assert span is not None
        assert span.latest - span.earliest <= 0.4 * MS


def test_a_fall_lasts_from_ninety_to_ten_percent() -> None:
    found = transient(log(0.5 * (1 - ramp(10 * MS, MS)), 0.001), rising=False)
    assert holds(found.ninetieth, 10.1 * MS)
    assert holds(found.tenth, 10.9 * MS)
    assert found.settled is None


def test_ringing_within_half_a_decibel_is_settled_and_more_is_not() -> None:
    calm = transient(log(ringing(20 * MS, 0.3), 0.001), rising=True)
    assert calm.settled is not None
    assert calm.settled.latest <= 20.2 * MS
    swinging = transient(log(ringing(20 * MS, 4.0), 0.001), rising=True)
    after = TIMES[ringing(20 * MS, 4.0) < 10**-0.05][-1]
    assert after > 21 * MS
    assert holds(swinging.settled, float(after))


def test_light_that_went_before_is_no_part_of_the_rise() -> None:
    both = 0.9 * (1 - ramp(5 * MS, MS)) + 0.6 * ramp(25 * MS, 2 * MS)
    gone, come = transient(log(both), rising=False), transient(log(both), rising=True)
    assert holds(gone.ninetieth, 5.1 * MS)
    assert holds(come.tenth, 25.2 * MS)
    assert (gone.level_mw, come.level_mw) == (pytest.approx(0.9), pytest.approx(0.6))


@pytest.mark.parametrize("flashes", [0, 2])
def test_light_that_comes_never_or_twice_is_an_error(flashes: int) -> None:
    lit = sum((np.abs(TIMES - at * MS) < 4 * MS) * 0.5 for at in (15, 35)[:flashes])
    with pytest.raises(IncompleteError, match=f"come {flashes} times"):
        transient(log(lit + np.zeros(len(TIMES)), 0.001), rising=True)


class Lab:
    def __init__(self, bench: Bench) -> None:
        self.bench, self.fabric = bench, Fabric(bench)
        self.rows: list[Row] = []
        self.measure = Recording(self.rows.extend)

    def switch(self, count: int) -> None:
        plans = self.fabric.plans["near"], self.fabric.plans["far"]
        scope: Any = self.bench.instruments["scope"]
        measure_switching(self.fabric, self.measure, scope, plans, count)

    def of(self, quantity: str) -> list[Row]:
        return [row for row in self.rows if row.quantity == quantity]


@pytest.fixture
def lab(simulated: Callable[..., Bench]) -> Lab:
    return Lab(simulated(HOME))


def test_every_duration_of_a_switch_is_closed(lab: Lab) -> None:
    lab.switch(6)
    assert [row.value for row in lab.of("closure.switching")] == [1.0] * 6
    assert all(row.conditions["n"] == 4 for row in lab.of("closure.switching"))
    assert list(unclosed(lab.rows)) == []
    for name, usual in (("rise", 1.5 * MS), ("fall", 0.8 * MS), ("time", 24 * MS)):
        rows = lab.of(f"switching.{name}")
        assert len(rows) == 6
        for row in rows:
            assert row.value == pytest.approx(usual, rel=0.25), name
    bounce = lab.of("switching.bounce")
    assert all(row.value > 0.5 * MS for row in bounce)


def test_the_level_of_every_circuit_differs_by_repeatability_and_polarization(lab: Lab) -> None:
    lab.switch(8)
    rows = lab.of("switching.repeatability")
    assert sorted(row.subject for row in rows) == ["ocs.1>2", "ocs.1>5"]
    for row in rows:
        assert row.conditions["n"] == 4
        assert 0.005 < row.value < 0.3


@pytest.mark.parametrize("stage", ["light10", "light90", "light"])
def test_a_biased_switching_time_is_not_closed(
    lab: Lab, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = GroundTruth.note

    def late(self: GroundTruth, subject: str, of: str, *, up: bool, at: Span) -> None:
        at = at.shifted(400 * US) if of == stage and up else at
        note(self, subject, of, up=up, at=at)

    monkeypatch.setattr(GroundTruth, "note", late)
    lab.switch(1)
    (found,) = unclosed(lab.rows)
    assert "closure.switching of switchlab, event 0 is not closed" in found.evidence


def test_an_oscilloscope_that_sees_no_circuit_is_an_error(lab: Lab) -> None:
    near = lab.fabric.plans["near"]
    scope: Any = lab.bench.instruments["scope"]
    with pytest.raises(NotLoggedError, match="scope sees no modules"):
        measure_switching(lab.fabric, lab.measure, scope, (near, near), 1)
