"""`lightrig connect` and `disconnect`: circuits that a person makes, and what later runs do."""

import contextlib
import json
import re

import pytest
from bench.served_lab import FOREIGN, LEFT, STRAIGHT, ServedLab, circuits, describe, set_circuits
from typer.testing import CliRunner

from lightrig.harness.bench import Fabric, bind_only
from lightrig.harness.bench.aftermath import restore_after
from lightrig.harness.bench.saved_state import StateConflictError
from lightrig.harness.cli.app import application
from lightrig.harness.record import Results
from lightrig.testbeds import Circuit, load


@pytest.fixture
def lab(tmp_path, monkeypatch, all_is_carried_out):
    with contextlib.closing(ServedLab(tmp_path)) as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        # Its clocks are this machine's; how exactly the doctor compares them is tested elsewhere.
        monkeypatch.setattr("lightrig.harness.doctor.servers.BETWEEN", 50_000_000)
        set_circuits(served.switch, LEFT | FOREIGN)
        yield served


def run(*arguments):
    return CliRunner().invoke(application(), list(map(str, arguments)))


def stored(lab):
    return list((lab.folder / "state").glob("*.found.json"))


def apply_in_a_run(lab, plan="straight", *, killed=False):
    """Do what a run does with a plan; killed: end without restoring."""
    testbed = load(lab.file)
    with contextlib.closing(bind_only(testbed, {"ocs"}, "a night")) as bench:
        fabric = Fabric(bench)
        fabric.apply(testbed.plans[plan])
        assert lab.switch.circuits() == STRAIGHT | FOREIGN
        if not killed:
            fabric.restore()


def test_one_circuit_is_made_and_all_others_stay(lab):
    result = run("connect", lab.file, "ocs.4", "ocs.10")
    assert result.exit_code == 0, result.output
    assert result.stdout == "ocs: 4>10 made; before, ingress 4 and egress 10 were free\n"
    assert "stays until it is undone by hand" in result.stderr
    assert f"`lightrig restore {lab.file}` restores" in result.stderr
    assert lab.switch.circuits() == LEFT | FOREIGN | circuits("4>10")


def test_a_circuit_that_is_there_is_left_alone(lab):
    result = run("connect", lab.file, "ocs.2", "ocs.12")
    assert (result.exit_code, result.stdout) == (0, "ocs: 2>12 is there already\n")
    assert not stored(lab)


def test_a_link_is_both_of_its_circuits(lab):
    set_circuits(lab.switch, FOREIGN)
    result = run("connect", lab.file, "server1.nic0.p1", "server0.nic0.p0", "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert row == {
        "switch": "ocs",
        "made": ["1>12", "4>9"],
        "unmade": [],
        "present": [],
        "closed_shutters": [],
    }
    assert lab.switch.circuits() == FOREIGN | circuits("1>12", "4>9")


def test_what_is_in_the_way_goes_only_when_asked(lab):
    # Ingress 1 is in 1>9, egress 11 in 3>11.
    result = run("connect", lab.file, "ocs.1", "ocs.11")
    assert result.exit_code == 2
    assert "1>9, 3>11 in the way of 1>11 on ocs" in result.stderr
    assert "--replace" in result.stderr
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert not stored(lab)
    result = run("connect", lab.file, "ocs.1", "ocs.11", "--replace")
    assert result.exit_code == 0, result.output
    assert result.stdout == "ocs: 1>11 made; before, 1>9, 3>11 stood there and were unmade\n"
    assert lab.switch.circuits() == FOREIGN | circuits("1>11", "2>12")


def test_a_circuit_of_somebody_else_is_never_in_the_way(lab):
    set_circuits(lab.switch, circuits("1>15"))
    result = run("connect", lab.file, "ocs.1", "ocs.11", "--replace")
    assert result.exit_code == 2
    assert "1>15 is there, and one of its ports is not this testbed's" in result.stderr
    assert lab.switch.circuits() == circuits("1>15")
    assert not stored(lab)


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        ("osc.1", "ocs.9", "unknown server or switch 'osc'; did you mean 'ocs'?"),
        ("ocs.1", "server1.nic0.p0", "two ports of one switch, or two NIC ports"),
        ("ocs.5", "ocs.9", "no fiber ends at ocs.5"),
        ("ocs.9", "ocs.1", "ocs.9 is an egress port and ocs.1 an ingress port: exchange them"),
        ("ocs.99", "ocs.9", "ocs has no port 99"),
        ("server0.nic0.p0", "server0.nic0.p0", "a link needs two ports"),
        ("server0.nic1", "server1.nic0.p0", "server0 has no NIC 'nic1'"),
    ],
)
def test_ports_that_no_circuit_can_join_are_named(tmp_path, first, second, sentence):
    result = run("connect", describe(tmp_path), first, second)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_a_circuit_is_undone_by_hand(lab):
    run("connect", lab.file, "ocs.4", "ocs.10")
    result = run("disconnect", lab.file, "ocs.4", "ocs.10")
    assert (result.exit_code, result.stdout) == (0, "ocs: 4>10 unmade\n")
    assert "is as it was found" in result.stderr
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert not stored(lab)


def test_a_circuit_that_is_not_there_is_not_unmade(lab):
    result = run("disconnect", lab.file, "ocs.1", "ocs.11")
    assert result.exit_code == 2
    assert "1>11 is not there; ingress 1 is in 1>9, egress 11 is in 3>11" in result.stderr
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert not stored(lab)


def test_a_run_ends_with_what_a_person_made_and_keeps_what_restores_it(lab):
    run("connect", lab.file, "ocs.4", "ocs.10")
    by_hand = LEFT | circuits("4>10")
    for _ in range(2):
        apply_in_a_run(lab)
        assert lab.switch.circuits() == by_hand | FOREIGN
        assert len(stored(lab)) == 1
    assert run("restore", lab.file).exit_code == 0
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert not stored(lab)


def test_after_a_killed_run_the_next_one_ends_with_what_a_person_made(lab):
    run("connect", lab.file, "ocs.4", "ocs.10")
    apply_in_a_run(lab, killed=True)
    apply_in_a_run(lab)
    assert lab.switch.circuits() == LEFT | FOREIGN | circuits("4>10")


def test_the_process_above_a_killed_run_puts_back_what_a_person_made(lab):
    run("connect", lab.file, "ocs.4", "ocs.10")
    began = "2026-01-01 00:00:00 UTC"
    assert restore_after(lab.file, began) == ""
    apply_in_a_run(lab, killed=True)
    assert restore_after(lab.file, began) == "the lab was restored"
    assert lab.switch.circuits() == LEFT | FOREIGN | circuits("4>10")
    assert len(stored(lab)) == 1
    assert restore_after(lab.file, began) == ""


def test_no_restore_after_an_earlier_change_keeps_what_was_found_first(lab):
    run("connect", lab.file, "ocs.4", "ocs.10")
    assert run("apply", lab.file, "straight", "--no-restore").exit_code == 0
    assert run("restore", lab.file).exit_code == 0
    assert lab.switch.circuits() == LEFT | FOREIGN


def test_what_a_person_applied_outlives_runs(lab):
    run("apply", lab.file, "crossed")
    applied = lab.switch.circuits()
    apply_in_a_run(lab)
    assert lab.switch.circuits() == applied


def test_apply_says_beforehand_what_it_unmakes(lab):
    result = run("apply", lab.file, "straight")
    assert "ocs: unmakes 2 circuits and makes 3" in result.stderr


def test_those_who_look_read_who_made_it(lab):
    run("connect", lab.file, "ocs.4", "ocs.10")
    shown = run("restore", lab.file, "--show").stdout
    assert "by hand   1>9, 2>12, 3>11, 4>10 (lightrig connect ocs.4 ocs.10, " in shown
    (row,) = json.loads(run("restore", lab.file, "--show", "--json").stdout)
    assert row["by_hand"]["wanted"] == ["1>9", "2>12", "3>11", "4>10"]
    assert "set by hand by lightrig connect ocs.4 ocs.10" in run("who", lab.file).stdout


def test_doctor_reads_what_is_saved_and_of_whom(lab):
    run("connect", lab.file, "ocs.4", "ocs.10")
    checks = json.loads(run("doctor", lab.file, "--read-only", "--json").stdout)
    (note,) = [check for check in checks if check["check"] == "saved states"]
    assert "ocs was set by hand (lightrig connect ocs.4 ocs.10, " in note["text"]
    (path,) = stored(lab)
    path.chmod(0o666)
    checks = json.loads(run("doctor", lab.file, "--read-only", "--json").stdout)
    (note,) = [check for check in checks if check["check"] == "saved states"]
    assert "it is neither applied nor removed" in note["text"]
    assert lab.switch.circuits() == LEFT | FOREIGN | circuits("4>10")


def test_doctor_reads_what_a_killed_run_has_left(lab):
    apply_in_a_run(lab, killed=True)
    checks = json.loads(run("doctor", lab.file, "--read-only", "--json").stdout)
    (note,) = [check for check in checks if check["check"] == "saved states"]
    assert "ocs has a saved state, saved " in note["text"]
    assert ", a night, from " in note["text"]


def test_a_circuit_changed_at_the_front_panel_stops_the_next_command(lab):
    run("connect", lab.file, "ocs.4", "ocs.10")
    set_circuits(lab.switch, FOREIGN | {Circuit(1, 10)})
    result = run("connect", lab.file, "ocs.4", "ocs.9")
    assert result.exit_code == 3
    assert "1>10 made by somebody else" in result.stderr
    assert lab.switch.circuits() == FOREIGN | {Circuit(1, 10)}


def test_a_lost_state_folder_leaves_the_switch_alone(lab, monkeypatch):
    monkeypatch.setenv("LIGHTRIG_STATE", "/proc/no-such-folder")
    result = run("connect", lab.file, "ocs.4", "ocs.10")
    assert result.exit_code == 3
    assert lab.switch.circuits() == LEFT | FOREIGN


@pytest.mark.parametrize(
    ("forged", "sentence"),
    [
        ({"wanted": ["4>10", "7>15"]}, "7>15, whose ports are not all cabled"),
        ({"since": "yesterday"}, "is damaged"),
        ({"wanted": "4>10"}, "is no list of circuits"),
    ],
)
def test_a_state_that_was_forged_or_damaged_is_not_applied(lab, forged, sentence):
    run("connect", lab.file, "ocs.4", "ocs.10")
    (path,) = stored(lab)
    document = json.loads(path.read_text())
    document["by_hand"] |= forged
    path.write_text(json.dumps(document))
    with pytest.raises(StateConflictError, match=sentence):
        apply_in_a_run(lab)
    assert lab.switch.circuits() == LEFT | FOREIGN | circuits("4>10")


def test_a_watched_change_is_one_event_of_a_run_by_hand(lab):
    set_circuits(lab.switch, FOREIGN)
    results = lab.folder / "results"
    arguments = ("server1.nic0.p1", "server0.nic0.p0", "--watch", "--results", results)
    result = run("connect", lab.file, *arguments, "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert row["made"] == ["1>12", "4>9"]
    stages = {(each["subject"], each["stage"]): each for each in row["event"]["stages"]}
    for subject, stage in (
        ("ocs", "acknowledged"),
        ("ocs.9", "signal_recovered"),
        ("ocs.12", "signal_recovered"),
        ("server0.nic0.p0", "carrier_up"),
        ("server1.nic0.p1", "carrier_up"),
    ):
        found = stages[subject, stage]
        assert 0 < found["lower"] <= found["value"] <= found["upper"]
    # The simulated switch settles 150 ms after its change, and a carrier comes after its light.
    for port, egress in (("server0.nic0.p0", "ocs.9"), ("server1.nic0.p1", "ocs.12")):
        light = stages[egress, "signal_recovered"]
        assert light["upper"] > 100_000_000
        assert stages[port, "carrier_up"]["upper"] > light["lower"]
    assert lab.switch.circuits() == FOREIGN | circuits("1>12", "4>9")
    found = Results(results)
    assert [each.run for each in found.runs() if each.by_hand] == [row["event"]["run"]]
    assert not list((results / "rows").glob("testbed=*"))
    assert stored(lab)
    assert run("restore", lab.file).exit_code == 0
    assert lab.switch.circuits() == FOREIGN


def test_a_watched_circuit_of_one_direction_shows_its_light(lab):
    set_circuits(lab.switch, FOREIGN)
    arguments = ("ocs.1", "ocs.12", "--watch", "--results", lab.folder / "results")
    result = run("connect", lab.file, *arguments)
    assert result.exit_code == 0, result.output
    assert "ocs: 1>12 made; before, ingress 1 and egress 12 were free" in result.stdout
    assert re.search(r"^ocs\.12 +signal_recovered +\d.* ms", result.stdout, re.MULTILINE)
    assert re.search(r"^run \d{8}-\S+, by hand$", result.stdout, re.MULTILINE)


SERIES = """
name: series
switches:
  near: {model: polatis, address: "tl1://near.invalid", login: env:LAB_OCS, size: 4x4}
  far: {model: polatis, address: "tl1://far.invalid", login: env:LAB_OCS, size: 4x4}
servers:
  server0:
    address: "ssh://server0.invalid"
    nics: {nic0: {netdev: ens1, rate: 100G, transceiver: lr4}}
  server1:
    address: "ssh://server1.invalid"
    nics: {nic0: {netdev: ens1, rate: 100G, transceiver: lr4}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4 dBm, max: 4 dBm}
    receive: {min: -10 dBm, max: 4 dBm}
fibers:
  - server0.nic0 -> near.1
  - near.5 -> server0.nic0
  - server1.nic0 -> far.1
  - far.5 -> server1.nic0
  - near.7 -> far.2
  - near.8 -> far.3
  - far.6 -> near.4
"""


def test_ways_through_several_switches_are_listed_and_none_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    (tmp_path / "series.yaml").write_text(SERIES)
    result = run("connect", tmp_path / "series.yaml", "server0.nic0", "server1.nic0")
    assert result.exit_code == 2
    assert [line.split(maxsplit=1)[1] for line in result.stderr.splitlines()[1:]] == [
        "server0.nic0 -> server1.nic0: near 1>7, far 2>5",
        "server0.nic0 -> server1.nic0: near 1>8, far 3>5",
        "server1.nic0 -> server0.nic0: far 1>6, near 4>5",
    ]
