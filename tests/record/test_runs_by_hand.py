"""Runs by hand: in no night, card, metric and trend, and in what names them."""

import shutil
from pathlib import Path

import pytest
from record.recorded import record
from typer.testing import CliRunner
from uneven import write_results

from lightrig.harness.cli.app import application
from lightrig.harness.record import QuestionError, Results
from lightrig.harness.record.compaction import compact
from lightrig.harness.record.nights import start_of
from lightrig.harness.record.openmetrics import openmetrics
from lightrig.harness.record.recovery import recover
from lightrig.harness.record.retention import find_prunable, prune
from lightrig.harness.record.rows_check import StrayRowsWarning
from lightrig.harness.record.transfer import transfer
from lightrig.harness.report.nights import write_nights
from lightrig.harness.report.nights.last_night import last_nights

HAND, NIGHT = "20260318-101500-bench", "2026-03-18"


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """Three nights, and on a fourth day a run by hand, forty times as slow."""
    results = write_results(tmp_path)
    record(results, HAND, NIGHT, rows=13, middle_ms=2400.0, by_hand=True)
    return results


def test_it_is_listed_and_marked_and_is_not_the_last(lab: Path) -> None:
    assert [one.run for one in Results(lab).runs() if one.by_hand] == [HAND]
    assert Results(lab).find("last").run == "r6"
    assert Results(lab).find("20260318").run == HAND
    arguments = ["results", "list", "--results", str(lab)]
    shown = CliRunner().invoke(application(), arguments, env={"COLUMNS": "200"})
    marked = [line.split()[0] for line in shown.stdout.splitlines() if "by hand" in line]
    assert marked == [HAND]


def test_alone_it_is_no_last_run(tmp_path: Path) -> None:
    record(tmp_path, HAND, NIGHT, by_hand=True)
    with pytest.raises(QuestionError, match="'last' is no run"):
        Results(tmp_path).find("last")


def test_a_query_has_its_column(lab: Path) -> None:
    found = Results(lab).query("SELECT by_hand, count(*) AS n FROM rows GROUP BY ALL ORDER BY ALL")
    assert found["by_hand"].tolist() == [False, True]
    assert found["n"].tolist() == [23 + 5 + 7 + 11 + 2, 13]
    runs = Results(lab).query("SELECT run FROM runs WHERE by_hand")
    assert runs["run"].tolist() == [HAND]


def test_its_values_are_in_no_trend_card_or_metric(lab: Path, tmp_path: Path) -> None:
    results = Results(lab)
    assert HAND not in set(results.frame()["run"])
    assert HAND not in set(results.frame(night=NIGHT)["run"])
    assert len(results.frame(run=HAND)) == 13
    assert HAND not in openmetrics(results)
    assert {str(one) for one in last_nights(lab)} == {
        str(one) for one in last_nights(_without(lab, tmp_path / "rest"))
    }
    later = start_of({"night": "2026-03-19"})
    before = results.frames_before(later, 99, "opus")
    assert HAND not in {run for night in before for frame in night for run in frame["run"]}
    write_nights(lab, tmp_path / "nights.html")
    page = (tmp_path / "nights.html").read_text()
    assert "2026-03-16" in page
    assert NIGHT not in page
    assert HAND not in page


def _without(lab: Path, copy: Path) -> Path:
    shutil.copytree(lab, copy)
    shutil.rmtree(copy / "runs" / HAND)
    shutil.rmtree(copy / "by_hand")
    return copy


def test_it_is_brought_compacted_around_recovered_and_pruned(lab: Path, tmp_path: Path) -> None:
    other = tmp_path / "second"
    transfer(str(lab), str(other))
    assert len(Results(other).frame(run=HAND)) == 13
    compact(str(other))
    assert len(Results(other).frame(run=HAND)) == 13
    (rows,) = (other / "by_hand").rglob("*.parquet")
    rows.unlink()
    recover(other / "runs" / HAND)
    assert len(Results(other).frame(run=HAND)) == 13
    prune(str(other), [one for one in find_prunable(str(other), "2027-01-01") if one.run == HAND])
    assert not [*(other / "by_hand").rglob("*.parquet")]
    assert HAND not in {one.run for one in Results(other).runs()}


def test_its_rows_among_those_of_nights_are_stray(lab: Path) -> None:
    (rows,) = (lab / "by_hand").rglob("*.parquet")
    planted = lab / "rows" / rows.relative_to(lab / "by_hand")
    planted.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(rows, planted)
    with pytest.warns(StrayRowsWarning, match="is one by hand"):
        assert HAND not in set(Results(lab).frame()["run"])
