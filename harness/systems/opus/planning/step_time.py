"""Duration of a training step when the fabric moves between its phases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightrig.harness.systems.opus.planning.operations import OpusError


@dataclass(frozen=True, slots=True)
class Flow:
    """A collective of a phase: when each rank joins it and when it ends, in ns."""

    starts: Mapping[int, int]
    end: int


def window(before: Sequence[Flow], after: Sequence[Flow]) -> int:
    """The idle time between two phases in ns (Opus §3.2); negative where they overlap.

    A collective starts when its last rank joins; the window ends with the first one that does.
    Raises `OpusError` for a phase without collectives.
    """
    if not before or not after:
        raise OpusError("a window is between two phases, found one without collectives")
    return min(max(flow.starts.values()) for flow in after) - max(flow.end for flow in before)


def exposed(reconfiguration: int, window: int) -> int:
    """Return the part of a reconfiguration that its window does not hide, in ns (Opus §4.2)."""
    return max(0, reconfiguration - max(0, window))
