"""Chance in a simulated world: one stream a thing, so that no draw depends on another's."""

import functools
import hashlib
import math

import numpy as np
import numpy.typing as npt

from lightrig.testbeds import Distribution


class Chance:
    """Random streams that follow from one seed and the name of whoever draws."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def stream(self, name: str) -> "Stream":
        """Return the stream of `name`: the same for the same seed, whatever else is drawn."""
        digest = hashlib.sha256(f"{self._seed}/{name}".encode()).digest()
        return Stream(int.from_bytes(digest[:16], "big"))


class Stream:
    """Draws of one thing, bought from the generator in bulk: single draws cost ten times more.

    The generator is made with the first draw: most streams of a world are never drawn from.
    """

    _BULK = 256

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._normals: list[float] = []

    @functools.cached_property
    def _generator(self) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(self._seed))

    def normal(self) -> float:
        """A standard normal deviate."""
        if not self._normals:
            self._normals = self._generator.standard_normal(self._BULK).tolist()
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

    def duration(self, distribution: Distribution[int], pairs: int = 1) -> int:
        """A duration in ns: lognormal with the given mean and sd, when `pairs` move at once.

        A lognormal is never negative and leans to the right, as switching times do. With the
        pairs the spread grows in proportion to the mean. Where it has a `slow` kind, chance
        decides which of the two it is.
        """
        slow = distribution.slow
        if slow is not None and self._generator.random() < slow.share:
            distribution, pairs = Distribution(slow.mean, slow.sd), 1
        mean = distribution.mean + distribution.per_pair * max(pairs - 1, 0)
        if not distribution.sd:
            return round(mean)
        location, scale = _lognormal(mean, distribution.sd * mean / distribution.mean)
        normals = self._normals
        normal = normals.pop() if normals else self.normal()
        return round(math.exp(location + scale * normal))


@functools.lru_cache(maxsize=1024)
def _lognormal(mean: int, sd: float) -> tuple[float, float]:
    """Location and scale of the lognormal with this mean and standard deviation."""
    variance = math.log1p((sd / mean) ** 2)
    return math.log(mean) - variance / 2, math.sqrt(variance)
