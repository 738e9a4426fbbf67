"""`lightrig plan` sends nothing; `lightrig apply` sets a plan and leaves it there."""

import contextlib
import json
from pathlib import Path

import pytest
from bench.served_lab import CROSSED, FOREIGN, LEFT, STRAIGHT, ServedLab, describe, set_circuits
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.instruments.simulated.world.optics import Matrix
from lightrig.testbeds import Circuit


@pytest.fixture
def lab(tmp_path, monkeypatch, all_is_carried_out):
    with contextlib.closing(ServedLab(tmp_path)) as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        set_circuits(served.switch, LEFT | FOREIGN)
        yield served


def run(*arguments):
    return CliRunner().invoke(application(), list(map(str, arguments)))


def stored(lab):
    return list((lab.folder / "state").glob("*.found.json"))


def test_a_plan_is_listed_by_circuit(tmp_path):
    result = run("plan", describe(tmp_path), "straight", "--json")
    assert result.exit_code == 0
    rows = json.loads(result.stdout)
    assert {Circuit.parse(row["circuit"]) for row in rows} == STRAIGHT
    assert {row["change"] for row in rows} == {"made"}
    (first,) = [row for row in rows if row["circuit"] == "1>11"]
    assert (first["from"], first["to"]) == ("server0.nic0.p0", "server1.nic0.p0")


def test_changes_between_two_plans_are_listed(tmp_path):
    result = run("plan", describe(tmp_path), "crossed", "--from", "straight", "--json")
    found = {what: set() for what in ("made", "unmade")}
    for row in json.loads(result.stdout):
        found[row["change"]].add(Circuit.parse(row["circuit"]))
    assert found == {"made": CROSSED - STRAIGHT, "unmade": STRAIGHT - CROSSED}


def test_all_plans_as_tables_with_their_links(tmp_path):
    result = run("plan", describe(tmp_path))
    assert result.exit_code == 0
    assert "straight: 4 circuits; links server0.nic0.p0 <-> server1.nic0.p0, " in result.stdout
    assert "crossed: 4 circuits" in result.stdout


def test_lines_of_circuits_are_whole_on_a_narrow_terminal(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    lines = run("plan", describe(tmp_path), "straight").stdout.splitlines()
    assert lines[1].split() == ["switch", "circuit", "from", "to"]
    assert ["+", "ocs", "1>11", "server0.nic0.p0", "server1.nic0.p0"] in map(str.split, lines)
    assert len(lines) == 2 + len(STRAIGHT)


def test_a_picture_of_the_plans_asked_for(tmp_path):
    page = tmp_path / "plans.html"
    assert run("plan", describe(tmp_path), "crossed", "--picture", page).exit_code == 0
    text = page.read_text()
    assert text.count("<title>ocs ") == 4
    assert "straight" not in text
    result = run("plan", describe(tmp_path), "--picture", tmp_path / "none" / "plans.html")
    assert result.exit_code == 2
    assert "No such file or directory" in result.stderr


def test_cables_are_listed_with_their_labels_panels_and_places(tmp_path):
    file = describe(tmp_path)
    text = file.read_text()
    line = "server[0-1].nic0.p[0-1] <-> ocs"
    assert f"  - {line}\n" in text
    stated = f'{{fiber: "{line}", label: "F-[7-9,17]", via: ["panel [4-7]"]}}'
    file.write_text(text.replace(line, stated).replace("size:", 'place: "row 2", size:', 1))
    result = run("plan", file, "--cables", "--json")
    assert result.exit_code == 0, result.output
    found = {(one["from"], one["to"]): one for one in json.loads(result.output)}
    one = found["server1.nic0.p1", "ocs.4"]
    assert (one["label"], one["via"]) == ("F-17", ["panel 7"])
    assert (one["from_place"], one["to_place"]) == ("", "row 2")
    printed = run("plan", file, "--cables").output
    assert printed.count("F-17") == 2
    assert "row 2" in printed


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_a_plan_that_is_not_there_is_answered_with_those_that_are(tmp_path, command):
    result = run(command, describe(tmp_path), "twisted")
    assert result.exit_code == 2
    assert "has no plan 'twisted'; its plans are straight, crossed" in result.stderr


def test_a_plan_stands_until_it_is_restored(lab):
    result = run("apply", lab.file, "straight", "--json")
    assert result.exit_code == 0, result.output
    # One of what people had left is part of the plan already.
    assert json.loads(result.stdout) == [{"switch": "ocs", "unmade": 2, "made": 3}]
    assert lab.switch.circuits() == STRAIGHT | FOREIGN
    moved = run("apply", lab.file, "crossed")
    assert moved.exit_code == 0
    assert moved.stdout == f"ocs: {len(STRAIGHT - CROSSED)} circuits unmade, 4 made\n"
    assert f"`lightrig restore {lab.file}` restores" in moved.stderr
    assert lab.switch.circuits() == CROSSED | FOREIGN
    assert run("restore", lab.file).exit_code == 0
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert not stored(lab)


def test_for_good_nothing_is_put_back(lab):
    moved = run("apply", lab.file, "straight", "--no-restore")
    assert (moved.exit_code, moved.stdout) == (0, "ocs: 2 circuits unmade, 3 made\n")
    assert "restores" not in moved.stderr
    assert not stored(lab)
    assert run("restore", lab.file).exit_code == 0
    assert lab.switch.circuits() == STRAIGHT | FOREIGN


def test_servers_need_not_answer(lab):
    text = Path(lab.file).read_text().replace(lab.places["server0"], "127.0.0.1:9")
    Path(lab.file).write_text(text)
    assert run("apply", lab.file, "straight").exit_code == 0
    assert run("restore", lab.file).exit_code == 0
    assert lab.switch.circuits() == LEFT | FOREIGN


def test_foreign_ports_are_never_touched(lab):
    set_circuits(lab.switch, [Circuit(1, 15)])
    result = run("apply", lab.file, "straight")
    assert result.exit_code == 3
    assert "1>15 is there, and one of its ports is not this testbed's" in result.stderr
    assert lab.switch.circuits() == {Circuit(1, 15)}


def test_an_absent_switch_ends_with_status_3(tmp_path):
    result = run("apply", describe(tmp_path), "straight")
    assert result.exit_code == 3
    assert "1 of 1 instruments" in result.stderr


def test_a_switch_that_acknowledges_and_does_nothing_is_found_out(lab, monkeypatch):
    monkeypatch.setattr(Matrix, "connect", lambda self, circuits: 0)
    result = run("apply", lab.file, "straight")
    assert result.exit_code == 3
    assert "acknowledged the change, but is not in plan straight" in " ".join(result.stderr.split())


def other_switch(lab, folder):
    """A second lab of the same name, whose switch is another one."""
    folder.mkdir()
    return contextlib.closing(ServedLab(folder))


def test_a_saved_state_is_never_applied_to_another_switch(lab, tmp_path, monkeypatch):
    assert run("apply", lab.file, "straight").exit_code == 0
    with other_switch(lab, tmp_path / "second") as second:
        held = frozenset({Circuit(4, 9)})
        set_circuits(second.switch, held)
        text = second.file.read_text().replace("env:LAB_OCS", "env:LAB_OCS2")
        second.file.write_text(text)
        monkeypatch.setenv("LAB_OCS2", ":".join(second.login))
        result = run("restore", second.file)
        assert result.exit_code == 3
        assert "ocs is not restored: it is another instrument" in result.stderr
        assert lab.places["ocs"] in result.stderr
        assert second.switch.circuits() == held
    assert lab.switch.circuits() == STRAIGHT | FOREIGN
    assert run("restore", lab.file).exit_code == 0
    assert lab.switch.circuits() == LEFT | FOREIGN


def test_circuits_made_by_hand_stop_a_restore_until_a_person_decides(lab):
    assert run("apply", lab.file, "straight").exit_code == 0
    by_hand = frozenset({Circuit(2, 9), Circuit(3, 12)}) | FOREIGN
    set_circuits(lab.switch, by_hand)
    result = run("restore", lab.file)
    assert result.exit_code == 3
    assert "2>9, 3>12 made by somebody else" in result.stderr
    assert lab.switch.circuits() == by_hand
    (shown,) = json.loads(run("restore", lab.file, "--show", "--json").stdout)
    assert shown["circuits"] == sorted(map(str, LEFT))
    assert shown["last_set"] == [str(circuit) for circuit in sorted(STRAIGHT)]
    assert "2>9, 3>12 made by somebody else" in shown["differences"][0]
    assert lab.switch.circuits() == by_hand
    assert run("restore", lab.file, "--force").exit_code == 0
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert not stored(lab)
