"""Lines that the programs on servers write: replies and events, with stamps of the server's clock.

docs/appendix/probe.md has the protocol.
"""

from __future__ import annotations

import importlib
import json
import os
import threading
from typing import IO, Any

from lightrig.instruments.servers.programs.server_clock import now, slewed

__all__ = ["Replies", "load_torch"]


def load_torch() -> Any:
    """Import PyTorch, for one thread; raises `ImportError`.

    Called by a request and not at the start, so that a server without it can reply why.
    """
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    return torch


class Replies:
    """Replies and events, each one line with its stamps, written by any thread.

    Args:
        out: where they are written; the program ends when nobody reads there any more.
    """

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._writing = threading.Lock()
        self._over = False

    def reply(self, number: Any, received: int, content: Any) -> None:
        """Reply to request `number`, which came at `received`, with `content`."""
        self._reply(number, received, "ok", content)

    def refuse(self, number: Any, received: int, kind: str, text: str) -> None:
        """Reply with an error: its kind, and a sentence."""
        self._reply(number, received, "error", {"kind": kind, "text": text})

    def fail(self, number: Any, received: int, error: Exception) -> None:
        """Reply with an exception that the request raised."""
        kind = type(error).__name__
        self.refuse(number, received, kind, str(error) or kind)

    def end(self) -> None:
        """Write no more: there are no more requests, and nobody waits for what would come.

        A reader that is there still has lost this program's input, and must not take what an
        ending program says for a reply.
        """
        with self._writing:
            self._over = True

    def event(self, content: Any) -> None:
        """Send an event, which nobody has requested."""
        at = now()
        text = json.dumps(content)
        with self._writing:
            self._write(f'{{"event":{text},"at":[{at},{at}]}}')

    def _reply(self, number: Any, received: int, word: str, content: Any) -> None:
        text, identity = json.dumps(content), json.dumps(number)
        # The stamp after the wait for other threads' lines and for the encoder: what is left
        # between it and the wire is the write itself.
        with self._writing:
            head = f'{{"id":{identity},"at":[{received},{now()}],"slewed":{slewed()},'
            self._write(f'{head}"{word}":{text}}}')

    def _write(self, line: str) -> None:
        if self._over:
            return
        try:
            self._out.write(line + "\n")
            self._out.flush()
        except BrokenPipeError:
            # The harness has ended; a normal exit would fail to flush again.
            os._exit(0)
