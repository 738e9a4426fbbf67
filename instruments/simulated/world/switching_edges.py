"""Shapes of light that comes or goes at an egress, in steps of constant power."""

import math
from typing import NamedTuple

from lightrig.testbeds import SimulatedEdge

SETTLED_DB = 0.5
"""Light is back when it stays within this of its level, and gone when it has left it."""

_STEPS = 40
_FULL = 0.8
"""Share of a linear edge that lies between 10 % and 90 %."""
_PER_SWING = 12
_CALM_DB = 0.01


class EdgeStep(NamedTuple):
    """From `after` ns after the beginning of the edge, `share` of the level.

    `stages` are those of the ground truth that the light has then reached.
    """

    after: int
    share: float
    stages: tuple[str, ...] = ()


SUDDEN_RISE = (EdgeStep(0, 1.0, ("light",)),)
LEVEL_CHANGE = (EdgeStep(0, 1.0, ()),)
"""Light that is there already, at another power: no signal comes or goes."""
SUDDEN_FALL = (EdgeStep(0, 0.0, ("light",)),)


def rise(edge: SimulatedEdge) -> tuple[EdgeStep, ...]:
    """Return the steps of light that comes: a ramp, then the mirrors' ringing.

    Stages are `light10`, `half`, `light90`, and `light` once it stays within `SETTLED_DB`.
    """
    ringing = edge.ringing if edge.ringing is not None and edge.ringing.depth_db else None
    if not edge.rise_ns and ringing is None:
        return SUDDEN_RISE
    steps = _ramp(edge.rise_ns)
    begun = round(edge.rise_ns / _FULL)
    if ringing is not None:
        lasting = ringing.decay_ns * math.log(max(ringing.depth_db / _CALM_DB, 1.0))
        tick = ringing.period_ns / _PER_SWING
        for number in range(1, math.ceil(lasting / tick) + 1):
            after = number * tick
            decibel = ringing.depth_db * math.exp(-after / ringing.decay_ns)
            decibel *= math.sin(math.pi * after / ringing.period_ns) ** 2
            steps.append((begun + round(after), 10 ** (-decibel / 10)))
    steps.append((steps[-1][0] + 1, 1.0))
    least = 10 ** (-SETTLED_DB / 10)
    settled = 1 + max((n for n, (_, share) in enumerate(steps) if share < least), default=-1)
    reached = {name: _first(steps, share) for name, share in _SHARES.items()} | {"light": settled}
    return _with_stages(steps, reached)


def fall(edge: SimulatedEdge) -> tuple[EdgeStep, ...]:
    """Return the steps of light that goes: `light` is when it has left `SETTLED_DB`."""
    if not edge.fall_ns:
        return SUDDEN_FALL
    steps = [(after, 1.0 - share) for after, share in _ramp(edge.fall_ns)]
    steps.append((steps[-1][0] + 1, 0.0))
    shares = _SHARES | {"light": 10 ** (-SETTLED_DB / 10)}
    reached = {
        name: next(n for n, (_, left) in enumerate(steps) if left < share)
        for name, share in shares.items()
    }
    return _with_stages(steps, reached)


_SHARES = {"light10": 0.1, "half": 0.5, "light90": 0.9}


def _ramp(ten_to_ninety: int) -> list[tuple[int, float]]:
    whole = ten_to_ninety / _FULL
    return [(round(whole * n / _STEPS), (n + 0.5) / _STEPS) for n in range(_STEPS)]


def _first(steps: list[tuple[int, float]], share: float) -> int:
    return next(n for n, (_, reached) in enumerate(steps) if reached >= share)


def _with_stages(steps: list[tuple[int, float]], reached: dict[str, int]) -> tuple[EdgeStep, ...]:
    return tuple(
        EdgeStep(after, share, tuple(name for name, at in reached.items() if at == n))
        for n, (after, share) in enumerate(steps)
    )
