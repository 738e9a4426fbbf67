"""A child process that works in namespaces and speaks JSON, one object per line."""

import json
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from lightrig.testbeds.errors import LightrigError

_END_SECONDS = 10.0


class AgentError(LightrigError):
    """Raised when an agent reports an error, or has ended."""


class AgentProcess:
    """Runs an agent until closed, or until this program ends: the agent ends with its stdin.

    Base of what an agent does for the program. Replies are objects; one with the key `error`
    is raised as `AgentError`.

    Args:
        command: command line of the agent.
        name: the agent in messages, such as "the keeper process".
    """

    def __init__(self, command: Sequence[str], name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        # A file, which nobody has to read for the agent to go on.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def request(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its reply; raise `AgentError`."""
        assert self._process.stdin is not None
        with self._lock:
            try:
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            except (BrokenPipeError, ValueError) as error:  # ValueError: closed by us
                raise self._ended() from error
            return self.read_reply()

    def read_reply(self) -> dict[str, Any]:
        """Return the next reply; raise `AgentError`."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise AgentError(reply["error"])
        return reply

    def _ended(self) -> AgentError:
        """Return the error of an agent that has ended, with the last line that it printed."""
        if self._errors.closed:
            return AgentError(f"{self._name} has ended")
        self._errors.seek(0)
        last = self._errors.read().strip().rpartition("\n")[2]
        return AgentError(f"{self._name} has ended{': ' if last else ''}{last}")

    def close(self) -> None:
        """End the agent, and with it all that it holds. May be called twice."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
