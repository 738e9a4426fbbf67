"""One draw of the campaign `fault_trace`: the production trace through the service."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lightrig.suites.claims.infinitehbd.replay import cluster
from lightrig.suites.claims.infinitehbd.trace import States
from tests.campaigns import fault_trace
from tests.campaigns.fault_trace import LIMIT, Draw, Found, orders, problems, replay

STATES = 24
TIGHT = Draw(0, 3, 32, 0.967, "repair")
"""87 of the 90 groups of 32 GPUs that 720 nodes of 4 would hold without faults."""


def claim(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.claim(*(f"infinitehbd:{name}" for name in names))


@pytest.fixture(scope="module")
def worst() -> States:
    """The part of the first draw's trace in which most nodes are faulty."""
    drawn = cluster(np.random.default_rng(TIGHT.seed))
    faulty = np.convolve(drawn.faulty.sum(axis=1), np.ones(STATES), "valid")
    first = int(faulty.argmax())
    part = slice(first, first + STATES)
    return States(drawn.durations[part], drawn.faulty[part])


@pytest.fixture(scope="module")
def found(worst: States, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return replay(TIGHT, worst, tmp_path_factory.mktemp("repair"))


@claim("service-waste", "service-waiting")
def test_the_service_misses_no_group_that_algorithm_2_afresh_places(found: Found) -> None:
    """At each state of the trace: waste and waiting of Figs. 13 and 16 are the service's."""
    assert problems(TIGHT, found) == []
    assert found.missing == pytest.approx(found.missing_afresh)
    assert found.short > 0.1  # the part is hard enough to miss groups
    assert found.moved > 0


def test_a_job_that_keeps_its_groups_misses_more(worst: States, tmp_path: Path) -> None:
    draw = replace(TIGHT, policy="keep")
    kept = replay(draw, worst, tmp_path)
    assert (kept.moved, problems(draw, kept)) == (0, [])
    assert kept.missing > kept.missing_afresh + 0.5
    # Taken for a job that repairs, its time without a group is named.
    eased = replace(kept, short_afresh=0.0)
    assert any("incomplete" in each for each in problems(TIGHT, eased))


@claim("service-cross-tor")
def test_faults_cross_no_more_than_the_limit(tmp_path: Path) -> None:
    """512 of the campaign's 2,048 nodes: 30 faults at once, and one by one."""
    found = orders(1, tmp_path, nodes=512)
    assert found["at_once"]["crossing"] <= LIMIT
    assert found["one_by_one"]["most_crossing"] <= LIMIT
    assert (found["at_once"]["missing"], found["one_by_one"]["most_missing"]) == (0, 0)
    assert found["faults"] == 30


def test_without_repair_they_cross_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure of the campaign is not the planner's own."""
    monkeypatch.setattr(fault_trace, "POLICY", "keep")
    found = orders(1, tmp_path, nodes=512)
    assert found["one_by_one"]["most_crossing"] > LIMIT


def test_a_broken_promise_is_named_in_the_table() -> None:
    one = {"most_crossing": 0.02, "most_missing": 0, "moved_a_fault": 2.0, "most_moved": 9}
    good = {"seed": 1, "at_once": {"crossing": 0.0, "missing": 0}, "one_by_one": one}
    bad = {**good, "seed": 2, "one_by_one": {**one, "most_crossing": 0.0301}}
    done = [{**each, "broken": fault_trace.over(each)} for each in (good, bad)]
    lines, well = fault_trace.table(done)
    assert not well
    assert lines[-1] == "WRONG 2: 0.0301 of the traffic crosses, 0 missing"
    assert fault_trace.table(done[:1])[1]
