"""Inputs and expected results of collectives whose every result is checked.

The values differ by rank, element and iteration: a result of the iteration before is wrong in every
element, and so is one that lacks a rank or has it twice. Sent to servers with the rank's program.
"""

from __future__ import annotations

import sys
from array import array

__all__ = ["BYTES", "CheckedRounds", "added"]

BYTES = 4
_PERIOD = 1021
_LARGEST_GROUP = 64


def added(one: bytes, two: bytes) -> bytes:
    """Return the sums of unsigned values of `BYTES` each, none of which overflows."""
    total = int.from_bytes(one, sys.byteorder) + int.from_bytes(two, sys.byteorder)
    return total.to_bytes(len(one), sys.byteorder)


class CheckedRounds:
    """Inputs and expected results of a rank in each iteration, as bytes of unsigned values.

    Args:
        collective: `all_reduce` (sums), or `send_receive` to the next rank of the ring.
        count: values of each rank.
        rank, ranks: of this program, and how many there are.

    Raises `ValueError` for another collective or too many ranks.
    """

    def __init__(self, collective: str, count: int, rank: int, ranks: int) -> None:
        if collective not in ("all_reduce", "send_receive"):
            raise ValueError(f"no checked collective is called {collective!r}")
        if not 1 < ranks <= _LARGEST_GROUP:
            raise ValueError(f"{ranks} ranks: between 2 and {_LARGEST_GROUP} are checked")
        self._size = count * BYTES
        everyone = range(ranks)
        self._given = self._table([rank], count)
        self._expected = self._table(
            everyone if collective == "all_reduce" else [(rank - 1) % ranks], count
        )

    @staticmethod
    def _table(ranks: range | list[int], count: int) -> bytes:
        factor, offset = sum(rank + 1 for rank in ranks), sum(rank << 16 for rank in ranks)
        values = (1 + place % _PERIOD for place in range(count + _PERIOD))
        return array("I", [factor * value + offset for value in values]).tobytes()

    def given(self, iteration: int) -> bytes:
        """Return what this rank gives in an iteration."""
        return self._part(self._given, iteration)

    def expected(self, iteration: int) -> bytes:
        """Return the result that it expects."""
        return self._part(self._expected, iteration)

    def _part(self, table: bytes, iteration: int) -> bytes:
        first = iteration % _PERIOD * BYTES
        return table[first : first + self._size]
