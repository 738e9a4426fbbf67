"""Monitors that lag: a switch does not fail by what they showed a second ago."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from certify_labs import lab
from single_clauses import clause, subject_of

from lightrig.harness.bench import Bench
from lightrig.instruments.simulated.world.optics import Matrix

Simulated = Callable[..., Bench]
SECOND = 1_000_000_000


@dataclass
class Earlier:
    """A clock that shows the time of a while ago."""

    clock: Any
    by: int

    def now(self) -> int:
        return max(int(self.clock.now()) - self.by, 0)


def lag(patch: pytest.MonkeyPatch, by: int) -> None:
    """Let monitors show the light of `by` ns ago."""
    readings = Matrix.readings

    def read(matrix: Matrix, egresses: Iterable[int], ingresses: Iterable[int] = ()) -> list[float]:
        clock = matrix.clock
        matrix.clock = Earlier(clock, by)  # type: ignore[assignment]
        try:
            return readings(matrix, egresses, ingresses)
        finally:
            matrix.clock = clock

    patch.setattr(Matrix, "readings", read)


@pytest.mark.parametrize("code", ["acknowledged_light", "reported_light", "crosstalk"])
def test_monitors_that_lag_decide_nothing(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """The lag is one second, a shutter takes 5 ms, and readings are 10 ms apart."""
    lag(monkeypatch, SECOND)
    found = clause(subject_of(simulated(lab())), code)
    assert found.verdict == "inconclusive", found
    assert found.reason.startswith("monitors lag by 1.0 s; then "), found


def test_without_a_shutter_the_switch_may_be_late(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    lag(monkeypatch, SECOND)
    text = lab().replace("model: polatis", "model: calient-s").replace("rerouting: true", "")
    found = clause(subject_of(simulated(text), profile="generic"), "reported_light")
    assert found.verdict == "inconclusive", found
    assert found.reason.startswith("monitors lag by 1."), found
    assert "or light goes so late" in found.reason


@pytest.mark.parametrize("code", ["reported_light", "crosstalk"])
def test_a_lag_of_a_tenth_of_a_second_disturbs_nothing(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    lag(monkeypatch, SECOND // 10)
    found = clause(subject_of(simulated(lab())), code)
    assert found.verdict == "pass", found
