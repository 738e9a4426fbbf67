"""Completion by shells: Typer's protocol in the environment, and bash itself on a terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lightrig.harness.cli import COMPLETION_VARIABLE, commands, main

ROOT = Path(__file__).parents[2]
LIGHTRIG = Path(sys.executable).with_name("lightrig")


@pytest.fixture
def completions(monkeypatch, capsys):
    """Return what a shell is told for a line whose last word is incomplete."""

    def completions(line, shell="bash"):
        words = line.split(" ")
        monkeypatch.setenv(COMPLETION_VARIABLE, f"complete_{shell}")
        if shell == "bash":
            monkeypatch.setenv("COMP_WORDS", line)
            monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        else:
            monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
            monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        with pytest.raises(SystemExit):
            main([])
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.split("\n")[:-1]

    monkeypatch.chdir(ROOT)
    return completions


def test_commands_are_completed_without_loading_any(completions):
    assert completions("lightrig ") == list(commands())
    assert completions("lightrig res") == ["restore", "results"]


def test_testbed_files_and_folders_are_completed(completions):
    # testbeds/opus.baselines.yaml is beside them, and no testbed.
    assert completions("lightrig check testbeds/op") == ["testbeds/opus.yaml", "testbeds/opus/"]
    assert completions("lightrig check nowhere/x") == [""]
    # A folder that is alone is entered.
    assert "testbeds/opus.yaml" in completions("lightrig check testb")


def test_plans_of_the_file_in_the_line_are_completed(completions):
    assert completions("lightrig plan testbeds/namespaces.yaml cr") == ["crossed"]
    assert completions("lightrig apply testbeds/namespaces.yaml ring crossed x") == [""]
    assert completions("lightrig plan README.md ") == [""]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("lightrig claims r", ["railx"]),
        ("lightrig generate a", ["acos"]),
        ("lightrig results comp", ["compare"]),
        ("lightrig check --dec", ["--declarations"]),
        ("lightrig results compare a b --quantity insertion_l", ["insertion_loss"]),
    ],
)
def test_systems_subcommands_options_and_quantities_are_completed(completions, line, found):
    assert completions(line)[: len(found)] == found


@pytest.mark.parametrize("command", ["get", "set"])
def test_shutters_of_a_switch_that_stands_in_the_line_are_completed(completions, command):
    line = f"lightrig {command} testbeds/workbench.yaml "
    assert completions(f"{line}oc") == ["ocs"]
    assert completions(f"{line}ocs.2") == [
        "ocs.2.shutter",
        "ocs.20.shutter",
        "ocs.21.shutter",
    ]
    assert completions(f"{line}laser.2") == [""]
    assert completions("lightrig set nowhere.yaml ocs.2") == [""]


def test_runs_of_the_folder_in_the_line_are_completed(completions, tmp_path):
    for name in ("20260101-1", "20260102-2"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    line = f"lightrig report --results {tmp_path} "
    assert completions(line) == ["last", "20260102-2", "20260101-1"]


def test_zsh_and_fish_are_answered_in_their_forms(completions):
    assert '"crossed"' in "".join(completions("lightrig plan testbeds/namespaces.yaml c", "zsh"))
    (line,) = completions("lightrig sch", "fish")
    assert line.startswith("schema\t")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_shown_and_installed(shell, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    main(["--show-completion", shell])
    script = capsys.readouterr().out.strip()
    assert COMPLETION_VARIABLE in script
    main(["--install-completion", shell])
    written = Path(capsys.readouterr().out.partition(" is written")[0])
    assert written.is_relative_to(tmp_path)
    assert written.read_text().strip() == script


def test_another_shell_is_refused_with_those_that_are_known(capsys, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    with pytest.raises(SystemExit) as ended:
        main(["--show-completion"])
    assert ended.value.code == 2
    assert "bash, zsh, fish" in capsys.readouterr().err


@pytest.mark.long
def test_bash_completes_on_a_terminal(tmp_path):
    subprocess.run(
        [LIGHTRIG, "--install-completion", "bash"],
        env={**os.environ, "HOME": str(tmp_path)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    environment = {
        "HOME": str(tmp_path), "PATH": f"{LIGHTRIG.parent}:{os.environ['PATH']}",
        "TERM": "dumb", "PS1": "$ ",
    }  # fmt: skip
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        os.execvpe("bash", ["bash", "--rcfile", str(tmp_path / ".bashrc"), "-i"], environment)
    try:
        os.write(terminal, b"lightrig plan testbeds/nam\t")
        _read_until(terminal, r"testbeds/namespaces\.yaml ")
        os.write(terminal, b"cros\t")
        _read_until(terminal, "sed ")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


def _read_until(terminal, pattern, seconds=60):
    text, ends = "", time.monotonic() + seconds
    while not re.search(pattern, text):
        ready, _, _ = select.select([terminal], [], [], max(0.0, ends - time.monotonic()))
        assert ready, f"no {pattern!r} within {seconds} s in {text!r}"
        text += os.read(terminal, 4096).decode(errors="replace")
