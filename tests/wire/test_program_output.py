"""Output of programs in namespaces: long replies cost little."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from real_time import until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.wire.namespace import ProcessChannel

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LENGTH = 4 << 20


class Listener:
    def __init__(self) -> None:
        self.lines: list[int] = []
        self.texts: list[str] = []
        self.reason = ""
        self.over = threading.Event()

    def line(self, text: str) -> None:
        self.lines.append(len(text))
        self.texts.append(text[:100])

    def ended(self, reason: str) -> None:
        self.reason = reason
        self.over.set()


def shell(script: str) -> "subprocess.Popen[bytes]":
    """Start a shell in a session of its own, with pipes."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        ["sh", "-c", script],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        bufsize=0,
        start_new_session=True,
    )


class CountingPipe(io.RawIOBase):
    """A pipe that counts how often it is read."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.pipe, self.reads = pipe, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        self.reads += 1
        return os.readv(self.pipe.fileno(), [buffer])

    def close(self) -> None:
        super().close()
        self.pipe.close()


def test_a_long_reply_is_not_read_byte_by_byte() -> None:
    listener = Listener()
    process = subprocess.Popen(
        [sys.executable, "-c", f"print('x' * {LENGTH}); print('y')"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout is not None
    output = process.stdout = CountingPipe(process.stdout)
    channel = ProcessChannel(process, listener)
    assert listener.over.wait(60)
    channel.close()
    assert listener.lines == [LENGTH, 1]
    assert 0 < output.reads < LENGTH / 100


def test_a_child_that_holds_the_output_open_does_not_hold_the_closing_up() -> None:
    process = shell("setsid sleep 600 & echo $!; exec cat")
    listener = Listener()
    channel = ProcessChannel(process, listener, end_seconds=0.2)
    until(lambda: listener.texts, SystemClock())
    child = int(listener.texts[0])
    try:
        channel.close()
        os.kill(child, 0)  # it runs still
    finally:
        os.kill(child, signal.SIGKILL)
    assert channel.closed


def test_what_a_killed_program_has_forked_ends_with_it() -> None:
    process = shell("sleep 600 > /dev/null 2>&1 & echo $!; exec sleep 600")
    listener = Listener()
    channel = ProcessChannel(process, listener)
    while not listener.texts:
        time.sleep(0.01)
    child = Path(f"/proc/{listener.texts[0]}/cmdline")
    until(lambda: child.read_bytes().startswith(b"sleep"), SystemClock())  # forked, then replaced
    process.kill()
    assert listener.over.wait(60)
    assert listener.reason.startswith("SIGKILL ended it")
    channel.close()
    # A zombie's is empty.
    until(lambda: not child.exists() or not child.read_bytes(), SystemClock(), 10_000_000)


def test_nothing_is_sent_to_a_program_whose_input_is_closed() -> None:
    pipe = subprocess.PIPE
    process = subprocess.Popen(["cat"], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
    channel = ProcessChannel(process, Listener())
    channel.close()
    with pytest.raises(OSError, match="input of the program is closed"):
        channel.send("late")
