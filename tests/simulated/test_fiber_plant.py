"""Delays of the kernel's links behind the light, with a kernel that answers when it is told to."""

import itertools
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightrig.instruments.simulated.namespaces.fiber_plant import FiberPlant
from lightrig.instruments.simulated.namespaces.kernel_links import (
    Applied,
    CarrierChange,
    PortReady,
)
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.testbeds import Port, load

FILE = Path(__file__).parents[2] / "testbeds" / "namespaces.yaml"
A, B, C = (Port(f"server{n}", "nic0.p0") for n in range(3))
KEYS = {port: f"{port.owner}.fabric0" for port in (A, B, C)}
MS = 1_000_000
FOREVER = 60.0


class Kernel:
    """Takes one state at a time; `answer` lets it end, with the changes that it makes."""

    keys = frozenset(KEYS.values())

    def __init__(self) -> None:
        self.asked: queue.Queue[frozenset[str]] = queue.Queue()
        self.answers: queue.Queue[Applied] = queue.Queue()

    def apply(self, lit: frozenset[str], *_: Any) -> Applied:
        self.asked.put(lit)
        return self.answers.get(timeout=FOREVER)

    def answer(
        self, done: dict[Port, float], *, ready: dict[Port, float] | None = None, at: float = 0
    ) -> None:
        """End one state: carriers that change, sides that are ready, and the end, all in ms."""
        lit = self.asked.get(timeout=FOREVER)
        changes = [
            CarrierChange(KEYS[port], KEYS[port] in lit, int(ms * MS) - 1, int(ms * MS))
            for port, ms in done.items()
        ]
        sides = itertools.product((ready or {}).items(), ("bridge", "server"))
        passing = [PortReady(KEYS[p], side, 0, int(ms * MS)) for (p, ms), side in sides]
        self.answers.put(Applied(changes, passing, (0, int(at * MS))))


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def plant(kernel: Kernel) -> Iterator[FiberPlant]:
    made: Any = kernel
    testbed = load(FILE)
    plant = FiberPlant(made, testbed, GroundTruth())
    yield plant
    plant.close()


def hears(plant: FiberPlant, port: Port, source: Port | None, ms: float) -> None:
    plant.hears(port, source, int(ms * MS))


def longest(
    plant: FiberPlant, since: float, now: float = 1_000
) -> tuple[Port, float, float] | None:
    found = plant.longest_delay(int(since * MS), int(now * MS))
    return found and (found.port, found.at / MS, found.by / MS)


def settled(plant: FiberPlant) -> None:
    plant.await_truth(FOREVER)


def test_the_delay_is_from_the_light_to_the_end_of_the_kernels_change(
    plant: FiberPlant, kernel: Kernel
) -> None:
    assert longest(plant, 0) is None
    hears(plant, A, A, 100)
    kernel.answer({A: 103.5})
    settled(plant)
    hears(plant, B, B, 200)
    kernel.answer({B: 270})
    settled(plant)
    hears(plant, C, C, 300)
    kernel.answer({C: 301})
    settled(plant)
    assert longest(plant, 50) == (B, 200, 70)
    assert longest(plant, 200) == (B, 200, 70)
    assert longest(plant, 201) == (C, 300, 1)
    assert longest(plant, 301) is None


def test_packets_that_pass_late_are_late_after_the_light_of_both_ends(
    plant: FiberPlant, kernel: Kernel
) -> None:
    hears(plant, A, B, 100)
    kernel.answer({A: 101})
    settled(plant)
    hears(plant, B, A, 130)
    kernel.answer({B: 131}, ready={A: 140, B: 190})
    settled(plant)
    assert longest(plant, 0) == (B, 130, 60)


def test_a_change_that_moves_no_carrier_is_done_when_all_is_switched(
    plant: FiberPlant, kernel: Kernel
) -> None:
    hears(plant, A, A, 100)
    kernel.answer({A: 101})
    settled(plant)
    hears(plant, A, B, 200)
    kernel.answer({}, at=225)
    settled(plant)
    assert longest(plant, 150) == (A, 200, 25)


def test_darkness_that_the_kernel_missed_is_as_late_as_it_lasted(
    plant: FiberPlant, kernel: Kernel
) -> None:
    hears(plant, A, A, 100)
    kernel.answer({A: 101})
    settled(plant)
    hears(plant, C, C, 200)  # the kernel is busy with this one
    lit = kernel.asked.get(timeout=FOREVER)
    kernel.asked.put(lit)
    hears(plant, A, None, 202)
    hears(plant, A, A, 290)
    kernel.answer({C: 291})
    kernel.answer({}, at=295)
    settled(plant)
    assert longest(plant, 0) == (C, 200, 91)
    assert longest(plant, 201) == (A, 202, 88)


def test_what_the_kernel_has_not_followed_is_late_until_now(
    plant: FiberPlant, kernel: Kernel
) -> None:
    hears(plant, A, A, 100)
    lit = kernel.asked.get(timeout=FOREVER)
    kernel.asked.put(lit)
    hears(plant, B, B, 150)
    assert longest(plant, 0, now=400) == (A, 100, 300)
    assert longest(plant, 120, now=400) == (B, 150, 250)
    kernel.answer({A: 401})
    kernel.answer({B: 402})
    settled(plant)
    assert longest(plant, 0, now=900) == (A, 100, 301)


def test_the_same_light_again_changes_nothing(plant: FiberPlant, kernel: Kernel) -> None:
    hears(plant, A, A, 100)
    kernel.answer({A: 101})
    settled(plant)
    hears(plant, A, A, 500)  # as the light of a drifting laser does
    kernel.answer({}, at=700)
    settled(plant)
    assert longest(plant, 400) is None
