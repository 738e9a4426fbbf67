"""Accuracy of predicted loads of experts."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def top_k_accuracy(predicted: npt.ArrayLike, actual: npt.ArrayLike, k: int) -> float:
    """Return the share of the k most loaded experts that is among the k predicted."""
    return len(_top(predicted, k) & _top(actual, k)) / k


def _top(load: npt.ArrayLike, k: int) -> set[int]:
    return set(np.argsort(-np.asarray(load, dtype=float), kind="stable")[:k].tolist())


def mean_top_k(
    predicted: Sequence[npt.ArrayLike], actual: Sequence[npt.ArrayLike], k: int
) -> float:
    """The mean of `top_k_accuracy` over records."""
    found = [top_k_accuracy(a, b, k) for a, b in zip(predicted, actual, strict=True)]
    return float(np.mean(found))
