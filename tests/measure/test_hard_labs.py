"""Hard labs: the ideal lab holds every truth, and a wrong measurement misses it."""

import json
import re
from pathlib import Path

import pytest
from late_light import stamp_light_late

from tests.campaigns import labs as campaign
from tests.campaigns.hard_labs import labs
from tests.campaigns.hard_labs.cells import cells_of, summary
from tests.campaigns.hard_labs.found import Found
from tests.campaigns.hard_labs.timing import ALL, Timing, interruptions, light_changes

MS = 1_000_000


def missed(name: str, seed: int = 3) -> dict[str, int]:
    """Return how many intervals of each quantity miss the truth in one seed of a lab."""
    found = Found()
    labs()[name].measure(seed, found)
    return {quantity: cell["missed"] for quantity, cell in found.cells.items()}


def test_the_ideal_lab_holds_every_truth_and_declines_nothing() -> None:
    found = Found()
    Timing(events=2).measure(5, found)
    assert {*found.cells} == {*ALL}
    assert {cell["missed"] for cell in found.cells.values()} == {0}
    assert {cell["declined"] for cell in found.cells.values()} == {0}
    assert [found.cells[name]["n"] for name in ("acknowledged", "los", "carrier_up")] == [2, 8, 8]


def test_a_late_measurement_misses_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    stamp_light_late(monkeypatch)
    found = Found()
    Timing(events=2).measure(5, found)
    wrong = {name for name, cell in found.cells.items() if cell["missed"]}
    assert wrong == {"los", "signal_recovered"}


def test_an_unstated_latency_of_monitors_misses_the_truth() -> None:
    wrong = missed("monitors_late")
    assert wrong["los"] == wrong["signal_recovered"] == 24
    assert wrong["carrier_up"] == wrong["acknowledged"] == 0


def test_readings_of_the_query_before_are_reported_as_late() -> None:
    """One poll late, which proves nothing by bounds alone; monitors that saturate are in time."""
    for name, late in (("monitors_previous", True), ("monitors_saturate", False)):
        found = Found()
        labs()[name].measure(6, found)
        assert found.names("monitors are late") is late


def test_datagrams_count_where_light_alone_was_not_seen() -> None:
    found = Found()
    labs()["monitors_averaging"].measure(1, found)
    assert found.names("not seen: ocs.10 signal_recovered;")
    cells = {name: (cell["n"], cell["declined"]) for name, cell in found.cells.items()}
    assert cells["first_datagram"] == cells["outage.datagram"] == (24, 0)
    assert cells["signal_recovered"] == (23, 1)


def test_late_monitors_do_not_make_an_acknowledgement_early() -> None:
    found = Found()
    labs()["monitors_late"].measure(3, found)
    assert found.names("monitors are late")
    assert not found.names("acknowledged .* before its light")


@pytest.mark.parametrize(("name", "stated"), [("ideal", 64), ("shifted", 0)])
def test_no_loss_is_stated_where_monitors_have_shifted(name: str, stated: int) -> None:
    found = Found()
    lab = labs()[f"losses_{name}"]
    lab.measure(2, found)
    cell = found.cells["insertion_loss"]
    assert (cell["n"], cell["declined"]) == (stated, 64 - stated)
    assert cell["missed"] <= 0.2 * stated
    assert not lab.named or found.names(lab.named)


@pytest.mark.parametrize(("settle", "named"), [("80 ms", True), ("20 ms", False)])
def test_an_acknowledgement_before_light_is_reported(settle: str, named: bool) -> None:
    """Once, with the least lead of 30 ms that a window of 20.8 ms leaves sure of 50."""
    found = Found()
    simulation = {"switches": {"ocs": {"settle": {"mean": settle}}}}
    Timing(simulation=simulation, events=3).measure(4, found)
    leads = [re.search(r"ocs acknowledged (.*) ms or more", text) for text in found.sentences]
    sizes = [float(lead[1]) for lead in leads if lead]
    assert len(sizes) == named
    assert all(20 < size < 60 for size in sizes)


def test_truths_are_those_of_the_stages() -> None:
    nan = pytest.approx(float("nan"), nan_ok=True)
    levels = [(0, 1.0), (20, 0.95), (30, 0.0), (50, 0.6), (52, 0.98), (55, 1.0), (90, 0.0)]
    assert light_changes(levels, 10, 80) == (30, 52)
    assert light_changes(levels[:3], 10, 80) == (30, nan)
    assert light_changes([(50, 1.0)], 10, 80) == (nan, 50)
    states = [(0, 1.0), (12, 0.0), (30, 1.0), (40, 0.0), (75, 1.0), (78, 0.0), (99, 1.0)]
    assert interruptions(states, 10, 80) == [(12, 30), (40, 75), (78, nan)]
    assert interruptions([(0, 0.0), (30, 1.0)], 10, 80) == [(nan, 30)]


def test_a_campaign_goes_on_behind_its_last_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAMPAIGNS", str(tmp_path))
    monkeypatch.setenv("LABS", "ideal")
    monkeypatch.setenv("LABS_SEEDS", "1")
    campaign.main(lambda line: None)
    first = (tmp_path / "labs.jsonl").read_text()
    assert [json.loads(line)["seed"] for line in first.splitlines()] == [1]
    monkeypatch.setenv("LABS_SEEDS", "2")
    printed: list[str] = []
    campaign.main(printed.append)
    second = (tmp_path / "labs.jsonl").read_text()
    assert second.startswith(first)
    assert [json.loads(line)["seed"] for line in second.splitlines()] == [1, 2]
    assert re.search(r"^  los +n +48 missed +0 declined +0 ", "\n".join(printed), re.MULTILINE)
    monkeypatch.setenv("LABS_SEEDS", "9")
    monkeypatch.setenv("LABS_SECONDS", "0")
    campaign.main(printed.append)
    assert (tmp_path / "labs.jsonl").read_text() == second


def lines(**cell: object) -> list[dict[str, object]]:
    """Return 40 seeds of a lab with one interval of +-2 in each, whose error is 1."""
    common = {"kind": "interval", "n": 1, "missed": 0, "declined": 0, "bias": 1.0}
    parts = {**common, "errors": [1.0], "widths": [4.0], **cell}
    return [
        {"lab": "ideal", "seed": seed, "seconds": 0.5, "named": None, "cells": {"loss": parts}}
        for seed in range(40)
    ]


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ({"missed": 1}, "loss: covers 0.0% (0.0% to 8.8%)"),
        ({"declined": 2}, "loss: 80 declined"),
        ({"kind": "bound", "missed": 1}, "loss: 40 of 40 bounds miss the truth"),
        ({"errors": [2.4]}, "loss: biased by 2.4 standard uncertainties"),
    ],
)
def test_unmet_criteria_are_reported(cell: dict[str, object], says: str) -> None:
    assert says in summary({"ideal": Timing()}, lines(**cell))["ideal"]["broken"]


def test_intervals_of_one_seed_are_not_independent_samples() -> None:
    """2 of 40 seeds miss with all of their 10 intervals: worth 40 samples, not 400."""
    several = lines(n=10)
    for line in several[:2]:
        line["cells"] = {"loss": {**line["cells"]["loss"], "missed": 10}}  # type: ignore[index]
    share, lower, upper = cells_of(several)["loss"]["coverage"]
    assert share == 0.95
    # Clopper and Pearson for 38 of 40, from a table: 0.8308 to 0.9939; of 400: 0.924 to 0.969.
    assert lower == pytest.approx(0.8308, abs=0.01)
    assert upper == pytest.approx(0.9939, abs=0.002)
