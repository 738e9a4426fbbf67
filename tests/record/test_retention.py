"""Old nights are removed, and nothing else is."""

import json
from pathlib import Path

import pytest
from uneven import write_results

from lightrig.harness.record import Context, Journal, Results, Row, settle
from lightrig.harness.record.retention import find_older, find_prunable, prune

NIGHTS = ("2026-01-01", "2026-01-02", "2026-02-01")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for night in NIGHTS:
        recorded(tmp_path, night).close({})
        settle(folder_of(tmp_path, night))
    return tmp_path


def folder_of(results: Path, night: str) -> Path:
    return results / "runs" / f"{night.replace('-', '')}-000000-a"


def recorded(results: Path, night: str) -> Journal:
    folder = folder_of(results, night)
    folder.mkdir(parents=True)
    journal = Journal(folder / "journal.jsonl", {"run": folder.name, "night": night})
    row = Row("circuit", "insertion_loss", 1.5, None, None, "dB", 7)
    journal.append_many(Context("bench", "test", ("ocs",), True, {}), [row])
    return journal


def files(results: Path) -> set[str]:
    return {str(f.relative_to(results)) for f in results.rglob("*") if f.is_file()}


def test_old_runs_go_wholly_and_later_ones_stay(results: Path) -> None:
    found = find_prunable(str(results), "2026-02-01")
    assert [one.night for one in found] == ["2026-01-01", "2026-01-02"]
    assert files(results) >= {name for one in found for name in one.files}
    prune(str(results), found)
    assert [one.night for one in Results(results).runs()] == ["2026-02-01"]
    assert all("20260201" in name for name in files(results))
    assert not folder_of(results, "2026-01-01").exists()


def test_rows_stay_where_they_are_wanted(results: Path) -> None:
    prune(str(results), find_prunable(str(results), "2026-02-01", keep_rows=True))
    assert len(Results(results).frame()) == 3
    assert len(Results(results).runs()) == 3
    assert not (folder_of(results, "2026-01-01") / "journal.jsonl").exists()
    assert (folder_of(results, "2026-02-01") / "journal.jsonl").exists()


def test_what_was_killed_is_never_removed(tmp_path: Path) -> None:
    recorded(tmp_path, "2026-01-01")
    assert find_prunable(str(tmp_path), "2027-01-01") == []


def test_only_testbeds_that_match_are_removed(results: Path) -> None:
    assert find_prunable(str(results), "2027-01-01", "other*") == []
    assert json.loads((folder_of(results, "2026-01-01") / "run.json").read_text())


def test_a_run_of_two_testbeds_goes_only_where_both_match(tmp_path: Path) -> None:
    """r1 and r2 are of opus and mixnet; r4 was killed."""
    lab = str(write_results(tmp_path))
    assert find_prunable(lab, "2027-01-01", "mixnet") == []
    opus = find_prunable(lab, "2027-01-01", "opus")
    assert [one.run for one in opus] == ["r3", "r5", "r6"]
    both = find_prunable(lab, "2026-03-16", "[mo]*")
    assert [one.run for one in both] == ["r1", "r2", "r3"]
    prune(lab, both)
    rows = Results(lab).frame().groupby(["run", "testbed"], observed=True).size()
    assert rows.to_dict() == {("r5", "opus"): 11, ("r6", "opus"): 2}
    assert [one.run for one in find_older(str(write_results(tmp_path / "2")), 1)] == ["r1", "r2"]
