"""High-bandwidth domains under faults: how many GPUs groups of a size can still use."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError, Mask

Counts = npt.NDArray[np.int64]

_AT_ONCE = 1 << 21
"""Nodes times states that are looked at together, which bounds the memory."""


class Architecture(Hashable, Protocol):
    """Interconnect of the GPUs of nodes in a row."""

    @property
    def name(self) -> str:
        """As the paper calls it."""
        ...

    def usable(self, faulty: Mask, gpus: int, group: int) -> Counts:
        """GPUs in whole groups of `group` in each state; nodes have `gpus` each.

        faulty: states x nodes. Raises `InfiniteHbdError` for sizes that do not fit.
        """
        ...


@dataclass(frozen=True, slots=True)
class KHop:
    """InfiniteHBD: a line or ring in which fewer than `reach` faulty nodes in a row are passed."""

    reach: int
    closed: bool = True

    @property
    def name(self) -> str:
        """As the paper calls it."""
        return f"InfiniteHBD (K={self.reach})"

    def usable(self, faulty: Mask, gpus: int, group: int) -> Counts:
        """GPUs in whole groups: of each part between breaks, as many as fit."""
        size = _whole(group, gpus, "GPUs of a node")
        rows = max(1, _AT_ONCE // faulty.shape[1])
        parts = (faulty[at : at + rows] for at in range(0, max(1, len(faulty)), rows))
        return group * np.concatenate([self._groups(part, size) for part in parts])

    def _groups(self, faulty: Mask, size: int) -> Counts:
        states, nodes = faulty.shape
        state, at = np.nonzero(~faulty)
        if state.size == 0:
            return np.zeros(states, dtype=np.int64)
        new_state = np.diff(state) > 0
        starts = np.flatnonzero(np.concatenate([[True], new_state | (np.diff(at) > self.reach)]))
        lengths = np.diff(np.append(starts, state.size))
        owner = state[starts]
        groups = np.bincount(owner, lengths // size, minlength=states).astype(np.int64)
        if self.closed:
            first = np.flatnonzero(np.concatenate([[True], np.diff(owner) > 0]))
            last = np.append(first[1:], owner.size) - 1
            ends = at[np.append(starts[1:], at.size) - 1]
            joined = at[starts[first]] + nodes - ends[last] <= self.reach
            joined &= first < last
            a, b = lengths[first], lengths[last]
            groups[owner[first]] += np.where(joined, (a + b) // size - a // size - b // size, 0)
        return groups


@dataclass(frozen=True, slots=True)
class Islands:
    """Switched domains of `size` GPUs each, as NVL-36, NVL-72, NVL-576; a fault costs one node."""

    size: int

    @property
    def name(self) -> str:
        """As the paper calls it."""
        return f"NVL-{self.size}"

    def usable(self, faulty: Mask, gpus: int, group: int) -> Counts:
        """GPUs in whole groups, none of which spans two domains."""
        healthy = gpus * (~_blocks(faulty, self.size, gpus)).sum(axis=2)
        return np.asarray((healthy // group * group).sum(axis=1))


@dataclass(frozen=True, slots=True)
class BigSwitch:
    """One switch that joins all nodes: the best that can be."""

    @property
    def name(self) -> str:
        """As the paper calls it."""
        return "Big-Switch"

    def usable(self, faulty: Mask, gpus: int, group: int) -> Counts:
        """All healthy GPUs but what does not fill a group."""
        return np.asarray(gpus * (~faulty).sum(axis=1) // group * group)


@dataclass(frozen=True, slots=True)
class StaticRings:
    """SiP-Ring: fixed rings as large as a group; a faulty node breaks its ring."""

    @property
    def name(self) -> str:
        """As the paper calls it."""
        return "SiP-Ring"

    def usable(self, faulty: Mask, gpus: int, group: int) -> Counts:
        """GPUs of the rings that are whole."""
        return np.asarray(group * (~_blocks(faulty, group, gpus).any(axis=2)).sum(axis=1))


@dataclass(frozen=True, slots=True)
class Cubes:
    """TPUv4: cubes of `size` GPUs that optical switches join.

    whole: whether a faulty node costs its cube, as the text of §2.2 says. The paper does not
    say how it was simulated; without `whole`, a group smaller than a cube keeps a fixed part of
    it, and a faulty node costs that part alone. Larger groups take whole cubes, from anywhere.
    """

    whole: bool = False
    size: int = 64

    @property
    def name(self) -> str:
        """As the paper calls it."""
        return "TPUv4 (cubes lost)" if self.whole else "TPUv4"

    def usable(self, faulty: Mask, gpus: int, group: int) -> Counts:
        """GPUs of the parts, or of the cubes, that are whole."""
        part = self.size if self.whole or group > self.size else group
        if group < self.size:
            _whole(self.size, group, "GPUs of a group")
        found = part * (~_blocks(faulty, part, gpus).any(axis=2)).sum(axis=1)
        return np.asarray(found // group * group)


ARCHITECTURES: tuple[Architecture, ...] = (
    BigSwitch(),
    KHop(2),
    KHop(3),
    Islands(36),
    Islands(72),
    Islands(576),
    Cubes(),
    Cubes(whole=True),
    StaticRings(),
)
"""Architectures that §6.1 compares, TPUv4 in both readings.

Up to the size of a cube its parts are static rings; only the cube loss of §2.2 tells them apart.
"""


def waste(
    architecture: Architecture, faulty: Mask, gpus: int, group: int
) -> npt.NDArray[np.float64]:
    """The share of all GPUs that are healthy and in no group, for each state (§2.1)."""
    total = faulty.shape[1] * gpus
    healthy = gpus * (~faulty).sum(axis=1)
    return np.asarray((healthy - architecture.usable(faulty, gpus, group)) / total)


def _blocks(faulty: Mask, size: int, gpus: int) -> Mask:
    """States x blocks of `size` GPUs x nodes; nodes that fill no block are left out."""
    nodes = _whole(size, gpus, "GPUs of a node")
    blocks = faulty.shape[1] // nodes
    return faulty[:, : blocks * nodes].reshape(faulty.shape[0], blocks, nodes)


def _whole(size: int, part: int, what: str) -> int:
    if part < 1 or size < part or size % part:
        raise InfiniteHbdError(f"found {size} GPUs, expected a multiple of {part} {what}")
    return size // part
