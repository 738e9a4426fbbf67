"""MixNet-Copilot: which experts the next layer will load, from this layer's load (App. B.1)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.mixnet.planning.demand import DemandError, Matrix

WINDOW = 64
"""Records that an estimate rests on; the paper gives none, this is ours."""
DECAY = 0.97
"""Weight of a record against the next newer one; the paper gives none, this is ours."""

_TOLERANCE = 1e-7
_MOST_STEPS = 2000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A transition matrix, and the weighted squared error that it leaves."""

    matrix: Matrix
    error: float


def estimate_transition(
    before: npt.ArrayLike, after: npt.ArrayLike, *, decay: float = DECAY
) -> Estimate:
    """The matrix P of least sum of w_t |y_t - P x_t|², elements in [0, 1], columns summing to 1.

    P[j, i] is the chance that a token of expert i goes to expert j of the next layer. The newest
    record weighs 1, the one before it `decay`, and so on. The paper solves this with SciPy's
    sequential least squares; here it is an accelerated projected gradient (Beck and
    Teboulle 2009, with restarts), which the convex problem allows and 64 experts need. It
    starts where every column is the weighted mean of what followed, so what the records leave
    open stays near that.

    Args:
        before: records x experts, oldest first: shares of the experts of one layer.
        after: likewise of the next layer.
        decay: what a record weighs against the next newer one.

    Raises `DemandError` for records of other shapes or none.
    """
    x, y = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    if x.ndim != 2 or x.shape != y.shape or not x.size:
        raise DemandError(f"found records of shapes {x.shape} and {y.shape}, expected two alike")
    weights = decay ** np.arange(len(x))[::-1]
    second = (x.T * weights) @ x
    cross = (y.T * weights) @ x
    squares = float(weights @ (y * y).sum(axis=1))
    step = 1 / max(float(np.linalg.eigvalsh(second)[-1]), 1e-300)
    mean = weights @ y / weights.sum()
    matrix = _on_simplices(np.tile(mean[:, None], (1, x.shape[1])))
    point, momentum = matrix, 1.0
    for _ in range(_MOST_STEPS):
        moved = _on_simplices(point - step * (point @ second - cross))
        change = moved - matrix
        if np.abs(change).max() < _TOLERANCE:
            break
        if ((point - moved) * change).sum() > 0:
            momentum = 1.0  # the momentum points uphill
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        point = moved + (momentum - 1) / following * change
        matrix, momentum = moved, following
    error = float(((moved @ second - 2 * cross) * moved).sum()) + squares
    return Estimate(moved, max(error, 0.0))


class Copilot:
    """Predicts a layer's expert load from the load of the layer before it.

    window, decay: how many records count, and how fast they fade.
    """

    def __init__(self, window: int = WINDOW, decay: float = DECAY) -> None:
        self._window, self._decay = window, decay
        self._before: list[Matrix] = []
        self._after: list[Matrix] = []
        self._matrix: Matrix | None = None

    def record(self, before: npt.ArrayLike, after: npt.ArrayLike) -> None:
        """Keep what two neighbouring layers loaded in one iteration, as shares."""
        self._before = [*self._before, np.asarray(before, dtype=float)][-self._window :]
        self._after = [*self._after, np.asarray(after, dtype=float)][-self._window :]
        self._matrix = None

    def predict(self, before: npt.ArrayLike) -> Matrix:
        """The shares to expect in the next layer; those of this one while nothing is known."""
        load = np.asarray(before, dtype=float)
        if not self._before:
            return load
        if self._matrix is None:
            found = estimate_transition(self._before, self._after, decay=self._decay)
            self._matrix = found.matrix
        predicted: Matrix = self._matrix @ load
        return predicted


def _on_simplices(matrix: Matrix) -> Matrix:
    """Each column's nearest point with elements above zero that sum to 1 (Held et al. 1974)."""
    rows = np.arange(1, len(matrix) + 1)[:, None]
    falling = -np.sort(-matrix, axis=0)
    excess = (falling.cumsum(axis=0) - 1) / rows
    last = (falling > excess).sum(axis=0) - 1
    nearest: Matrix = np.maximum(matrix - excess[last, np.arange(matrix.shape[1])], 0.0)
    return nearest
