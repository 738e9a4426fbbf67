"""A pytest plugin that biases the truth of a simulated world, by `BIASED`: a quantity's name.

A harness that measures wrong by as much would look the same.
"""

import os
from collections.abc import Callable
from typing import Any

from lightrig.instruments.clock import Span
from lightrig.instruments.simulated.world.bit_receiver import ErrorDetector
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.world import World

LATE = 30_000_000


def _stage(biased: str) -> None:
    note = GroundTruth.note

    def late(self: GroundTruth, subject: str, stage: str, *, up: bool, at: Span) -> None:
        if stage == biased and up:
            at = Span(at.earliest + LATE, at.latest + LATE)
        note(self, subject, stage, up=up, at=at)

    GroundTruth.note = late  # type: ignore[method-assign]


def _losses() -> None:
    loss = World.loss
    World.loss = lambda self, *of: loss(self, *of) + 0.5  # type: ignore[method-assign]


def _bit_errors() -> None:
    ratio = ErrorDetector.true_ratio

    def biased(self: Any) -> float | None:
        found = ratio(self)
        return None if found is None else 1e3 * found + 1e-9

    ErrorDetector.true_ratio = biased  # type: ignore[method-assign]


BIASES: dict[str, Callable[[], None]] = {
    "light": lambda: _stage("light"),
    "acknowledged": lambda: _stage("acknowledged"),
    "carrier": lambda: _stage("carrier"),
    "datagram": lambda: _stage("datagram"),
    "losses": _losses,
    "bit errors": _bit_errors,
}

BIASES[os.environ["BIASED"]]()
