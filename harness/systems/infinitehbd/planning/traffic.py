"""Share of a job's traffic that leaves its ToR, and that of a careless placement.

The paper describes its measure and its baseline in words only (§6.4), so both are defined here;
figures of ours and of the paper are of different things and cannot be expected to agree.
"""

import numpy as np

from lightrig.harness.systems.infinitehbd.planning.placement import Placement, aligned, place
from lightrig.harness.systems.infinitehbd.planning.wiring import (
    FatTree,
    InfiniteHbdError,
    Mask,
    Nodes,
)


def cross_tor_share(tree: FatTree, groups: Nodes) -> float:
    """The share of a job's ring traffic between its groups that crosses a ToR, from 0 to 1.

    As many consecutive groups as a ToR has nodes form a set (the last may be smaller), in which
    nodes of the same rank pass their data around a ring: context parallelism in Meta's cluster
    and in Appendix D. A placement that is aligned puts each of these rings under one ToR, so
    that nothing crosses. Traffic within groups runs in the high-bandwidth domain and does not
    count; nor does traffic between sets, which no placement can keep under a ToR.
    """
    crossing, passed = crossings(tree.tor(groups), tree.per_tor)
    return float(crossing.sum() / passed.sum()) if passed.any() else 0.0


def crossings(tors: Nodes, per_tor: int) -> tuple[Nodes, Nodes]:
    """Return for each set how many of its rings' links cross a ToR, and how many there are.

    tors: of each group, in its nodes' order; negative for a group that is missing, past which
    the rings of its set close. See `cross_tor_share`.
    """
    count, size = tors.shape
    sets = -(-count // per_tor)
    padded = np.full((sets * per_tor, size), -1, dtype=np.int64)
    padded[:count] = tors
    by_set = padded.reshape(sets, per_tor, size)
    there = by_set[:, :, 0] >= 0
    whole = there.all(axis=1)
    away = (by_set != np.roll(by_set, -1, axis=1)).sum(axis=(1, 2))
    present = there.sum(axis=1)
    for number in np.flatnonzero(~whole).tolist():
        part = by_set[number, there[number]]
        away[number] = (part != np.roll(part, -1, axis=0)).sum()
    return away, np.where(present > 1, present * size, 0)


def job_of(tree: FatTree, placement: Placement, groups: int) -> Nodes:
    """Of a placement, the groups that a job of `groups` takes, in the order of its sets.

    See `planning.placement.aligned`. Raises `InfiniteHbdError` where the placement has too few.
    """
    _enough(placement.groups, groups)
    return aligned(tree, placement.groups)[:groups]


def careless(
    tree: FatTree, faulty: Mask, size: int, reach: int, groups: int, random: np.random.Generator
) -> Nodes:
    """A greedy job that knows the high-bandwidth domain alone: our reading of the baseline.

    Groups are cut from the deployed line without constraints, drawn in random order, and the
    first `groups` are taken as they come. Raises `InfiniteHbdError` where there are too few.
    """
    order = tree.order()
    found = order[place(faulty[order], size, reach)]
    _enough(found, groups)
    return random.permutation(found)[:groups]


def _enough(found: Nodes, groups: int) -> None:
    if len(found) < groups:
        raise InfiniteHbdError(f"found {len(found)} groups, expected at least {groups}")
