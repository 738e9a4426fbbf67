"""Iteration times of the authors' simulation, as quotients: Fig. 12's table, which they released.

Source: data/normalized_performance.csv of the paper's project page (mixnet-project.github.io), of
which these are quotients of columns, rounded. DeepSeek-R1 is not in it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Against(NamedTuple):
    """The iteration time of a network over MixNet's: above 1, MixNet is faster."""

    topoopt: float
    fat_tree: float
    rail_optimized: float


ITERATION_TIMES: Final[Mapping[str, Mapping[int, Against]]] = {
    "Mixtral 8x22B": {
        100: Against(1.854, 0.945, 0.936),
        200: Against(1.646, 0.995, 0.968),
        400: Against(1.414, 0.971, 0.984),
        800: Against(1.251, 1.011, 0.988),
    },
    "Mixtral 8x7B": {
        100: Against(1.82, 0.969, 0.952),
        200: Against(1.481, 0.983, 0.963),
        400: Against(1.23, 0.999, 0.983),
        800: Against(1.142, 0.999, 0.999),
    },
    "Llama-MoE": {
        100: Against(1.902, 0.785, 1.061),
        200: Against(2.104, 0.803, 1.075),
        400: Against(2.489, 0.842, 1.048),
        800: Against(1.933, 0.839, 0.943),
    },
    "Qwen-MoE": {
        100: Against(1.259, 0.825, 0.99),
        200: Against(1.42, 0.852, 1.01),
        400: Against(1.588, 0.886, 1.037),
        800: Against(1.698, 0.949, 1.096),
    },
}
"""By model and link rate in Gbit/s."""
