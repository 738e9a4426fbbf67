"""Fixtures for tests of Carousel; loaded as a plugin when a testbed is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from lightrig.api import Row

if TYPE_CHECKING:
    from lightrig.api import Fabric, Recording, Testbed


def pytest_lightrig_unavailable(fixture: str, testbed: Testbed) -> str | None:
    """Return why a testbed cannot offer a fixture; its tests are then deselected."""
    if fixture == "carousel_rotation" and "matching0" not in testbed.plans:
        return "no plan matching0, with which a rotation begins"
    return None


@pytest.fixture
def carousel_rotation(fabric: Fabric, measure: Recording) -> Callable[[], int]:
    """Return a function that turns once through all matchings and records how long it took."""
    plans = [plan for name, plan in fabric.plans.items() if name.startswith("matching")]
    clock = fabric.bench.clock

    def turn() -> int:
        began = clock.now()
        for plan in plans:
            fabric.apply(plan)
        took = clock.now() - began
        measure.record([Row("all servers", "carousel.cycle", took, took, took, "ns", began)])
        return took

    return turn
