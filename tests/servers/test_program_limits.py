"""The command line that limits a program: what it runs, reports, and ends."""

import os
import shlex
import subprocess

import pytest

from lightrig.instruments.program_limits import limited, without_limit

SECOND = 1_000_000_000


def run(*command: str, limit: int = 60) -> "subprocess.CompletedProcess[str]":
    """Run a command until all have ended that hold its output open."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as its_input, os.fdopen(writing, "w"):
        return subprocess.run(
            limited(command, limit * SECOND),
            stdin=its_input,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )


def test_output_and_status_are_the_program_s() -> None:
    ended = run("sh", "-c", "echo one; echo two >&2; exit 3")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("one\n", "two\n", 3)
    arguments = ["a b", "$HOME", "'", '"', "*", "\\", "-k"]
    assert run("printf", "%s\n", *arguments).stdout.splitlines() == arguments


def test_a_missing_program_has_the_shell_s_status() -> None:
    """127, as POSIX.1-2017 states for `sh`, and GNU's `timeout` for itself."""
    assert run("no-such-program-anywhere").returncode == 127


def test_a_program_reads_nothing() -> None:
    assert run("cat").stdout == ""


def test_a_program_s_own_signal_is_in_its_status() -> None:
    """128 and the number, as `sh` has it."""
    assert run("sh", "-c", "kill -s KILL $$").returncode == 128 + 9


def test_what_it_has_started_ends_with_it_after_the_limit() -> None:
    ended = run("sh", "-c", "sleep 86400 & echo one; wait", limit=0)
    assert (ended.stdout, ended.returncode) == ("one\n", 124)


@pytest.mark.parametrize("command", [["ethtool", "-m", "eth0"], ["sh", "-c", "a 'b' $c"], ["tool"]])
def test_the_command_is_found_in_its_line(command: list[str]) -> None:
    line = shlex.join(command).encode()
    assert without_limit(shlex.join(limited(command, 30 * SECOND)).encode()) == line
    assert without_limit(line) == line
