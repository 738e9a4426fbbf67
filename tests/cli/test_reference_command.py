"""`lightrig reference`: takes references, asks for fibers to be moved, stores what it found."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.bench import bind
from harness.cli import main
from testbeds import Port
from testbeds.references import load_references

ROOT = Path(__file__).parents[2]
METERED = """
name: metered
switches:
  trx: {model: ocstrx, address: "serial:///dev/trx", size: 1x3}
instruments:
  laser: {kind: light_source, model: keysight-n7776c, address: scpi://laser.invalid}
  meter: {kind: power_meter, model: keysight-n7745a, address: scpi://meter.invalid, channels: 2}
fibers: [laser -> trx.1, "trx.[2-3] -> meter.[1-2]"]
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return lambda *arguments, **given: CliRunner().invoke(main, list(map(str, arguments)), **given)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "metered.yaml"
    path.write_text(METERED)
    return path


def answer_simulated(monkeypatch):
    """Let simulated instruments answer where hardware is asked for."""
    command = sys.modules["harness.cli.reference"]
    monkeypatch.setattr(command, "bind", lambda testbed, mode: bind(testbed, "simulated"))


def test_simulated_references_stand_under_the_results_alone(run, file, tmp_path):
    result = run("reference", file, "--simulated", "--results", tmp_path / "results", "--json")
    assert result.exit_code == 0
    rows = json.loads(result.stdout)
    assert {row["port"] for row in rows} == {"laser.1", "meter.1", "meter.2"}
    assert all(row["simulated"] and row["standard_uncertainty_db"] > 0 for row in rows)
    stored = load_references(tmp_path / "results" / "references" / "metered.references.yaml")
    assert stored.simulated
    assert not (tmp_path / "metered.references.yaml").exists()


def test_a_person_is_asked_to_move_each_fiber(run, file, tmp_path, monkeypatch):
    answer_simulated(monkeypatch)
    result = run("reference", file, input="\n" * 5)
    assert result.exit_code == 0, result.output
    asked = [line for line in result.stderr.splitlines() if "press Enter" in line]
    assert "Cap the inputs of meter" in asked[0]
    assert "Take the fiber of laser.1 out of trx.1 and plug it into meter.1" in result.stderr
    assert "Put the fiber of laser.1 back into trx.1, that of meter.2 too" in result.stderr
    (found,) = load_references(tmp_path / "metered.references.yaml").sets
    assert found.launches.keys() == {Port("laser", "1")}
    assert found.zeroed == found.taken < found.expires
    assert found.instruments[0].endswith("serial SIM-meter")


def test_other_references_in_the_file_are_kept(run, file, tmp_path, monkeypatch):
    answer_simulated(monkeypatch)
    stored = tmp_path / "metered.references.yaml"
    stored.write_text(
        "references:\n  by-hand: {taken: 2026-01-01, expires: 2026-02-01, wavelength: 1310 nm,\n"
        "    instruments: [{model: X, serial: '1'}], uncertainty: {each: 0.05 dB},\n"
        "    launches: {trx.1: -1 dBm}}\n"
    )
    assert run("reference", file, "--no-zero", input="\n" * 4).exit_code == 0
    sets = load_references(stored).sets
    assert [each.name for each in sets] == ["by-hand", "meter-1550"]
    assert sets[1].zeroed is None


def test_nobody_at_the_bench_ends_it_and_stores_nothing(run, file, tmp_path, monkeypatch):
    answer_simulated(monkeypatch)
    assert run("reference", file, input="").exit_code != 0
    assert not (tmp_path / "metered.references.yaml").exists()


def test_an_absent_lab_is_trouble(run, file):
    result = run("reference", file)
    assert result.exit_code == 3
    assert "did not answer as described" in result.stderr


def test_a_testbed_without_source_and_meter_says_so(run, tmp_path, monkeypatch):
    opus = tmp_path / "opus.yaml"
    shutil.copy(ROOT / "testbeds" / "opus.yaml", opus)
    shutil.copytree(ROOT / "testbeds" / "opus", tmp_path / "opus")
    answer_simulated(monkeypatch)
    result = run("reference", opus)
    assert result.exit_code == 3
    assert "no light source and power meter" in result.stderr
