"""Programs inside a network namespace of this machine."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Sequence

from instruments.kernel import enter_command
from instruments.wire.shell import LONGEST_COMPLAINT, LineListener, last_words


class NamespaceShell:
    """Programs in the namespaces of process `pid`."""

    python = sys.executable

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._channels: list[ProcessChannel] = []

    def start(self, command: Sequence[str], listener: LineListener) -> "ProcessChannel":
        process = subprocess.Popen(
            enter_command(self._pid, list(command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        channel = ProcessChannel(process, listener)
        self._channels = [each for each in self._channels if not each.closed]
        self._channels.append(channel)
        return channel

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


class ProcessChannel:
    """One program that runs as a child of this one."""

    def __init__(self, process: "subprocess.Popen[bytes]", listener: LineListener) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._input = process.stdin
        self._output = process.stdout
        self._complaints = process.stderr
        self._listener = listener
        self._complaint = b""
        self.status: int | None = None
        self.closed = False
        self._critic = threading.Thread(target=self._read_complaint, name="namespace", daemon=True)
        self._critic.start()
        self._reader = threading.Thread(target=self._read, name="namespace", daemon=True)
        self._reader.start()

    @property
    def complaint(self) -> str:
        return self._complaint.decode("utf-8", "backslashreplace")

    def send(self, text: str) -> None:
        self._input.write(text.encode() + b"\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._input.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._output.close()
        self._complaints.close()
        self.closed = True

    def _read(self) -> None:
        for line in iter(self._output.readline, b""):
            self._listener.line(line.decode("utf-8", "backslashreplace").rstrip("\n"))
        self._critic.join()
        self.status = self._process.wait()
        self._listener.ended(last_words(self.complaint) or "the program ended")

    def _read_complaint(self) -> None:
        """Apart, so that a program that complains at length is never held up by it."""
        while data := self._complaints.read(1 << 16):
            self._complaint = (self._complaint + data)[-LONGEST_COMPLAINT:]
