"""Inputs and expected results of collectives whose every result is checked.

The values differ by rank, element and iteration: a result of the iteration before is wrong in every
element, and so is one that lacks a rank or has it twice. Sent to servers with the rank's program.
"""

from __future__ import annotations

import sys
from array import array

__all__ = ["BUCKETS", "BYTES", "COLLECTIVES", "CheckedRounds", "added", "buckets", "updated"]

BYTES = 4
COLLECTIVES = ("all_reduce", "all_to_all", "send_receive", "train")
BUCKETS = 4
"""All-reduces of a training step."""
_PERIOD = 1021
_LARGEST_GROUP = 64


def added(one: bytes, two: bytes) -> bytes:
    """Return the sums of unsigned values of `BYTES` each, none of which overflows."""
    total = int.from_bytes(one, sys.byteorder) + int.from_bytes(two, sys.byteorder)
    return total.to_bytes(len(one), sys.byteorder)


def buckets(block: bytes) -> list[bytes]:
    """Return the parts of a gradient that are reduced one by one."""
    size = -(-len(block) // BUCKETS // BYTES) * BYTES
    return [block[at : at + size] for at in range(0, len(block), size)]


def updated(momentum: bytes, gradient: bytes) -> bytes:
    """Return the momentum of a training step: half of the one before, and the gradient's sums.

    A wrong sum stays in it for some steps. Values stay below twice the largest sum.
    """
    halves = int.from_bytes(momentum, sys.byteorder) >> 1
    # Without the bit that each value has got from the one beside it.
    halves &= int.from_bytes(array("I", [0x7FFFFFFF] * (len(gradient) // BYTES)), sys.byteorder)
    return added(halves.to_bytes(len(gradient), sys.byteorder), gradient)


class CheckedRounds:
    """Inputs and expected results of a rank in each iteration, as bytes of unsigned values.

    Args:
        collective: `all_reduce` (sums), `all_to_all` (a share for each rank), `send_receive` to the
            next rank of the ring, or `train`, a step whose gradients are summed in `BUCKETS`.
        count: values of each rank.
        rank, ranks: of this program, and how many there are.

    Raises `ValueError` for another collective or too many ranks.
    """

    def __init__(self, collective: str, count: int, rank: int, ranks: int) -> None:
        if collective not in COLLECTIVES:
            raise ValueError(f"no checked collective is called {collective!r}")
        if not 0 < ranks <= _LARGEST_GROUP:
            raise ValueError(f"{ranks} ranks: at most {_LARGEST_GROUP} are checked")
        if collective == "all_to_all":
            count -= count % ranks  # equal shares
        self._size = count * BYTES
        self._given = self._table([rank], count)
        self._momentum = bytes(self._size) if collective == "train" else None
        self._shares: list[tuple[bytes, int]] = []
        if collective == "all_to_all":
            share = self._size // ranks
            self._shares = [(self._table([by], count), share * rank) for by in range(ranks)]
            self._share = share
            return
        senders = [(rank - 1) % ranks] if collective == "send_receive" else range(ranks)
        self._expected = self._table(senders, count)

    @staticmethod
    def _table(ranks: range | list[int], count: int) -> bytes:
        factor, offset = sum(rank + 1 for rank in ranks), sum(rank << 16 for rank in ranks)
        values = (1 + place % _PERIOD for place in range(count + _PERIOD))
        return array("I", [factor * value + offset for value in values]).tobytes()

    def given(self, iteration: int) -> bytes:
        """Return what this rank gives in an iteration."""
        return self._part(self._given, iteration)

    def expected(self, iteration: int) -> bytes:
        """Return the result that it expects; of a training step after those before."""
        if self._shares:
            parts = [(self._part(table, iteration), at) for table, at in self._shares]
            return b"".join(part[at : at + self._share] for part, at in parts)
        result = self._part(self._expected, iteration)
        if self._momentum is None:
            return result
        self._momentum = updated(self._momentum, result)
        return self._momentum

    def _part(self, table: bytes, iteration: int) -> bytes:
        first = iteration % _PERIOD * BYTES
        return table[first : first + self._size]
