"""The log of this machine's kernel, as a server's: its lines, their moments, who may read it."""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from servers.program_host import Here

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import DeniedError
from lightrig.instruments.servers.host.linux import LinuxServer

LINES = 40
_RESTRICTED = Path("/proc/sys/kernel/dmesg_restrict")


class Account(Here):
    """An account that may not read the log, and one with sudo that may."""

    def local_command(self, command: Sequence[str]) -> list[str]:
        if command[:2] == ["sudo", "-n"]:
            return list(command[2:])
        return ["setpriv", "--bounding-set=-syslog", "--inh-caps=-syslog", *command]


@pytest.fixture
def write() -> Iterator[Callable[[str], tuple[int, int]]]:
    """Writes a line into the kernel's log, and returns the times before and after it."""
    try:
        file = os.open("/dev/kmsg", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        pytest.skip("only root writes into the kernel's log")
    opened = [file]

    def one(text: str) -> tuple[int, int]:
        # Linux takes ten lines in five seconds from one opened file (printk_devkmsg).
        os.close(opened[0])
        opened[0] = os.open("/dev/kmsg", os.O_WRONLY | os.O_CLOEXEC)
        before = time.monotonic_ns()
        os.write(opened[0], f"{text}\n".encode())
        return before, time.monotonic_ns()

    yield one
    os.close(opened[0])


def servers(shell: Here, *, become: bool = False) -> LinuxServer:
    return LinuxServer("here", shell, SystemClock(), {}, become=become)


def test_lines_and_their_moments_agree_with_another_reader(
    write: Callable[[str], tuple[int, int]],
) -> None:
    if shutil.which("dmesg") is None:
        pytest.skip("no dmesg on this machine")
    server, pauses = servers(Here()), random.Random(1)
    try:
        server.kernel_messages()
        truth = {}
        for number in range(LINES):
            text = f"lightrig test {os.getpid()}-{number} {'x' * pauses.randrange(90)}"
            truth[text] = write(text)
            SystemClock().sleep(pauses.randrange(1, 25_000_000))
        reading = server.kernel_messages()
    finally:
        server.close()
    ours = {line.text: line for line in reading.lines if line.text in truth}
    shown = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    theirs = [line.partition("] ")[2] for line in shown.splitlines()]
    assert list(ours) == [line for line in theirs if line in truth]
    assert len(ours) == LINES
    assert reading.lost == reading.left_out == 0
    for text, (before, after) in truth.items():
        at = ours[text].at
        assert at.earliest <= after
        assert before <= at.latest
    # Nothing is read within 10 ms of most lines; together they know the clock better than that.
    assert min(line.at.latest - line.at.earliest for line in ours.values()) < 10_000_000


def test_an_account_without_the_right_is_not_able_to_read_and_sudo_is(
    write: Callable[[str], tuple[int, int]],
) -> None:
    if shutil.which("setpriv") is None or _RESTRICTED.read_text().strip() != "1":
        pytest.skip("everybody may read the kernel's log")
    server = servers(Account())
    try:
        with pytest.raises(DeniedError) as caught:
            server.kernel_messages()
        assert "not readable" in str(caught.value)
        assert "become: true" in str(caught.value)
    finally:
        server.close()
    server = servers(Account(), become=True)
    try:
        server.kernel_messages()
        text = f"lightrig test {os.getpid()} by sudo"
        write(text)
        assert text in [line.text for line in server.kernel_messages().lines]
    finally:
        server.close()
