"""A pytest plugin that makes one part late between namespaces, by `LATE`: its name.

"simulation": in the events that `EVENTS` numbers, the kernel's links follow the
last light `BY` ms late. "probe": probes read carriers as they were `BY` ms ago. The simulation may
be later here than elsewhere, so that a busy machine has no part in it.
"""

import os
import time
from typing import Any

from lightrig.harness.measure import recording
from lightrig.harness.measure.recording import Recording
from lightrig.instruments.servers.host.program import Program
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks

BY_MS = int(os.environ["BY"])
EVENTS = {int(number) for number in os.environ.get("EVENTS", "").split(",") if number}

_READ = "        changes = self._read_count()\n        state = self._state.read()\n"
_READ_LATE = f"""\
        read = self._read_count(), self._state.read()
        self._past = [*getattr(self, "_past", []), (before, *read)]
        while len(self._past) > 1 and self._past[1][0] <= before - {BY_MS}_000_000:
            del self._past[0]
        _, changes, state = self._past[0]
"""


def _simulation() -> None:
    next_event, apply = Recording.next_event, KernelLinks.apply
    due: set[int] = set()

    def begun(self: Recording) -> int:
        number = next_event(self)
        due.update(EVENTS & {number})
        return number

    def late(self: KernelLinks, lit: frozenset[str], *state: Any) -> Any:
        if due and len(lit) == len(self._keys):
            due.clear()
            time.sleep(BY_MS / 1e3)
        return apply(self, lit, *state)

    Recording.next_event = begun  # type: ignore[method-assign]
    KernelLinks.apply = late  # type: ignore[method-assign]


def _probe() -> None:
    sources = Program.sources

    def late(self: Program) -> list[tuple[str, str]]:
        found = [(name, text.replace(_READ, _READ_LATE)) for name, text in sources(self)]
        assert self.name != "lightrig-probe" or found != sources(self), "the probe reads otherwise"
        return found

    Program.sources = late  # type: ignore[method-assign]


recording.MOST_DELAY = {"simulation": 1_500_000_000, "probe": 10_000_000_000}[os.environ["LATE"]]
{"simulation": _simulation, "probe": _probe}[os.environ["LATE"]]()
