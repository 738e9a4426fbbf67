"""A program of servers in the process of a test: asked by lines, it answers by lines."""

import itertools
import json
import queue
import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import IO, Any, Protocol


class Serving(Protocol):
    """What a program does with the lines of its requests."""

    def serve(self, requests: Iterable[bytes], /) -> None: ...


class ProgramLines:
    """A program whose requests and replies are lines, as over the connection to a server.

    Args:
        program: makes it, given where it writes.

    Attributes:
        order: numbers of the requests, as they were answered.
    """

    def __init__(self, program: Callable[[IO[str]], Serving]) -> None:
        self.order: list[Any] = []
        self._replies: dict[Any, dict[str, Any]] = {}
        self._came, self._numbers = threading.Condition(), itertools.count(1)
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._others = set(threading.enumerate())
        out: Any = SimpleNamespace(write=self._take, flush=lambda: None)
        lines = iter(self._lines.get, b"")
        threading.Thread(target=program(out).serve, args=(lines,), daemon=True).start()

    def _take(self, line: str) -> None:
        reply = json.loads(line)
        with self._came:
            self.order.append(reply["id"])
            self._replies[reply["id"]] = reply
            self._came.notify_all()

    def write(self, line: bytes) -> None:
        """Write a line as it is."""
        self._lines.put(line)

    def begin(self, do: Any, **body: Any) -> int:
        """Request something; return the request's number."""
        number = next(self._numbers)
        self.write(json.dumps({"id": number, "do": do, **body}).encode() + b"\n")
        return number

    def reply(self, number: int | None) -> dict[str, Any]:
        """Wait for the reply to a request; of one that has no number, for the next one."""
        with self._came:
            assert self._came.wait_for(lambda: number in self._replies, 20)
            return self._replies[number] if number else self._replies.pop(number)

    def ask(self, do: Any, **body: Any) -> Any:
        """Request something; return what is replied."""
        return self.reply(self.begin(do, **body))["ok"]

    def error(self, do: Any, **body: Any) -> dict[str, str]:
        """Request something that fails; return kind and text of the error."""
        error: dict[str, str] = self.reply(self.begin(do, **body))["error"]
        return error

    def close(self) -> None:
        """End its requests, and wait for the end of its threads."""
        self.write(b"")
        for thread in set(threading.enumerate()) - self._others:
            thread.join(20)
            assert not thread.is_alive()
