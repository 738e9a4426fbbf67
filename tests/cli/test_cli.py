"""The command line: what it prints, and its exit status."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.bench.keeping import FoundState
from harness.cli import main
from testbeds import Circuit

ROOT = Path(__file__).parents[2]
OPUS = str(ROOT / "testbeds" / "opus.yaml")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return lambda *arguments: CliRunner().invoke(main, arguments)


def test_check_says_what_is_there(run):
    result = run("check", OPUS)
    assert result.exit_code == 0
    assert "opus is right" in result.stdout
    assert "giant-ring (16 circuits, 8 links)" in re.sub(r"\s+", " ", result.stdout)


def test_check_as_json_is_one_list_of_objects(run):
    parts = json.loads(run("check", OPUS, "--json").stdout)
    assert {part["part"]: part["count"] for part in parts} == {
        "switches": 1,
        "servers": 4,
        "NIC ports": 16,
        "fibers": 32,
        "plans": 3,
        "limits": 2,
    }


def test_check_locates_every_error(run, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("name: bad\nswitches: {}\nsize: 3\nfibres: []\n")
    result = run("check", str(file))
    assert result.exit_code == 2
    assert f"{file}:3:1:" in result.stderr
    assert f"{file}:4:1:" in result.stderr
    problems = json.loads(run("check", str(file), "--json").stdout)
    assert [(problem["line"], problem["column"]) for problem in problems] == [(3, 1), (4, 1)]


def test_check_of_a_file_that_is_not_there(run, tmp_path):
    result = run("check", str(tmp_path / "none.yaml"))
    assert result.exit_code == 2
    assert "No such file" in result.stderr


def test_schema_is_the_committed_one(run):
    committed = json.loads((ROOT / "testbeds" / "schema.json").read_text())
    assert json.loads(run("schema").stdout) == committed


def test_restore_with_nothing_to_put_back(run):
    result = run("restore", OPUS)
    assert result.exit_code == 0
    assert "nothing to put back" in result.stdout


def test_restore_without_the_lab_is_lab_trouble_and_keeps_what_was_found(run, tmp_path):
    kept = FoundState("opus", tmp_path / "state" / "lightrig")
    kept.keep({"ocs": frozenset({Circuit(1, 36)})})
    result = run("restore", OPUS)
    assert result.exit_code == 3
    assert "ocs at tl1://ocs.invalid" in result.stderr
    assert kept.read() == {"ocs": frozenset({Circuit(1, 36)})}
