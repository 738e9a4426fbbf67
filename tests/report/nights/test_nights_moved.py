"""Exactly the injected changes are marked."""

import pytest
from planted_nights import DIRTY_FROM, MISSING, SLOW_FROM, Grown, write_nights_of

from lightrig.harness.report.nights.series_changes import (
    LabChange,
    SeriesChange,
    find_series_changes,
    group_changes,
)
from lightrig.harness.statistics.changes import LevelChange

EXPECTED = {
    ("bench", True, "firmware_up", "server0.nic0.p0", SLOW_FROM),
    ("bench", True, "firmware_up", "server0.nic0.p1", SLOW_FROM),
    ("fab", False, "insertion_loss", "ocs.3>19", DIRTY_FROM),
}


def test_exactly_the_inserted_changes_are_found(planted, marks_of):
    assert marks_of(planted) == EXPECTED


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_nights_that_only_scatter_mark_nothing(tmp_path, marks_of, seed):
    still = [Grown("q", f"port {n}", 10.0, 0.5, 0.05, "dB", 8) for n in range(30)]
    write_nights_of(tmp_path, "bench", still, seed=seed, missing=MISSING)
    assert marks_of(tmp_path) == set()


def test_a_drift_is_no_change(tmp_path, history_of):
    drifting = Grown("q", "a", 10.0, 0.02, 0.05, "dB", 8, drift=0.02)
    still = Grown("q", "b", 10.0, 0.02, 0.05, "dB", 8)
    write_nights_of(tmp_path, "bench", [drifting, still])
    ((found,),) = find_series_changes(history_of(tmp_path).labs)
    assert (found.series.subject, found.changes) == ("a", ())
    assert found.drift.per_night == pytest.approx(0.02, rel=0.2)


def test_changes_of_neighbouring_nights_are_one_group(history_of, planted):
    lab = history_of(planted).labs[0]

    def at(night, series):
        return SeriesChange(lab.series[series], (LevelChange(night, 1, 2, 1, 1, 2, 2, 1e-9),), None)

    news = [LabChange(night, "identity", f"news of {night}") for night in (3, 9, 10, 12)]
    found = group_changes(lab, [at(9, 0), at(9, 1), at(10, 2), at(20, 3)], news)
    assert [(one.night, len(one.changes)) for one in found] == [(9, 3), (20, 1)]
    assert [event.night for event in found[0].events] == [9, 10]
    assert found[1].events == ()
