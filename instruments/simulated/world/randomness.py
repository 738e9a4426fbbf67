"""Chance in a simulated world: one stream a thing, so that no draw depends on another's."""

import functools
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lightrig.testbeds import Delay


class Chance:
    """Random streams that follow from one seed and the name of whoever draws."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def stream(self, name: str) -> "Stream":
        """Return the stream of `name`: the same for the same seed, whatever else is drawn."""
        return Stream(int.from_bytes(self._digest(name), "big"))

    def first_normals(self, names: Sequence[str]) -> list[float]:
        """Return the first `normal` of the stream of each name, faster than by streams.

        One generator draws for all: its state is set to where that of each stream begins.
        """
        entropy = np.frombuffer(b"".join(map(self._digest, names)), ">u4").astype(np.uint32)
        pcg = np.random.PCG64(0)
        draw, bulk = np.random.Generator(pcg).standard_normal, np.empty(Stream.BULK)
        state: Any = pcg.state
        within = state["state"]
        drawn = []
        for high, low, step_high, step_low in _seeds(entropy.reshape(-1, 4)[:, ::-1]).tolist():
            # As PCG64 begins from these words.
            increment = ((step_high << 64 | step_low) << 1 | 1) & _LAST_128
            begin = (increment + (high << 64 | low)) * _PCG_MULTIPLIER + increment
            within["state"], within["inc"] = begin & _LAST_128, increment
            pcg.state = state
            draw(out=bulk)
            drawn.append(bulk.item(-1))  # streams hand out their bulk from the end
        return drawn

    def _digest(self, name: str) -> bytes:
        return hashlib.sha256(f"{self._seed}/{name}".encode()).digest()[:16]


class Stream:
    """Draws of one thing, bought from the generator in bulk: single draws cost ten times more.

    The generator is made with the first draw: most streams of a world are never drawn from.
    """

    BULK = 256

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._normals: list[float] = []

    @functools.cached_property
    def _generator(self) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(self._seed))

    def normal(self) -> float:
        """A standard normal deviate."""
        if not self._normals:
            self._normals = self._generator.standard_normal(self.BULK).tolist()
        return self._normals.pop()

    def normals(self, count: int) -> npt.NDArray[np.float64]:
        """`count` standard normal deviates at once."""
        return self._generator.standard_normal(count)

    def poisson(self, mean: float) -> int:
        """Return a Poisson deviate."""
        # Beyond this numpy's own draw overflows, and the normal one is as good.
        if mean > 1e15:
            return round(mean + math.sqrt(mean) * self.normal())
        return int(self._generator.poisson(mean))

    def bursts(self, mean: float, propagation: float) -> int:
        """Return a number of events, `mean` on average, each followed by one more with a chance.

        Without `propagation` it is a Poisson deviate.
        """
        first = self.poisson(mean * (1 - propagation))
        if not propagation or not first:
            return first
        return first + int(self._generator.negative_binomial(first, 1 - propagation))

    def duration(self, distribution: Delay, pairs: int = 1) -> int:
        """A duration in ns: lognormal with the given mean and sd, when `pairs` move at once.

        A lognormal is never negative and leans to the right, as switching times do. With the
        pairs the spread grows in proportion to the mean. Where it has a `slow` kind, chance
        decides which of the two it is.
        """
        slow = distribution.slow
        if slow is not None and self._generator.random() < slow.share:
            distribution, pairs = Delay(slow.mean, slow.sd), 1
        mean, sd = distribution.mean, float(distribution.sd)
        if pairs > 1:
            mean += distribution.per_pair * (pairs - 1)
            sd = distribution.sd * mean / distribution.mean
        if not sd:
            return round(mean)
        location, scale = _lognormal(mean, sd)
        normals = self._normals
        normal = normals.pop() if normals else self.normal()
        return round(math.exp(location + scale * normal))


@functools.lru_cache(maxsize=1024)
def _lognormal(mean: int, sd: float) -> tuple[float, float]:
    """Location and scale of the lognormal with this mean and standard deviation."""
    variance = math.log1p((sd / mean) ** 2)
    return math.log(mean) - variance / 2, math.sqrt(variance)


# ------------------------------------------------------------------------------- many seeds at once

_PCG_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_LAST_32, _LAST_128 = (1 << 32) - 1, (1 << 128) - 1
_POOL, _STATE = 4, 8


def _seeds(entropy: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """Return what `SeedSequence(seed).generate_state(4, np.uint64)` is, for each of many seeds.

    entropy: the words of 32 bits of each seed, the least first: shape (seeds, 4). Source: numpy's
    documentation of `SeedSequence`, whose results are the same in all versions.
    """
    pool, const = [], 0x43B0D7E5
    for word in range(_POOL):
        value, const = _hashed(entropy[:, word], const, 0x931E8875)
        pool.append(value)
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                value, const = _hashed(pool[source], const, 0x931E8875)
                mixed = pool[target] * np.uint32(0xCA01F9DD) - value * np.uint32(0x4973F715)
                pool[target] = mixed ^ (mixed >> np.uint32(16))
    states, const = [], 0x8B51F9DD
    for place in range(_STATE):
        value, const = _hashed(pool[place % _POOL], const, 0x58F38DED)
        states.append(value)
    return np.column_stack(states).astype("<u4").view("<u8")


def _hashed(
    value: npt.NDArray[np.uint32], const: int, multiplier: int
) -> tuple[npt.NDArray[np.uint32], int]:
    """Return the hash of each word, and the next constant."""
    following = const * multiplier & _LAST_32
    value = (value ^ np.uint32(const)) * np.uint32(following)
    return value ^ (value >> np.uint32(16)), following
