"""`lightrig reference`: takes references, asks for fibers to be moved, stores what it found."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lightrig.harness.bench import bind
from lightrig.harness.cli.app import application
from lightrig.testbeds import Port
from lightrig.testbeds.references import load_references

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


MONITORED = """
name: monitored
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 2x2, options: {monitors: both}}
servers:
  server[0-1]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {ports: 1, netdev: eth0, rate: 100G, transceiver: lr4}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4 dBm, max: 4 dBm}
    receive: {min: -14 dBm, max: 4 dBm}
instruments:
  meter: {kind: power_meter, model: keysight-n7745a, address: scpi://meter.invalid}
fibers: ["server[0-1].nic0 <-> ocs"]
simulation: {references: {uncertainty: 0 dB}}
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    return lambda *arguments, **given: CliRunner().invoke(
        application(), list(map(str, arguments)), **given
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "metered.yaml"
    path.write_text(METERED)
    return path


def answer_simulated(monkeypatch):
    """Let simulated instruments answer where hardware is asked for."""
    command = sys.modules["lightrig.harness.cli.reference"]
    monkeypatch.setattr(command, "bind", lambda testbed, mode, purpose: bind(testbed, "simulated"))


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


def test_a_person_leads_every_port_to_the_meter(run, tmp_path, monkeypatch):
    """Somebody who does what is asked, in the simulated lab, finds what its monitors are off by."""
    file = tmp_path / "monitored.yaml"
    file.write_text(MONITORED)
    benches, asked, undo = [], [], []
    command = sys.modules["lightrig.harness.cli.reference"]

    def simulated(testbed, mode, purpose):
        benches.append(bind(testbed, "simulated"))
        return benches[-1]

    def obey(text, **_):
        asked.append(text)
        if text.startswith("Put"):
            return undo.pop()()
        source = re.search(r"fiber of (\S+) out|out of (\S+) and lead", text)
        port = Port(*(source[1] or source[2]).split(".", 1))
        undo.append(benches[-1].world.replug(port, Port("meter", "1"), 0.0))
        return None

    monkeypatch.setattr(command, "bind", simulated)
    monkeypatch.setattr(command.typer, "prompt", obey)
    result = run("reference", file, "--monitors", "meter.1", "--accuracy", "0.1 dB")
    assert result.exit_code == 0, result.output
    assert len(asked) == 2 * 4
    assert not undo
    (found,) = load_references(tmp_path / "monitored.references.yaml").sets
    assert found.common_db == 0.1
    book = benches[-1].world.references
    wrong = [o - book.offset("ocs", int(p.name)) for p, o in found.offsets.items()]
    assert len(wrong) == 4
    assert max(wrong) - min(wrong) < 0.1
    assert [name for name in found.instruments if "SIM-meter" in name or "SIM-ocs" in name]


def test_an_accuracy_that_is_no_number_is_the_callers(run, file):
    result = run("reference", file, "--monitors", "meter.1", "--accuracy", "good")
    assert result.exit_code == 2
    assert "--accuracy" in result.stderr


def test_references_of_different_names_stay_in_the_file(run, file, tmp_path, monkeypatch):
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


def test_an_aborted_prompt_stores_nothing(run, file, tmp_path, monkeypatch):
    answer_simulated(monkeypatch)
    assert run("reference", file, input="").exit_code != 0
    assert not (tmp_path / "metered.references.yaml").exists()


def test_an_absent_lab_ends_with_status_3(run, file):
    result = run("reference", file)
    assert result.exit_code == 3
    assert "did not answer as described" in result.stderr


def test_a_testbed_without_source_and_meter_is_refused(run, tmp_path, monkeypatch):
    opus = tmp_path / "opus.yaml"
    shutil.copy(ROOT / "testbeds" / "opus.yaml", opus)
    shutil.copytree(ROOT / "testbeds" / "opus", tmp_path / "opus")
    answer_simulated(monkeypatch)
    result = run("reference", opus)
    assert result.exit_code == 3
    assert "no light source and power meter" in result.stderr


@pytest.mark.parametrize(
    ("monitors", "message"),
    [
        ("metre.1", "has no channel 'metre.1' of a power meter; did you mean 'meter.1'?"),
        ("meter.3", "7:3: meter has no channel '3', expected meter.1 to meter.2"),
        ("meter", "7:3: meter has no channel"),
        ("laser.1", "6:3: laser: found a light source, expected a power meter"),
    ],
)
@pytest.mark.parametrize("simulated", [["--simulated"], []])
def test_an_unknown_meter_for_monitors_is_bad_use(run, file, monitors, message, simulated):
    result = run("reference", file, *simulated, "--monitors", monitors)
    assert result.exit_code == 2
    assert result.stderr.startswith("--monitors: ")
    assert message in result.stderr
