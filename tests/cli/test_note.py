"""`lightrig note`: a logbook that queries read and that travels with the results."""

import json
import os
import threading
from pathlib import Path

import pytest
from bench.served_lab import describe
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.record.notes import Note, add, read_notes
from lightrig.harness.record.places import Place
from lightrig.harness.record.results import Results
from lightrig.harness.record.row import RecordError
from lightrig.harness.record.transfer import transfer


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return describe(tmp_path)


def run(*arguments):
    return CliRunner().invoke(application("note"), ["note", *map(str, arguments)])


def test_a_note_is_read_again_by_its_subject(lab):
    assert run(lab, "ocs.3", "cleaned with a click pen").exit_code == 0
    assert run(lab, "server1.nic0.p1", "new module").exit_code == 0
    result = run(lab, "ocs")
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    assert line.endswith("ocs.3: cleaned with a click pen")
    assert " UTC  " in line
    assert len(run(lab).stdout.splitlines()) == 2


@pytest.mark.parametrize("subject", ["ocs 1>11", "server0", "server0.nic0.p1", "ocs.12"])
def test_parts_of_the_lab_have_notes(lab, subject):
    result = run(lab, subject, "seen", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)[0]["subject"] == subject


def test_a_nic_and_its_first_port_are_one(lab):
    """A NIC of two ports is called nic0 and nic0.p0 for the first, as in plans."""
    assert run(lab, "server0.nic0", "new module").exit_code == 0
    assert run(lab, "server0.nic0.p1", "its fiber cleaned").exit_code == 0
    assert "new module" in run(lab, "server0.nic0.p0").stdout
    assert "cleaned" not in run(lab, "server0.nic0.p0").stdout
    assert len(run(lab, "server0.nic0").stdout.splitlines()) == 2
    assert run(lab, "server0.nic7", "no such").exit_code == 2


def test_a_run_has_notes(lab):
    Path("results/runs/20260314T020000-ab12").mkdir(parents=True)
    assert run(lab, "20260314T020000-ab12", "the chamber's door was open").exit_code == 0
    assert "door was open" in run(lab, "20260314T020000-ab12").stdout


@pytest.mark.parametrize(
    ("subject", "words", "sentence"),
    [
        ("osc.3", "cleaned", "has no 'osc.3'; did you mean 'ocs.3'?"),
        ("ocs.3", "   ", "a note without words says nothing"),
        ("ocs.3", "a \udcff", "found 'a \\udcff', expected text in UTF-8"),
        ("ocs.3", "x" * 4001, "found 4001 characters, expected at most 4000"),
    ],
)
def test_what_is_no_note_is_refused(lab, subject, words, sentence):
    result = run(lab, subject, words)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert not Path("results").exists()


def test_control_characters_are_shown_escaped(lab):
    run(lab, "ocs.3", "red \x1b[31m\nline")
    shown = run(lab, "ocs.3").stdout
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 1


def test_a_folder_that_cannot_be_written_is_named(lab):
    Path("results").write_text("no folder")
    result = run(lab, "ocs.3", "cleaned")
    assert result.exit_code == 3
    assert "the note was not written: results/notes" in result.stderr


def test_no_link_is_followed(tmp_path):
    path = add(tmp_path / "results", note("first"))
    target = tmp_path / "elsewhere"
    path.rename(target)
    path.symlink_to(target)
    with pytest.raises(RecordError, match="the note was not written"):
        add(tmp_path / "results", note("second"))
    assert len(target.read_text().splitlines()) == 1


def note(text, account="ann", host="gate", at="2026-03-14 02:00:00"):
    return Note(at, account, host, "lab", "ocs.3", text)


def test_queries_have_the_notes_of_all_accounts(tmp_path):
    add(tmp_path, note("second", at="2026-03-15 02:00:00"))
    add(tmp_path, note("first", account="ben"))
    frame = Results(tmp_path).query("SELECT account, text FROM notes ORDER BY at_utc")
    assert frame.to_numpy().tolist() == [["ben", "first"], ["ann", "second"]]
    assert Results(tmp_path).query("SELECT count(*) AS n FROM notes").n[0] == 2


def test_two_writers_at_once_lose_no_line(tmp_path):
    def write(start):
        for number in range(start, start + 200):
            add(tmp_path, note(f"note {number} {'x' * 3000}"))

    writers = [threading.Thread(target=write, args=(start,)) for start in (0, 1000)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert len({each.text for each in read_notes(Place(tmp_path))}) == 400


def test_a_line_that_was_cut_is_left_out_and_a_damaged_one_is_located(tmp_path, lab):
    path = add(tmp_path / "results", note("whole"))
    with path.open("a") as file:
        file.write('{"at": "2026-03-')
    assert [each.text for each in read_notes(Place(tmp_path / "results"))] == ["whole"]
    with path.open("a") as file:
        file.write("\n")
    result = run(lab)
    assert result.exit_code == 3
    assert "notes/ann@gate.jsonl:2: this line is no note" in result.stderr


def test_notes_travel_with_the_results_and_lines_are_only_added(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    path = add(here, note("first"))
    there.mkdir()
    assert transfer(str(here), str(there)).files == 1
    add(here, note("second"))
    add(there, note("theirs", account="ben"))
    done = transfer(str(here), str(there))
    assert (done.files, done.refused) == (1, ())
    assert sorted(each.text for each in read_notes(Place(there))) == ["first", "second", "theirs"]
    # Back again: what has more lines is not cut.
    assert transfer(str(there), str(here)).refused == ()
    assert len(read_notes(Place(here))) == 3
    path.write_text(path.read_text().replace("first", "forged"))
    (refused,) = transfer(str(here), str(there)).refused
    assert "notes/ann@gate.jsonl was not copied" in refused
    assert "first" in {each.text for each in read_notes(Place(there))}


def test_names_of_accounts_are_no_paths(tmp_path):
    path = add(tmp_path, note("first", account="../../etc/ann", host="a/b"))
    assert path.parent == tmp_path / "notes"
    assert os.listdir(tmp_path) == ["notes"]
