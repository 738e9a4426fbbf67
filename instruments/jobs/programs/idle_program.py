"""A rank that does nothing: a program that sleeps on a server, and notes how late it wakes.

It is sent there as source, as the programs of ranks are, and needs Python alone. What delays it
delays every program of that server. Requests and replies are those of the probe
(docs/appendix/probe.md):

- `hello`: `boot`, the server's `host` name and its number of `processors`.
- `late` with the `roots` and `groups` of a job's processes: `[stamp, ns]` of each time that it woke
  since the last such request, and `use`, see processor_use.py.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from typing import Any

from lightrig.instruments.jobs.programs.processor_use import ProcessorUse
from lightrig.instruments.servers.programs.replies import Replies
from lightrig.instruments.servers.programs.server_clock import boot_id, now

__all__ = ["main"]

_VERSION = 1

_PERIOD_NS = 20_000_000
"""Time for which it sleeps: 50 times a second, which takes 0.2 % of a processor."""

_MOST = 1_000_000
"""Times that it keeps; five and a half hours of them."""


class _Sleeper:
    def __init__(self) -> None:
        self._late: list[tuple[int, int]] = []
        self._use = ProcessorUse()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            due = now() + _PERIOD_NS
            time.sleep(_PERIOD_NS / 1e9)
            at = now()
            if len(self._late) < _MOST:
                self._late.append((at, at - due))

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        verb = request["do"]
        if verb == "hello":
            return {
                "boot": boot_id(),
                "host": socket.gethostname(),
                "processors": os.cpu_count() or 1,
            }
        if verb == "late":
            found, self._late = self._late, []
            return {"late": found, "use": self._use.look(request["roots"], request["groups"])}
        raise ValueError(f"there is no request {verb!r}")


def main() -> int:
    """Answer requests on stdin until it ends; returns the exit status."""
    replies, sleeper = Replies(sys.stdout), _Sleeper()
    for line in sys.stdin:
        received, request = now(), json.loads(line)
        try:
            replies.reply(request["id"], received, sleeper.answer(request))
        except ValueError as error:
            replies.fail(request["id"], received, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
