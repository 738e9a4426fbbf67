"""Whether a whole topology can be made while GPUs are faulty (Appendix B)."""

from math import comb

import numpy as np

GPUS, NODES, RACKS = 8, 9, 9
ACTIVE_RACKS, ACTIVE_GPUS = 8, 64
HOURS_A_YEAR = 8760


def at_least(k: int, of: int, chance: float) -> float:
    """Probability that at least `k` of `of` independent parts fail."""
    return 1 - sum(comb(of, i) * chance**i * (1 - chance) ** (of - i) for i in range(k))


def node_fails(gpu: float) -> float:
    """Probability that a node has a faulty GPU."""
    return at_least(1, GPUS, gpu)


def rack_fails(gpu: float) -> float:
    """Probability that a rack has more faulty nodes than its one backup."""
    return at_least(2, NODES, node_fails(gpu))


def group_fails(gpu: float) -> float:
    """Probability that a group of nine racks has more failed ones than its one backup."""
    return at_least(2, RACKS, rack_fails(gpu))


def groups(active: int) -> int:
    """Groups of nine racks that so many active GPUs need."""
    return active // (ACTIVE_RACKS * ACTIVE_GPUS)


def pristine(active: int, gpu: float) -> float:
    """Probability that no group fails."""
    return float((1 - group_fails(gpu)) ** groups(active))


def simulated_failures(gpu: float, trials: int, seed: int) -> tuple[int, int, int]:
    """Failed nodes of as many draws of a node, racks of a rack, groups of a group.

    Each draw takes GPUs, not nodes: binomial counts of faulty GPUs in every node of a group.
    """
    random = np.random.default_rng(seed)
    node = rack = group = 0
    for start in range(0, trials, 20_000):
        count = min(20_000, trials - start)
        faulty = random.binomial(GPUS, gpu, (count, RACKS, NODES)) > 0
        racks = faulty.sum(axis=2) > 1
        node += int(faulty[:, 0, 0].sum())
        rack += int(racks[:, 0].sum())
        group += int((racks.sum(axis=1) > 1).sum())
    return node, rack, group


def years_of_wear(cycles: float, per_second: float) -> float:
    """Years until a switch has made so many cycles."""
    return cycles / per_second / (HOURS_A_YEAR * 3600)


def needed_mtbf_hours(switches: int, yearly: float) -> float:
    """Mean time between failures of a switch so that a GPU loses one with `yearly` a year."""
    return switches / yearly * HOURS_A_YEAR
