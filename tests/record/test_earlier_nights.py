"""Values of the same test in earlier nights, by subject."""

from dataclasses import replace

import pytest
from record.recorded import begin, context

from lightrig.harness.record import Row, settle
from lightrig.harness.record.earlier_nights import values_before

LOSS = "insertion_loss"
MINE = context("opus", simulated=True, wavelength_nm=1310)


def store(results, run, night, losses, of=MINE):
    journal = begin(results, run, night)
    rows = [Row(f"ocs {c}", LOSS, db, db, db, "dB", 7) for c, db in losses.items()]
    journal.append_many(of, rows)
    journal.close({"exit": 0, "duration_s": 1.0})
    settle(journal.path.parent)
    return journal.path.parent


@pytest.fixture
def tonight(tmp_path):
    store(tmp_path, "a", "2026-03-11", {"1>5": 1.5, "2>5": 1.25})
    store(tmp_path, "b", "2026-03-13", {"1>5": 1.75})
    store(tmp_path, "c", "2026-03-14", {"1>5": 9.0})
    return tmp_path / "runs" / "d"


def test_values_come_by_night_and_those_of_this_night_do_not(tonight):
    found = values_before(tonight, "2026-03-14", MINE, LOSS)
    assert found == [{"ocs 1>5": 1.5, "ocs 2>5": 1.25}, {"ocs 1>5": 1.75}]
    assert values_before(tonight, "2026-03-12", MINE, LOSS) == found[:1]
    assert values_before(tonight, "2026-03-11", MINE, LOSS) == []


@pytest.mark.parametrize(
    "other",
    [
        context("opus", simulated=False, wavelength_nm=1310),
        context("opus", simulated=True, wavelength_nm=1550),
        context("other", simulated=True, wavelength_nm=1310),
        replace(MINE, test="suites/test_other.py::test_other"),
    ],
    ids=["hardware", "wavelength", "testbed", "test"],
)
def test_other_testbeds_tests_and_conditions_are_not_compared(tonight, other):
    store(tonight.parents[1], "e", "2026-03-12", {"1>5": 4.0}, other)
    found = values_before(tonight, "2026-03-14", MINE, LOSS)
    assert [night["ocs 1>5"] for night in found] == [1.5, 1.75]
    assert [night["ocs 1>5"] for night in values_before(tonight, "2026-03-14", other, LOSS)] == [4]


def test_nights_with_injected_faults_are_compared_with_none(tonight):
    faulty = replace(MINE, conditions={**MINE.conditions, "faults": "dirty connector"})
    store(tonight.parents[1], "e", "2026-03-12", {"1>5": 4.0}, faulty)
    found = values_before(tonight, "2026-03-14", MINE, LOSS)
    assert [night["ocs 1>5"] for night in found] == [1.5, 1.75]
    assert values_before(tonight, "2026-03-14", faulty, LOSS) == []


def test_without_earlier_results_there_are_no_nights(tmp_path):
    assert values_before(tmp_path / "runs" / "d", "2026-03-14", MINE, LOSS) == []
