"""A run whose process was killed is brought to its end, as often as one likes."""

import json
import shutil
from pathlib import Path

import pytest
from record.recorded import OPUS, begin, context, record, times

from lightrig.harness.record import (
    JournalDamagedError,
    JournalEmptyError,
    JournalInUseError,
    RecordError,
    Results,
    load_descriptions,
    read_journal,
    recover,
    to_recover,
)
from lightrig.harness.report import write_page
from lightrig.harness.run import Run


@pytest.fixture
def killed(tmp_path):
    """A run of 20 rows that did not end, and whose last line is torn."""
    journal = begin(tmp_path, "r1")
    journal.append_many(context(), times(20))
    with pytest.raises(ZeroDivisionError), journal:
        raise ZeroDivisionError
    with journal.path.open("ab") as file:
        file.write(b'[0,"opus","reconf')
    return journal.path.parent


def test_a_killed_run_is_whole_as_far_as_it_went(killed, tmp_path):
    assert list(to_recover(tmp_path)) == [killed]
    recovered = recover(killed, write_page)
    assert (recovered.facts.state, recovered.facts.torn) == ("recovered", True)
    assert recovered.facts.rows == len(Results(tmp_path).frame()) == 20
    assert recovered.files == (
        tmp_path / "rows" / "testbed=opus" / "night=2026-03-14" / "r1.parquet",
    )
    assert recovered.report == killed / "report.html"
    page = recovered.report.read_text()
    assert "its last line was cut short" in page
    assert "east-west" in page
    assert [one.state for one in Results(tmp_path).runs()] == ["recovered"]
    assert list(to_recover(tmp_path)) == []


def test_recovering_again_changes_nothing(killed, tmp_path):
    first = recover(killed, write_page)
    files = [p for p in tmp_path.rglob("*") if p.is_file() and p.name != "report.html"]
    before = {path: path.read_bytes() for path in files}
    assert recover(killed, write_page).facts == first.facts
    assert {path: path.read_bytes() for path in files} == before


def test_leftovers_of_a_killed_recovery_are_removed(killed, tmp_path):
    part = tmp_path / "rows" / "testbed=opus" / "night=2026-03-14"
    part.mkdir(parents=True)
    left = [
        part / ".r1.parquet.0123.tmp",
        killed / ".run.json.0123.tmp",
        killed / ".report.html.77.tmp",
    ]
    rest = part / ".r2.parquet.0123.tmp"
    for path in (*left, rest):
        path.touch()
    recover(killed)
    assert not any(path.exists() for path in left)
    assert rest.exists()


def test_a_run_that_ended_is_settled_without_replacing_its_report(tmp_path):
    folder = record(tmp_path, "r1")
    report = folder / "report.html"
    report.write_text("pytest-html's")
    shutil.rmtree(tmp_path / "rows")
    (folder / "run.json").unlink()
    assert list(to_recover(tmp_path)) == [folder]
    assert recover(folder, write_page).facts.state == "complete"
    assert report.read_text() == "pytest-html's"
    assert len(Results(tmp_path).frame()) == 20
    report.unlink()
    recover(folder, write_page)
    assert "<html" in report.read_text()


def test_a_run_that_goes_on_is_left_alone(tmp_path):
    journal = begin(tmp_path, "r1")
    assert list(to_recover(tmp_path)) == []
    with pytest.raises(JournalInUseError, match=r"r1/journal\.jsonl: its run still goes on"):
        recover(journal.path.parent)
    journal.close()
    assert list(to_recover(tmp_path)) == [journal.path.parent]


def test_a_run_that_never_began_is_reported(tmp_path):
    folder = tmp_path / "runs" / "r1"
    folder.mkdir(parents=True)
    with pytest.raises(RecordError, match="No such file"):
        recover(folder)
    (folder / "journal.jsonl").write_text('{"night":"20')
    with pytest.raises(JournalEmptyError):
        recover(folder)
    assert [entry.name for entry in folder.iterdir()] == ["journal.jsonl"]


def test_everything_around_a_damaged_line_is_recovered(killed, tmp_path):
    journal = killed / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    rows = 20
    lines[7] = lines[7].replace("1", "2", 1)  # still JSON, and another value
    journal.write_text("".join(lines))
    with pytest.raises(JournalDamagedError, match=":8: the line is not what was written"):
        list(read_journal(journal).rows())
    found = recover(killed, write_page)
    (sentence,) = found.facts.damage
    assert sentence.startswith(f"{journal}:8: the line is not what was written")
    assert found.facts.rows == rows - 1
    assert len(Results(tmp_path).frame()) == rows - 1
    assert Results(tmp_path).runs()[0].damage == (sentence,)
    assert "1 lines are not what was written" in found.report.read_text()


def test_a_run_whose_header_is_damaged_has_the_name_of_its_folder(killed, tmp_path):
    folder = killed.rename(killed.with_name("20260314-021500-abcdef"))
    journal = folder / "journal.jsonl"
    journal.write_bytes(b"#" + journal.read_bytes())
    found = recover(folder)
    assert found.facts.run == "20260314-021500-abcdef"
    assert found.facts.night == "2026-03-14"
    assert len(found.facts.damage) == 1


def test_a_report_is_rebuilt_from_the_stored_description(tmp_path):
    """The testbed's file, and the maps it refers to, may have changed since, or be gone."""
    lab = shutil.copytree(OPUS.parent, tmp_path / "lab", ignore=lambda *_: {"broken"})
    run = Run(tmp_path / "results", {"testbeds": {"opus": str(lab / "opus.yaml")}})
    shutil.rmtree(lab)
    run.close({})
    stored = run.record().header["descriptions"]
    assert stored == {"opus": "testbeds/opus/opus.yaml"}
    recovered = recover(run.folder, write_page)
    assert recovered.report is not None
    page = recovered.report.read_text()
    assert "giant-ring" in page
    assert "No description of this testbed" not in page


@pytest.mark.parametrize("plans", ["opus/crossconnect.yaml", "../maps/crossconnect.yaml"])
def test_a_description_is_stored_with_the_files_it_refers_to(tmp_path, plans):
    lab = tmp_path / "site" / "lab"
    lab.mkdir(parents=True)
    maps = lab / plans
    maps.parent.mkdir(exist_ok=True)
    shutil.copy(OPUS.parent / "opus" / "crossconnect.yaml", maps)
    text = OPUS.read_text().replace("opus/crossconnect.yaml", plans)
    (lab / "mine.yaml").write_text(text)
    (lab / "secret").write_text("not for anybody")
    run = Run(tmp_path / "results", {"testbeds": {"opus": str(lab / "mine.yaml")}})
    run.close({})
    stored = sorted(path.name for path in (run.folder / "testbeds").rglob("*") if path.is_file())
    assert stored == ["crossconnect.yaml", "mine.yaml"]
    found = load_descriptions(run.record())["opus"]
    assert set(found.plans) == {"east-west", "north-south", "giant-ring"}
    (run.folder / run.record().header["descriptions"]["opus"]).write_text("name: [")
    assert load_descriptions(run.record()) == {}


def test_descriptions_have_the_order_of_the_command_line(tmp_path):
    files = {name: str(OPUS.with_name(f"{name}.yaml")) for name in ("opus", "mixnet", "railx")}
    run = Run(tmp_path, {"testbeds": files, "testbed_order": list(files)})
    run.close({})
    assert list(load_descriptions(run.record())) == ["opus", "mixnet", "railx"]


def test_a_run_begins_nowhere_without_its_description(tmp_path):
    missing = tmp_path / "none.yaml"
    with pytest.raises(RecordError, match="No such file or directory, and no run begins"):
        Run(tmp_path / "results", {"testbeds": {"lab": str(missing)}})
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="Not a directory"):
        Run(tmp_path / "file", {})


def test_facts_of_a_run(tmp_path):
    run = Run(tmp_path, {"seed": 3})
    run.test_finished("test_a", "failed", 1.5, {"trace": "\udcff<", "path": Path("a")})
    run.close({"exit": 1})
    record = run.record()
    assert record.header["run"] == run.name
    assert record.header["started"].startswith(record.header["night"])
    assert record.summary["exit"] == 1
    assert 0 < record.summary["duration_s"] < 60
    (test,) = record.tests
    assert (test.nodeid, test.outcome, test.duration_s) == ("test_a", "failed", 1.5)
    assert test.details == {"trace": "?<", "path": "a"}
    shown = json.loads((run.folder / "run.json").read_text())
    assert shown["tests"] == [["test_a", "failed", 1.5]]
    assert shown["header"] == read_journal(run.folder / "journal.jsonl").header


def test_runs_of_one_second_have_different_names(tmp_path):
    runs = [Run(tmp_path, {}) for _ in range(20)]
    assert len({run.name for run in runs}) == 20
    for run in runs:
        run.close({})
