"""All-to-all by binary exchange, over links at distances that are powers of two (Appendix G)."""

from dataclasses import dataclass

import numpy as np

from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError, Nodes


@dataclass(frozen=True, slots=True)
class Round:
    """One exchange: `distance` in ranks, whom each rank meets, and what it hands over.

    sent: for each rank, the first of the ranks whose data it hands over; there are `distance`
    of them, one after the other, so each hands over half of what it holds.
    """

    distance: int
    partner: Nodes
    sent: Nodes


def rounds(ranks: int) -> list[Round]:
    """The exchanges among a power of two of ranks, the widest first.

    Rank i meets i xor d and hands over what is for the half that the partner is in, a block of
    d ranks from (partner and not d - 1) on. As printed, the block begins at (partner and d), and
    from four ranks on data goes missing. Raises `InfiniteHbdError`.
    """
    if ranks < 1 or ranks & (ranks - 1):
        raise InfiniteHbdError(f"found {ranks} ranks, expected a power of two")
    rank = np.arange(ranks)
    found = []
    distance = ranks // 2
    while distance:
        partner = rank ^ distance
        found.append(Round(distance, partner, partner & ~(distance - 1)))
        distance //= 2
    return found


def exchange(data: Nodes) -> Nodes:
    """Return the data of each rank after the exchange: row i is from all ranks for rank i.

    data: row i is what rank i has for each rank. Every item moves hop by hop as `rounds` say;
    one that a rank does not hold cannot be handed over. Raises `InfiniteHbdError`.
    """
    ranks = len(data)
    # held[holder, origin, destination]
    holds = np.zeros((ranks, ranks, ranks), dtype=bool)
    holds[np.arange(ranks), np.arange(ranks)] = True
    for turn in rounds(ranks):
        block = turn.sent[:, None] + np.arange(turn.distance)
        moving = np.zeros_like(holds)
        np.put_along_axis(moving, np.repeat(block[:, None], ranks, axis=1), values=True, axis=2)
        moving &= holds
        holds = (holds & ~moving) | moving[turn.partner]
    found = np.full_like(data, -1)
    holder, origin, destination = np.nonzero(holds)
    arrived = holder == destination
    found[destination[arrived], origin[arrived]] = data[origin[arrived], destination[arrived]]
    return found


def exchange_ns(ranks: int, item: int, rate: float, setup_ns: float) -> float:
    """Return ts log2 p + tw m p / 2 log2 p in ns, for `item` bytes a pair at `rate` bit/s.

    setup_ns: of a round; with modules that switch between rounds, their reconfiguration too.
    """
    turns = len(rounds(ranks))
    return turns * (setup_ns + ranks * item / 2 * 8e9 / rate)


def largest_parallelism(gpus: int) -> int:
    """The greatest TP x EP whose exchanges have links, with a bundle for each of `gpus` GPUs.

    Bundles reach ±1, ±2, … ±2^(`gpus` - 1), so 2^`gpus` nodes of `gpus` GPUs exchange: 64 with
    four GPUs a node, 2,048 with eight.
    """
    return gpus << gpus
