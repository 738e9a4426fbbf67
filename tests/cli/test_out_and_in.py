"""`lightrig out` and `in` on the wire: no circuit with the port, what was found is restored."""

import contextlib
import json

import pytest
from bench.served_lab import FOREIGN, LEFT, ServedLab, circuits, describe, set_circuits
from typer.testing import CliRunner

from lightrig.harness.cli.app import application

OUT = "server1.nic0.p0"
"""Ingress 3 and egress 11; LEFT has 3>11."""


@pytest.fixture
def lab(tmp_path, monkeypatch, all_is_carried_out):
    with contextlib.closing(ServedLab(tmp_path)) as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        set_circuits(served.switch, LEFT | FOREIGN)
        yield served


def run(*arguments):
    return CliRunner().invoke(application(), list(map(str, arguments)))


def test_no_circuit_is_made_with_the_port_and_what_was_found_is_restored(lab):
    assert run("out", lab.file, OUT, "--because", "LAB-123").exit_code == 0
    assert run("apply", lab.file, "straight").exit_code == 0
    assert lab.switch.circuits() == circuits("2>12", "4>10") | FOREIGN
    refused = run("connect", lab.file, "server0.nic0.p0", OUT)
    assert refused.exit_code == 2
    assert "out of service is server1.nic0.p0 (LAB-123, until" in refused.stderr
    assert lab.switch.circuits() == circuits("2>12", "4>10") | FOREIGN
    assert run("restore", lab.file).exit_code == 0
    assert lab.switch.circuits() == LEFT | FOREIGN


def test_what_was_found_before_the_port_was_put_out_is_restored(lab):
    assert run("apply", lab.file, "crossed").exit_code == 0
    assert run("out", lab.file, "server1", "--because", "LAB-123").exit_code == 0
    # Neither does a list that is wrong keep anything from being restored.
    lab.file.with_suffix(".exceptions.yaml").write_text("out: {ocs: {}}\n", encoding="utf-8")
    assert run("apply", lab.file, "straight").exit_code == 2
    assert run("restore", lab.file).exit_code == 0
    assert lab.switch.circuits() == LEFT | FOREIGN


def test_a_circuit_on_the_port_can_be_unmade(lab):
    run("out", lab.file, "ocs.11", "--because", "LAB-123")
    assert run("disconnect", lab.file, "ocs.3", "ocs.11").exit_code == 0
    assert lab.switch.circuits() == LEFT - circuits("3>11") | FOREIGN


def test_in_makes_one_circuit_and_leaves_the_switch_as_found(lab):
    run("out", lab.file, OUT, "server0.nic0.p1", "--because", "LAB-123")
    back = run("in", lab.file, OUT, "--json")
    assert back.exit_code == 0, back.output
    (row,) = json.loads(back.stdout)
    assert row["in"]
    assert row["seen"][0]["seen"].startswith("server0.nic0.p0 <-> server1.nic0.p0: ")
    assert lab.switch.circuits() == LEFT | FOREIGN
    listed = run("in", lab.file, OUT)
    assert listed.exit_code == 2
    assert "lists server0.nic0.p1" in listed.stderr


DARK = """
simulation:
  faults:
    - {fault: dark laser, at: [server1.nic0.p0]}
"""


def test_what_does_not_come_up_stays_out(tmp_path):
    path = describe(tmp_path)
    text = path.read_text(encoding="utf-8").replace("\nsimulation:\n", DARK)
    path.write_text(text, encoding="utf-8")
    run("out", path, OUT, "--because", "LAB-123", "--until", "2999-01-31")
    tried = run("in", path, OUT, "--simulated")
    assert tried.exit_code == 1
    assert "server1.nic0.p0 stays out of service" in tried.stdout
    assert "no light at ocs.9" in tried.stdout
    assert "2999-01-31" in path.with_suffix(".exceptions.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((OUT, "--because", " "), "a note without words"),
        ((OUT, "--because", "LAB-1", "--until", "2026-02-30"), "expected a date"),
        ((OUT, "--because", "LAB-1", "--until", "1999-12-31"), "has passed"),
        (("server1.nic0.p2", "--because", "LAB-1"), "did you mean 'server1.nic0.p1'"),
        (("ocs.7", "--because", "LAB-1"), "no port, fiber, NIC or server 'ocs.7'"),
    ],
)
def test_what_is_no_port_date_or_reason_is_refused(tmp_path, arguments, says):
    path = describe(tmp_path)
    refused = run("out", path, *arguments)
    assert refused.exit_code == 2
    assert says in refused.stderr
    assert not path.with_suffix(".exceptions.yaml").exists()


def test_what_needs_whole_plans_is_inconclusive_before_anything_moves(lab):
    run("out", lab.file, OUT, "--because", "LAB-123")
    cut = ("--fault", "cut:300ms")
    for command in (("certify", "ocs"), ("survive", *cut), ("train", "--", "job.py")):
        ended = run(command[0], lab.file, *command[1:])
        assert ended.exit_code == 3, ended.output
        assert "inconclusive: it needs whole plans" in ended.stderr
    assert lab.switch.circuits() == LEFT | FOREIGN


def test_two_entries_for_one_port_and_a_port_that_no_circuit_reaches(tmp_path):
    path = describe(tmp_path)
    run("out", path, OUT, "server1", "--because", "LAB-123")
    both = run("in", path, OUT, "--simulated")
    assert both.exit_code == 2
    assert "is out by another entry" in both.stderr
    assert run("in", path, OUT, "server1", "--simulated").exit_code == 0
    assert not path.with_suffix(".exceptions.yaml").exists()
    packets = "\nfibers:\n  - server0.nic1 <-> tor\n"
    text = path.read_text(encoding="utf-8").replace("\nfibers:\n", packets)
    text = text.replace("switches:\n", "switches:\n  tor: {model: x, kind: packet, ports: 4}\n", 1)
    nic = "nics: &nics {nic1: {netdev: ens9, rate: 100G}, nic0"
    path.write_text(text.replace("nics: &nics {nic0", nic), encoding="utf-8")
    run("out", path, "tor.1", "--because", "LAB-123")
    back = run("in", path, "tor.1", "--simulated")
    assert back.exit_code == 0, back.output
    assert "nothing was tried" in back.stdout
