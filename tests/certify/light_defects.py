"""Defects of the light of simulated switches, whatever they are controlled by."""

from collections.abc import Collection, Iterable

import pytest

from lightrig.instruments.simulated.world.optics import Matrix
from lightrig.testbeds import Circuit


def cross_egress_ports(patch: pytest.MonkeyPatch, one: int, other: int) -> None:
    """Let the light that is led to one egress port leave the other, and the other way round."""
    readings, crossed = Matrix.readings, {one: other, other: one}

    def read_crossed(
        matrix: Matrix, egresses: Iterable[int], ingresses: Iterable[int] = ()
    ) -> list[float]:
        return readings(matrix, [crossed.get(port, port) for port in egresses], ingresses)

    patch.setattr(Matrix, "readings", read_crossed)


def slow_to_distant_ports(patch: pytest.MonkeyPatch) -> None:
    """Let light settle, and changes be acknowledged, 25 ms later for each port of distance."""
    connect = Matrix.connect

    def connect_by_distance(matrix: Matrix, circuits: Collection[Circuit]) -> int:
        distance = max(
            (abs(matrix.egress_of.get(c.ingress, c.egress) - c.egress) for c in circuits), default=0
        )
        matrix.set_switching_time(24_000_000 + 25_000_000 * distance)
        return connect(matrix, circuits)

    patch.setattr(Matrix, "connect", connect_by_distance)
