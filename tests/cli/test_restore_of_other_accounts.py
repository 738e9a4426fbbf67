"""A state that another account has forged moves no circuit, whoever restores or measures."""

import contextlib
import json
import os
from pathlib import Path

import pytest
from bench.accounts import ANN, EVE, acting_as, needs_accounts, reachable_folder, shell
from bench.served_lab import FOREIGN, LEFT, STRAIGHT, ServedLab, set_circuits
from runs.running import started
from typer.testing import CliRunner

from lightrig.harness.cli import main
from lightrig.harness.cli.app import application


@pytest.fixture
def lab(monkeypatch, all_is_carried_out):
    with reachable_folder() as folder, contextlib.closing(ServedLab(folder)) as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        set_circuits(served.switch, LEFT | FOREIGN)
        yield served


def run(*arguments):
    return CliRunner().invoke(application(), list(map(str, arguments)))


def state_file(lab):
    (path,) = (lab.folder / "state").glob("*.found.json")
    return path


def forge(lab):
    """Let an account write what a run of root could have left, but for other circuits."""
    assert run("apply", lab.file, "straight").exit_code == 0
    path = state_file(lab)
    state = json.loads(path.read_text())
    assert run("restore", lab.file).exit_code == 0
    now = sorted(map(str, LEFT))
    state |= {"found": ["1>12", "2>11", "3>10", "4>9"], "before": now, "after": now}
    done = shell(EVE, f"cat > '{path}' <<'END'\n{json.dumps(state)}\nEND\n")
    assert done.returncode == 0, done.stderr
    return path


@needs_accounts
def test_a_forged_state_is_named_with_its_owner_and_neither_applied_nor_removed(lab):
    path = forge(lab)
    text = path.read_text()
    for command in ([], ["--force"], ["--forget"], ["--owner", str(ANN)]):
        result = run("restore", lab.file, *command)
        assert result.exit_code == 3, result.output
        assert f"belongs to account {EVE}" in result.stderr
        assert f"lightrig restore FILE --owner {EVE}" in result.stderr
        assert str(path) in result.stderr
        assert lab.switch.circuits() == LEFT | FOREIGN
        assert path.read_text() == text
    shown = run("restore", lab.file, "--show")
    assert shown.exit_code == 0
    assert f"belongs to account {EVE}" in shown.stderr
    # Nor does anything else use the instrument, as long as nobody has decided.
    result = run("apply", lab.file, "straight")
    assert result.exit_code == 3
    assert f"ocs is not used: the saved state {path} belongs to account {EVE}" in result.stderr
    assert lab.switch.circuits() == LEFT | FOREIGN


@needs_accounts
def test_a_run_of_pytest_is_refused_by_a_forged_state(lab, tmp_path):
    path = forge(lab)
    suite = tmp_path / "test_one.py"
    suite.write_text("def test_one(fabric):\n    fabric.apply(fabric.plans['straight'])\n")
    options = ("--testbed", lab.file, "--instruments", "hardware")
    with started([suite, *options], tmp_path / "results", lab.environment) as going:
        ended = going.end()
    assert ended.code == 3
    assert f"belongs to account {EVE}" in ended.output
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert path.exists()


@needs_accounts
def test_root_restores_what_an_account_that_it_names_has_left(lab):
    assert run("apply", lab.file, "straight").exit_code == 0
    os.chown(state_file(lab), ANN, ANN)
    assert run("restore", lab.file).exit_code == 3
    assert lab.switch.circuits() == STRAIGHT | FOREIGN
    result = run("restore", lab.file, "--owner", ANN)
    assert result.exit_code == 0, result.output
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert not list((lab.folder / "state").glob("*.found.json"))


def test_owners_are_named_by_root_alone_and_exist(lab, monkeypatch):
    if os.geteuid() == 0:
        result = run("restore", lab.file, "--owner", "nobody-of-this-name")
        assert result.exit_code == 2
        assert "no account 'nobody-of-this-name'" in result.stderr
    monkeypatch.setattr(os, "geteuid", lambda: ANN)
    result = run("restore", lab.file, "--owner", ANN)
    assert result.exit_code == 2
    assert "--owner is for root" in result.stderr


@needs_accounts
def test_an_unreadable_state_of_another_account_is_no_reason_to_say_that_all_is_restored(lab):
    assert run("apply", lab.file, "straight").exit_code == 0
    with acting_as(ANN):
        result = run("restore", lab.file)
    assert result.exit_code == 3
    assert "belongs to root and cannot be read by this account" in result.stderr
    assert "nothing to restore" not in result.stdout


@pytest.mark.timeout(60)
def test_a_fifo_hangs_neither_restore_nor_a_change(lab):
    (lab.folder / "state").mkdir(mode=0o700)
    os.mkfifo(lab.folder / "state" / "a.found.json")
    result = run("restore", lab.file)
    assert result.exit_code == 3
    assert "is no regular file" in result.stderr
    assert run("apply", lab.file, "straight").exit_code == 0
    result = run("restore", lab.file)
    assert result.exit_code == 3
    assert "3 circuits restored" in result.stdout
    assert lab.switch.circuits() == LEFT | FOREIGN


def test_one_damaged_state_keeps_no_other_from_being_restored(lab):
    assert run("apply", lab.file, "straight").exit_code == 0
    damaged = lab.folder / "state" / "b.found.json"
    damaged.write_text("{")
    damaged.chmod(0o600)
    result = run("restore", lab.file)
    assert result.exit_code == 3
    assert f"{damaged} is damaged" in result.stderr
    assert lab.switch.circuits() == LEFT | FOREIGN


# ---------------------------------------------------------------------- a mistyped folder


@pytest.mark.parametrize(
    "command", [["restore", "{file}"], ["report"], ["results", "list"], ["results", "recover"]]
)
def test_a_state_folder_that_is_none_fails(lab, monkeypatch, capsys, command):
    monkeypatch.setenv("LIGHTRIG_STATE", str(lab.folder / "sate"))
    with pytest.raises(SystemExit) as ended:
        main([part.format(file=lab.file) for part in command])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert f"LIGHTRIG_STATE names {lab.folder / 'sate'}, which is no folder" in error
    assert not (lab.folder / "sate").exists()


def test_a_lab_folder_that_is_none_fails(lab):
    text = lab.file.read_text()
    lab.file.write_text(text + "lab_folder: not-mounted\n")
    result = run("restore", lab.file)
    assert result.exit_code == 3
    assert f"{lab.folder / 'not-mounted'}, the folder of leases and saved states" in result.stderr
    assert run("apply", lab.file, "straight").exit_code == 0
    assert run("restore", lab.file).exit_code == 0
    assert lab.switch.circuits() == LEFT | FOREIGN


def test_a_run_makes_the_folder(lab):
    assert run("apply", lab.file, "straight").exit_code == 0
    assert Path(os.environ["LIGHTRIG_STATE"]).stat().st_mode & 0o7777 == 0o1777
