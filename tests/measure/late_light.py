"""Injected fault of the harness: stamps of light that begin 1 ms after their true interval."""

import pytest

from lightrig.harness.measure.light import LightWatch
from lightrig.instruments.clock import Span

MS = 1_000_000


def stamp_light_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace each interval of light by the one from 1 ms to 2 ms behind its end."""
    between = LightWatch.between

    def late(self: LightWatch, without: int, shown: int, sent: Span) -> Span:
        found = between(self, without, shown, sent)
        return Span(found.latest + MS, found.latest + 2 * MS)

    monkeypatch.setattr(LightWatch, "between", late)
