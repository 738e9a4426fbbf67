"""Programs inside a network namespace of this machine."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Sequence

from instruments.kernel import enter_command
from instruments.wire.shell import LineListener


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
        self._reader = threading.Thread(target=self._read, name="namespace", daemon=True)
        self._reader.start()

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

    def _read(self) -> None:
        for line in iter(self._output.readline, b""):
            self._listener.line(line.decode("utf-8", "backslashreplace").rstrip("\n"))
        complaint = self._complaints.read()[-1 << 11 :].decode("utf-8", "backslashreplace").strip()
        self._listener.ended(complaint or "the program ended")
