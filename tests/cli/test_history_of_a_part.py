"""`lightrig history` and `results compare --subject`: one part of the lab, and notes of it."""

import json

import pytest
from bench.served_lab import describe
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.record import Context, Journal, Row, settle
from lightrig.harness.record.notes import Note, add
from lightrig.testbeds.plans import is_about

LOSSES = {  # by night, of circuit 3>9; cleaned on the 12th
    "2026-03-09": (2.8, 3.1, 2.9, 2.6, 3.3, 2.7, 3.0),
    "2026-03-10": (2.9, 2.9, 3.2, 3.0, 2.5, 3.1),
    "2026-03-11": (3.0, 2.75),
    "2026-03-12": (1.25, 1.1, 1.15, 1.3, 1.05, 1.21),
    "2026-03-14": (1.21, 1.0, 1.1, 1.3, 1.4, 1.15, 1.25, 1.05),
}


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = describe(tmp_path)
    for night, losses in LOSSES.items():
        clock = {"utc": f"{night}T03:00:00.000000", "ns": 10**12}
        rows = [loss_row("ocs 3>9", db, 10**12 + at * 10**9) for at, db in enumerate(losses)]
        rows += [loss_row("ocs 1>10", 1.0, 10**12), loss_row("ocs 13>9", 4.5, 10**12)]
        record(tmp_path, f"{night.replace('-', '')}-030000-n", night, rows, clock=clock)
    by_hand = [loss_row("ocs 3>9", 99.0, 10**12)]
    record(tmp_path, "20260313-100000-h", "2026-03-13", by_hand, by_hand=True)
    note(tmp_path, "2026-02-01 08:00:00", "ocs.9", "before all of it")
    note(tmp_path, "2026-03-11 15:30:00", "ocs.9", "cleaned with\na click pen")
    note(tmp_path, "2026-03-11 15:31:00", "ocs.10", "left alone")
    note(tmp_path, "2026-03-12 09:00:00", "ocs 3>9", "looks well")
    return file


def loss_row(subject, value, at):
    return Row(subject, "insertion_loss", value, value - 0.2, value + 0.2, "dB", at)


def record(folder, run, night, rows, **header):
    path = folder / "results" / "runs" / run / "journal.jsonl"
    path.parent.mkdir(parents=True)
    context = Context("lab", "suites/test_loss.py::test_loss", (), simulated=False)
    started = f"{night}T03:00:00Z"
    with Journal(path, {"run": run, "night": night, "started": started, **header}) as journal:
        journal.append_many(context, rows)
        journal.close({"exit": 0, "duration_s": 1.0})
    settle(path.parent)


def note(folder, at, subject, text):
    add(folder / "results", Note(at, "ann", "rack1", "lab", subject, text))


def run(*arguments):
    return CliRunner().invoke(application(), list(map(str, arguments)))


def test_a_port_over_its_last_nights_with_its_notes(lab):
    result = run("history", lab, "ocs.9", "--nights", 4)
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if "13>9" not in line]
    # Of 6 values the least and the greatest are the 95 % interval of the median (1 - 2 / 2^6).
    assert lines == [
        "2026-03-10  insertion_loss  ocs 3>9  2.95 dB [2.50 … 3.20] n 6",
        "2026-03-11  insertion_loss  ocs 3>9  2.88 dB [2.75 … 3.00, all of them] n 2",
        "2026-03-11 15:30:00 UTC  ann on rack1: ocs.9: cleaned with\\na click pen",
        "2026-03-12  insertion_loss  ocs 3>9  1.18 dB [1.05 … 1.30] n 6",
        "2026-03-12 09:00:00 UTC  ann on rack1: ocs 3>9: looks well",
        "2026-03-14  insertion_loss  ocs 3>9  1.18 dB [1.00 … 1.40] n 8",
    ]
    assert "99" not in result.stdout


def test_the_document_of_a_history(lab):
    found = json.loads(run("history", lab, "ocs 3>9", "--nights", 1, "--json").stdout)
    (night,) = found["nights"]
    assert night == {
        "night": "2026-03-14",
        "began": "2026-03-14 03:00:00",
        "subject": "ocs 3>9",
        "quantity": "insertion_loss",
        "unit": "dB",
        "n": 8,
        "median": pytest.approx(1.18),
        "lower": 1.0,
        "upper": 1.4,
        "ends": "95 % interval",
        "simulated": False,
    }
    assert found["notes"] == []


def test_a_part_of_which_nothing_is_known(lab):
    result = run("history", lab, "ocs.2")
    assert result.exit_code == 2
    assert "nothing was measured or noted of 'ocs.2'" in result.stderr
    nothing = run("history", lab, "ocs.9", "--results", "nowhere")
    assert (nothing.exit_code, "nowhere" in nothing.stderr) == (2, True)


def test_two_runs_by_a_subject_with_what_was_noted_between(lab):
    first, last = "20260310-030000-n", "20260314-030000-n"
    result = run("results", "compare", first, last, "--subject", "ocs.3")
    assert result.exit_code in (0, 1), result.output
    assert "3>9" in result.stdout
    assert "1>10" not in result.stdout
    assert "noted between them, 2026-03-12 09:00:00 UTC, by ann on rack1: ocs 3>9" in result.stdout
    assert "click pen" not in result.stdout  # of a port that this one is joined with, not of it
    of_sink = run("results", "compare", first, last, "--subject", "ocs.9").stdout
    assert "click pen" in of_sink
    assert "before all" not in of_sink
    none = run("results", "compare", first, last, "--subject", "ocs.4")
    assert none.exit_code == 2
    assert "nothing in common of 'ocs.4'" in none.stderr


@pytest.mark.parametrize(
    ("subject", "part", "about"),
    [
        ("ocs 3>17", "ocs.3", True),
        ("ocs 3>17", "ocs.17", True),
        ("ocs 3>17", "ocs.1", False),
        ("ocs 3>17", "ocs", True),
        ("ocs 3>17", "ocs 3>17", True),
        ("ocs 13>17", "ocs 3>17", False),
        ("ocs2 3>17", "ocs", False),
        ("server0.nic0.p0 <-> server1.nic0.p0", "server1.nic0.p0", True),
        ("server0.nic0.p0 <-> server1.nic0.p0", "server1", True),
        ("server0.nic0.p0 <-> server1.nic0.p0", "server1.nic0.p1", False),
        ("server10.nic0.p0", "server1", False),
        ("laser", "laser", True),
    ],
)
def test_which_subjects_a_part_is_in(subject, part, about):
    assert is_about(subject, part) is about
