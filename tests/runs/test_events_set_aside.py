"""A simulation that is late is set aside and named; a harness that is late fails."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from runs.running import ROOT, Ended, Started

from lightrig.instruments.namespaces import namespaces as kernel

Run = Callable[..., Ended]
LIMITS = {
    "p90": "{p90: 1 s, confidence: 95 %}",  # 34 events of which none is late, else 98
    "median": "{median: 1 s, confidence: 95 %}",  # six, else 16
    "short": "{median: 250 ms, confidence: 95 %}",
}
PLANTED = {3, 20}


@pytest.fixture
def run(start: Callable[..., Started], tmp_path: Path) -> Run:
    """A run of one test between namespaces, with one part late."""
    if reason := kernel.available():
        pytest.skip(reason)

    def ran(late: str, by: int, limit: str, events: str = "") -> Ended:
        text = (ROOT / "testbeds" / "namespaces.yaml").read_text()
        stated = "reconfiguration.carrier_up:     {p95: 250 ms, confidence: 95 %}"
        other = "  reconfiguration.first_datagram: {p95: 500 ms, confidence: 95 %}\n"
        assert stated in text
        assert other in text
        text = text.replace(other, "")
        file = tmp_path / "namespaces.yaml"
        file.write_text(text.replace(stated, f"reconfiguration.carrier_up: {LIMITS[limit]}"))
        return start(
            *("suites", "--testbed", file, "--instruments", "simulated", "--profile", "night"),
            *("-k", "between_plans and ring-to-crossed", "-p", "runs.late_world"),
            environment={
                **os.environ,
                "LATE": late,
                "BY": str(by),
                "EVENTS": events,
                "PYTHONPATH": str(ROOT / "tests"),
                "XDG_STATE_HOME": str(tmp_path),
            },
        ).end()

    return ran


def rows(ended: Ended, quantity: str) -> list[tuple[str, int, int]]:
    """Subject, event and value of the rows of a quantity."""
    found = [json.loads(line) for line in ended.rows]
    return [(r[1], r[8]["event"], r[3]) for r in found if r[2] == quantity]


@pytest.mark.long
def test_an_event_in_which_the_simulation_was_late_is_replaced(run: Run) -> None:
    """A busy machine may make more of them late: a fourth of the first 38 ends the test."""
    ended = run("simulation", 2000, "p90", ",".join(map(str, PLANTED)))
    assert ended.code == 0, ended.output
    late = rows(ended, "set_aside.delay")
    aside = {event for _, event, _ in late}
    assert all(value > 1_500_000_000 for _, _, value in late)
    judged = {event for _, event, _ in rows(ended, "reconfiguration.carrier_up")}
    assert judged.isdisjoint(aside)
    assert 3 in aside
    assert PLANTED & (judged | aside) <= aside
    if len(aside) > 0.1 * len(judged | aside):
        assert "INCONCLUSIVE" in ended.output
    else:
        assert len(judged) in (34, 98)
    carriers = {
        event: at for stage, event, at in rows(ended, "set_aside.stage") if stage == "carrier_up"
    }
    assert carriers[3] > 1_000_000_000  # which the limit would not have allowed
    sentence = f"{len(late)} of {len(late) + len(judged)} events set aside, not judged"
    assert sentence in ended.output


@pytest.mark.long
def test_a_simulation_that_is_often_late_decides_nothing(run: Run) -> None:
    ended = run("simulation", 2000, "median", "1")
    assert ended.code == 0, ended.output
    assert "INCONCLUSIVE" in ended.output
    assert "more than 10 % decide nothing" in " ".join(ended.output.split())


@pytest.mark.long
def test_a_probe_that_is_late_fails(run: Run) -> None:
    ended = run("probe", 300, "short")
    assert ended.code == 1, ended.output
    assert "LimitExceededError" in ended.output, ended.output
    assert len(rows(ended, "reconfiguration.carrier_up")) >= 5
