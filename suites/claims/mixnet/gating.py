"""A generated gate: expert loads of neighbouring layers, to try a control plane on."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lightrig.harness.systems.mixnet.planning.demand import Matrix


@dataclass(frozen=True, slots=True)
class Gating:
    """Synthetic gates of a training run.

    In each iteration the first layer's load is drawn from a Dirichlet distribution around a
    popularity that itself wanders; each following layer's is its transition matrix times the
    load before, and the tokens are drawn from that, so that counts scatter as real ones do.
    Each column of a transition matrix is a Dirichlet draw, few experts following on each; the
    matrices wander from iteration to iteration, as gates do that learn.

    Nothing here was measured. A load that follows linearly from the one before is what
    Copilot assumes, so a prediction that works here shows that the estimate works, and nothing
    about real gates.

    Attributes:
        experts, layers: of the model.
        tokens: that a layer's gates assign in an iteration.
        concentration: of columns and popularity; the smaller, the fewer experts are hot.
        steadiness: how near to the popularity an iteration's first load stays.
        wander: how far columns and popularity move in an iteration, as a share.
    """

    experts: int = 8
    layers: int = 4
    tokens: int = 32_768
    concentration: float = 0.3
    steadiness: float = 20.0
    wander: float = 0.01

    def iterations(self, count: int, seed: int) -> Iterator[Matrix]:
        """The loads of `count` iterations, each layers x experts, in shares."""
        random = np.random.default_rng(seed)
        alpha = np.full(self.experts, self.concentration)
        popularity = random.dirichlet(alpha * 4)
        columns = random.dirichlet(alpha, size=(self.layers - 1, self.experts))
        for _ in range(count):
            load = random.dirichlet(self.steadiness * popularity + 1e-3)
            loads = [random.multinomial(self.tokens, load) / self.tokens]
            for layer in columns:
                load = loads[-1] @ layer
                loads.append(random.multinomial(self.tokens, load / load.sum()) / self.tokens)
            yield np.array(loads)
            popularity = self._moved(popularity, random.dirichlet(alpha * 4))
            columns = self._moved(columns, random.dirichlet(alpha, size=columns.shape[:2]))

    def exchanges(
        self, ranks: int, count: int, seed: int, steadiness: float = 300.0
    ) -> Iterator[Matrix]:
        """Yield tokens from ranks to experts, ranks x experts, each of another iteration.

        The first layer's load stands for all gates together; each rank's own is a Dirichlet draw
        around it, the nearer the greater `steadiness` is, and its tokens are drawn from that.
        """
        random = np.random.default_rng((seed, ranks))
        for loads in self.iterations(count, seed):
            shares = random.dirichlet(steadiness * loads[0] + 1e-3, size=ranks)
            yield np.array([random.multinomial(self.tokens, load) for load in shares], dtype=float)

    def _moved(self, shares: Matrix, towards: Matrix) -> Matrix:
        moved: Matrix = (1 - self.wander) * shares + self.wander * towards
        return moved
