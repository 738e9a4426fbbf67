"""Programs inside a network namespace of this machine."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import cast

from lightrig.instruments.namespaces.namespaces import enter_command
from lightrig.instruments.wire.shell import LONGEST_STDERR, LineListener, end_of_stderr

_END_SECONDS = 2.0


class NamespaceShell:
    """Programs in the namespaces of process `pid`."""

    python = sys.executable

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._channels: list[ProcessChannel] = []

    def start(self, command: Sequence[str], listener: LineListener) -> "ProcessChannel":
        process = subprocess.Popen(
            self.local_command(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # what it forks ends with it
        )
        channel = ProcessChannel(process, listener)
        self._channels = [each for each in self._channels if not each.closed]
        self._channels.append(channel)
        return channel

    def local_command(self, command: Sequence[str]) -> list[str]:
        return enter_command(self._pid, list(command))

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


class ProcessChannel:
    """One program that runs as a child of this one.

    Args:
        process: the program, with pipes.
        listener: takes its lines.
        end_seconds: time in which it ends by itself when its input has been closed.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        listener: LineListener,
        end_seconds: float = _END_SECONDS,
    ) -> None:
        self._end_seconds = end_seconds
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._input = process.stdin
        # Without a buffer a line is read byte by byte: a reply of many events took seconds.
        self._output = io.BufferedReader(cast("io.RawIOBase", process.stdout))
        self._stderr_pipe = process.stderr
        self._listener = listener
        self._stderr = b""
        self.status: int | None = None
        self.closed = False
        self._stderr_reader = threading.Thread(
            target=self._read_stderr, name="namespace", daemon=True
        )
        self._stderr_reader.start()
        self._reader = threading.Thread(target=self._read, name="namespace", daemon=True)
        self._reader.start()

    @property
    def stderr(self) -> str:
        return self._stderr.decode("utf-8", "backslashreplace")

    def send(self, text: str) -> None:
        try:
            self._input.write(text.encode() + b"\n")
        except ValueError as error:  # on another thread it was closed
            raise BrokenPipeError("the input of the program is closed") from error

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._input.close()
        try:
            self._process.wait(self._end_seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
        if self._process.returncode < 0:  # killed: it has ended nothing of what it forked
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        # A process that the program has started may hold the pipe open, and outlive its group.
        self._reader.join(self._end_seconds)
        self.closed = True

    def _read(self) -> None:
        with self._output:
            for line in iter(self._output.readline, b""):
                self._listener.line(line.decode("utf-8", "backslashreplace").rstrip("\n"))
        # What the program has left behind may hold it open.
        self._stderr_reader.join(self._end_seconds)
        self.status = self._process.wait()
        reason = end_of_stderr(self.stderr) or "the program ended"
        if self.status < 0:
            reason = f"{signal.Signals(-self.status).name} ended it; {reason}"
        self._listener.ended(reason)

    def _read_stderr(self) -> None:
        """Read on a second thread: a program with much to stderr would block on a full pipe."""
        with self._stderr_pipe:
            while data := self._stderr_pipe.read(1 << 16):
                self._stderr = (self._stderr + data)[-LONGEST_STDERR:]
