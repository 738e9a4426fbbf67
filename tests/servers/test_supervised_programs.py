"""The command line that supervises a program: what it runs, reports, and ends."""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.instruments.supervisor import (
    guard,
    login_line,
    needs_guard,
    plain_line,
    supervised,
)

SECOND = 1_000_000_000


def run(*command: str, limit: int = 60) -> "subprocess.CompletedProcess[str]":
    """Run a command until all have ended that hold its output open."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as its_input, os.fdopen(writing, "w"):
        return subprocess.run(
            supervised(command, limit * SECOND),
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


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_any_sh_runs_it(shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} on this machine")
    (tmp_path / "sh").symlink_to(program)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for _ in range(20):
        ended = run("printf", "%s", "one")
        assert (ended.stdout, ended.stderr, ended.returncode) == ("one", "", 0)


def test_a_program_that_reads_has_its_input_and_ends_by_itself() -> None:
    """Its end does not wait for the end of the input."""
    command = supervised(["sh", "-c", "read a; read b; echo $b; echo $a >&2; exit 3"], reads=True)
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write("one\ntwo\nthree\n")
        process.stdin.flush()
        assert (process.stdout.read(), process.stderr.read()) == ("two\n", "one\n")
        assert process.wait() == 3


@pytest.mark.parametrize("command", [["no-such-program-anywhere"], ["sh", "-c", "exit 7"]])
def test_a_program_that_ends_without_reading_has_its_own_status(command: list[str]) -> None:
    """What carries its input fails by its end, and the input stays open: neither is a kill."""
    expected = 127 if len(command) == 1 else 7
    for _ in range(20):
        with subprocess.Popen(supervised(command, reads=True), stdin=-1, stderr=-1) as process:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(b"line\n" * 20_000)
                process.stdin.flush()
            assert process.wait() == expected


@contextlib.contextmanager
def fifo(path: Path) -> Iterator[None]:
    """A pipe by name, from which those who wait there read its end at last."""
    os.mkfifo(path)
    yield
    os.close(os.open(path, os.O_RDWR))
    path.unlink()


def test_the_caller_does_not_wait_for_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for what it has left lasts as long as `grep`, which waits here."""
    grep = tmp_path / "grep"
    grep.write_text(f"#!/bin/sh\nread line <{tmp_path}/wait\n")
    grep.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with fifo(tmp_path / "wait"):
        ended = run("sh", "-c", "true; true; sleep 0; sleep 0; echo one; true")
        assert (ended.stdout, ended.returncode) == ("one\n", 0)


def test_a_program_that_reads_has_two_seconds_also_where_the_search_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each search takes a second here: SIGTERM comes after two of them or three, not twenty."""
    grep = tmp_path / "grep"
    real = shutil.which("grep")
    slow = f"echo >>{tmp_path}/searches\n[ -e {tmp_path}/before ] || sleep 1\n"
    grep.write_text(f'#!/bin/sh\n{slow}exec {real} "$@"\n')
    grep.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = f"""
    trap 'wc -l <{tmp_path}/searches >{tmp_path}/before; exit' TERM
    echo ready
    while :; do sleep 0.1; done
    """
    command = supervised(["sh", "-c", program], reads=True)
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.close()
        process.wait()
    assert 1 <= int((tmp_path / "before").read_text()) <= 4


ADOPTER = """
import ctypes, subprocess, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER, prctl(2)
with subprocess.Popen(sys.argv[1:], stdin=-1, stdout=-1) as process:
    process.stdout.readline()
    process.stdin.close()
    process.wait()
"""


def test_what_has_ended_is_not_waited_for_where_nobody_reads_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the first process of many a container: searches went on for three seconds."""
    grep = tmp_path / "grep"
    real = shutil.which("grep")
    grep.write_text(f'#!/bin/sh\necho >>{tmp_path}/searches\nexec {real} "$@"\n')
    grep.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    command = supervised(["sh", "-c", "sleep 86400 & echo ready; wait"])
    subprocess.run([sys.executable, "-c", ADOPTER, *command], check=True, timeout=60)
    assert 2 <= len((tmp_path / "searches").read_text().splitlines()) < 15


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


@pytest.mark.parametrize(
    "command",
    [["ethtool", "-m", "eth0"], ["sh", "-c", "a 'b' $c"], ["sh", "-c", "a\nb!"], ["tool"]],
)
def test_the_command_is_found_in_its_line(command: list[str]) -> None:
    line = shlex.join(command).encode()
    assert plain_line(shlex.join(supervised(command, 30 * SECOND)).encode()) == line
    assert plain_line(line) == line
    for reads in (False, True):
        login = login_line(supervised(command, reads=reads)).encode()
        assert plain_line(login) == line


TEXTS = [
    "one\ntwo",
    "!x",
    "a\\b",
    "\\'",
    "'!'\n",
    "ü\\n",
    "%s \\0101",
    "-n !",
    "~ $HOME `id` {a,b} *",
]


@pytest.mark.parametrize("shell", ["sh", "bash", "csh", "tcsh", "fish"])
def test_any_login_shell_hands_on_any_argument(shell: str) -> None:
    """sshd(8) hands the line to the account's shell with -c; csh and fish quote unlike POSIX."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    line = login_line(["printf", "%s;", *TEXTS])
    done = subprocess.run([shell, "-c", line], capture_output=True, check=True)
    assert done.stdout.decode() == "".join(f"{text};" for text in TEXTS)
    assert plain_line(line.encode()).decode() == shlex.join(["printf", "%s;", *TEXTS])


SSHD = """#!/bin/sh
trap 'exit 77' TERM
exec 3<&0
setsid "$@" <&3 &
wait $!
"""
"""A stand-in by this name: what it starts has a session of its own, as sshd(8) starts it."""


def started_by(server: Path, *command: str) -> "subprocess.Popen[bytes]":
    server.write_text(SSHD)
    server.chmod(0o755)
    return subprocess.Popen([server, *command], stdin=-1)


@pytest.mark.parametrize("through", ["sh", "csh", "fish"])
def test_the_guard_ends_the_sshd_whose_client_is_silent(tmp_path: Path, through: str) -> None:
    if shutil.which(through) is None:
        pytest.skip(f"no {through} on this machine")
    with started_by(tmp_path / "sshd", through, "-c", login_line(guard(0.2))) as sshd:
        assert sshd.wait(30) == 77


def test_the_guard_ends_itself_alone_by_the_end_of_its_input(tmp_path: Path) -> None:
    with started_by(tmp_path / "sshd", *guard(60)) as sshd:
        assert sshd.stdin is not None
        sshd.stdin.write(b"\n")
        sshd.stdin.close()
        assert sshd.wait(30) == 1


def test_the_guard_ends_no_other_server(tmp_path: Path) -> None:
    """It says so by its own end, before any silence."""
    with started_by(tmp_path / "dropbear", *guard(60)) as other:
        assert other.wait(30) == 0


def test_commands_with_a_limit_below_the_guard_s_need_none() -> None:
    long, short = (supervised(["true"], limit * SECOND) for limit in (600, 5))
    assert needs_guard(long)
    assert needs_guard(["sudo", "-n", *supervised(["true"], reads=True)])
    assert not needs_guard(short)
    assert not needs_guard(["sh", "-c", "true"])


def test_the_supervisor_signals_no_other_process_of_its_number(tmp_path: Path) -> None:
    """What carries the input outlives the supervisor, whose number the kernel may give away.

    The namespace of processes is new, so that the next number can be chosen (ns_last_pid, proc(5)).
    """
    script = tmp_path / "script.sh"
    line = shlex.join(supervised(["true"], reads=True))
    script.write_text(
        f"mkfifo {tmp_path}/input; exec 9<>{tmp_path}/input\n"
        f"{line} <{tmp_path}/input 9>&- & first=$!; wait $first; sleep 1.5\n"
        "echo $((first - 1)) >/proc/sys/kernel/ns_last_pid\n"
        "sleep 60 9>&- & other=$!\n"
        f'[ $other = $first ] || {{ echo "the number is $other"; exit; }}\n'
        f"exec 9>&-; sleep 1; kill -0 $other && echo lives\n"
    )
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare:" in done.stderr:
        pytest.skip("no namespace of processes on this machine")
    assert done.stdout == "lives\n"
