"""Cross-connects that differ between two settings of a RailX fabric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lightrig.harness.systems.railx.planning.cross_connects import (
    DARK,
    DIMENSIONS,
    CrossConnect,
    Settings,
)
from lightrig.harness.systems.railx.planning.physical import RailxError


@dataclass(frozen=True)
class Difference:
    """The smallest change from one setting to another of the same fabric.

    A cross-connect of both is not touched, so no traffic on it is interrupted. Raises
    `RailxError` for two fabrics.
    """

    before: Settings
    after: Settings

    def __post_init__(self) -> None:
        if self.before.fabric != self.after.fabric:
            raise RailxError("found two fabrics, a difference is between settings of one")

    def _count(self, settings: Settings) -> int:
        changed = (self.before.of(d) != self.after.of(d) for d in DIMENSIONS)
        made = (settings.of(d) != DARK for d in DIMENSIONS)
        return sum(int((a & b).sum()) for a, b in zip(changed, made, strict=True))

    @property
    def removals(self) -> int:
        """Number of cross-connects to remove."""
        return self._count(self.before)

    @property
    def additions(self) -> int:
        """Number of cross-connects to add."""
        return self._count(self.after)

    @property
    def unchanged(self) -> int:
        """Number of cross-connects of both settings."""
        return len(self.after) - self.additions

    def removed(self) -> Iterator[CrossConnect]:
        """Yield the cross-connects to remove."""
        return self._changes(self.before)

    def added(self) -> Iterator[CrossConnect]:
        """Yield the cross-connects to add."""
        return self._changes(self.after)

    def _changes(self, settings: Settings) -> Iterator[CrossConnect]:
        for dimension in DIMENSIONS:
            array = settings.of(dimension)
            changed = (self.before.of(dimension) != self.after.of(dimension)) & (array != DARK)
            for line, rail, node in np.argwhere(changed).tolist():
                following = int(array[line, rail, node])
                yield CrossConnect(dimension, line, rail, 2 * node + 1, 2 * following + 2)
