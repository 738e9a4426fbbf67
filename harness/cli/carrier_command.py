"""The program of `lightrig serve --on-carrier`: it is written each change of a carrier."""

import os
import shlex
import subprocess
import threading

from lightrig.testbeds import LightrigError, Port

_END_SECONDS = 5.0


class CarrierCommandError(LightrigError):
    """The program cannot be started, has ended, or does not read its lines."""


class CarrierCommand:
    """A program that runs until closed and reads one line a change on its standard input.

    A line is "PORT up|down TIME": the port as testbed files name it, and the time of the change in
    ns of CLOCK_MONOTONIC. `command` is the program and its arguments, with quotes as in a shell.

    Raises `CarrierCommandError` where it cannot be started.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._lock = threading.Lock()
        try:
            self._process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE)
        except (OSError, ValueError, IndexError) as error:
            raise CarrierCommandError(f"--on-carrier {command}: {error}") from error
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()
        # The links of the lab must not wait for a program that reads nothing.
        os.set_blocking(self._pipe, False)
        self._problem = ""

    @property
    def failure(self) -> CarrierCommandError | None:
        """The error that ends the lab: the program has ended, or does not read."""
        if (status := self._process.poll()) is not None:
            self._problem = f"has ended with status {status}"
        return CarrierCommandError(self._sentence(self._problem)) if self._problem else None

    def write(self, port: Port, up: bool, at_ns: int) -> None:
        """Write a change; a program that has ended or does not read gets none."""
        line = f"{port} {'up' if up else 'down'} {at_ns}\n".encode()
        with self._lock:
            try:
                if not self._problem and os.write(self._pipe, line) < len(line):
                    self._problem = "does not read its standard input"
            except BlockingIOError:
                self._problem = "does not read its standard input"
            except BrokenPipeError:
                self._problem = "has closed its standard input"

    def close(self) -> None:
        """End its standard input, wait for its end, and kill it where that takes too long."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _sentence(self, problem: str) -> str:
        return f"the program of --on-carrier, {self._command}, {problem}"
