"""Probes that answer, and have read nothing of their ports yet, as on a busy machine."""

from typing import Any

import pytest

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.hosts.simulated_probe import SimulatedProbe


def reading_stands(monkeypatch: pytest.MonkeyPatch, clock: Clock, server: str, until: int) -> None:
    """Have a server's probe answer until a moment as one whose threads have read nothing yet."""
    real, since = SimulatedProbe.settled, clock.now()

    def settled(self: SimulatedProbe, missing: Any, numbers: Any) -> dict[str, Any]:
        if self.server != server or self.clock.now() >= until:
            return real(self, missing, numbers)
        departures = {port: [None] * len(each) for port, each in numbers.items()}
        return {
            "settled": not missing,
            "missing": missing,
            "events": [],
            "gaps": [],
            "steps": [],
            "datagrams": {},
            "departures": departures,
            "clock": None,
            "read": self.server_clock.reads(since),
        }

    monkeypatch.setattr(SimulatedProbe, "settled", settled)
