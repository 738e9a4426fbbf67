"""Switch times of modules, from logs of a meter: closed against the truth, and honest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.path_changes import (
    NotLoggedError,
    change_paths,
    lit,
    measure_path_changes,
    modules_on,
)
from lightrig.harness.measure.reconfiguration import IncompleteError
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.testbeds import Plan

HOME = Path("testbeds/infinitehbd.yaml")
US = 1_000


class Lab:
    """A bench of modules, and what is measured on it."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.fabric = bench, Fabric(bench)
        self.rows: list[Row] = []
        self.measure = Recording(self.rows.extend)

    def meter(self, name: str = "meter1") -> Any:
        return self.bench.instruments[name]

    def plans(self, before: str, after: str) -> tuple[Plan, Plan]:
        return self.fabric.plans[before], self.fabric.plans[after]

    def of(self, quantity: str) -> list[Row]:
        return [row for row in self.rows if row.quantity == quantity]


@pytest.fixture
def lab(simulated: Callable[..., Bench]) -> Lab:
    return Lab(simulated(HOME))


@pytest.mark.parametrize("session", ["written", "preloaded"])
def test_every_dark_time_is_closed_and_known_within_a_few_samples(lab: Lab, session: Any) -> None:
    plans = lab.plans("external-2", "loopback")
    measure_path_changes(lab.fabric, lab.measure, lab.meter(), plans, session, 4)
    assert [row.value for row in lab.of("closure.path_change")] == 4 * [1.0]
    dark = lab.of("path_change.dark")
    assert [row.subject for row in dark] == 4 * ["trx.1", "trx.2"]
    for row in dark:
        assert row.lower is not None
        assert row.upper is not None
        assert row.upper - row.lower <= 4 * US
        assert 50 * US < row.value < 80 * US
    words = {row.conditions["paths"] for row in dark}
    assert words == {"external-2 → loopback", "loopback → external-2"}
    assert not any(
        lab.bench.instruments[f"laser{n}"].emission(1)  # type: ignore[attr-defined]
        for n in (1, 2)
    )


def test_preloaded_paths_save_the_host_a_question(lab: Lab) -> None:
    waits = {}
    for session in ("written", "preloaded"):
        lab.rows.clear()
        plans = lab.plans("external-1", "loopback")
        measure_path_changes(lab.fabric, lab.measure, lab.meter(), plans, session, 3)
        assert all(row.conditions["session"] == session for row in lab.of("path_change.done"))
        waits[session] = sorted(row.value for row in lab.of("path_change.done"))
        for whole in lab.of("path_change.end_to_end"):
            event = whole.conditions["event"]
            (done,) = (r for r in lab.of("path_change.done") if r.conditions["event"] == event)
            assert whole.upper is not None
            assert whole.upper <= done.value
    # A question and its answer take 40 us on the simulated line.
    assert waits["written"][0] - waits["preloaded"][-1] > 20 * US


def test_missing_light_is_reported(lab: Lab) -> None:
    plans = lab.plans("external-1", "external-2")
    modules = modules_on(lab.fabric, lab.meter(), plans)
    lab.fabric.apply(plans[0])
    with lit(lab.fabric, modules[:1]), pytest.raises(IncompleteError, match=r"trx\.2 was seen to"):
        change_paths(lab.fabric, lab.meter(), modules, plans, "written")


def test_a_meter_without_both_paths_is_reported(lab: Lab) -> None:
    plan = lab.fabric.plans["external-1"]
    with pytest.raises(NotLoggedError, match="meter1 sees no modules of one switch"):
        modules_on(lab.fabric, lab.meter(), (plan, plan))
