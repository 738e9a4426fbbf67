"""The largest job on grids with failed nodes, drawn at random (section 6.6, Fig. 17).

Stored series of these minutes of computation hold as long as this module and what it imports.
"""

from collections.abc import Sequence

import numpy as np

from lightrig.harness.claims.figures.curves import Curve, drawn_curve, exact_curve
from lightrig.harness.systems.railx.planning.scheduling import (
    algorithm_2,
    availability,
    largest_job,
)

SIDE = 64
"""Nodes of a row, R/2 of switches with 128 ports."""
SAMPLES = 100
"""Random samples of §6.6."""


def largest_jobs() -> Sequence[Curve]:
    """Return nodes of the largest job by failed nodes of 64 x 64: drawn, worst, best (Fig. 17a)."""
    random = np.random.default_rng(1)
    counts = (0, 4, 8, 12, 16, 20, 24)
    draws = []
    for _ in range(SAMPLES):
        nodes = random.choice(SIDE * SIDE, max(counts), replace=False).tolist()
        faults = [divmod(node, SIDE) for node in nodes]
        draws.append([largest_job(SIDE, faults[:count]).size for count in counts])
    return [
        drawn_curve("random faults", counts, draws),
        exact_curve(
            "worst case",
            {float(count): algorithm_2(SIDE, [(i, i) for i in range(count)]) for count in counts},
        ),
        exact_curve(
            "best case",
            {float(count): algorithm_2(SIDE, [(3, i) for i in range(count)]) for count in counts},
        ),
    ]


def availabilities() -> Sequence[Curve]:
    """Return the share of nodes that one job can have, by failure rate and size (Fig. 17b)."""
    rates = (0.0005, 0.001, 0.002, 0.003, 0.004)
    return [
        drawn_curve(
            f"{side} x {side} nodes",
            rates,
            np.column_stack([availability(side, rate, SAMPLES, seed=1) for rate in rates]),
        )
        for side in (8, 16, 32, 64)
    ]
