"""Defects of the light of simulated switches, whatever they are controlled by."""

from collections.abc import Collection, Iterable
from dataclasses import replace

import pytest

from lightrig.instruments.simulated.world.optics import Matrix
from lightrig.testbeds import Circuit
from lightrig.testbeds.simulation import Delay


def cross_egress_ports(patch: pytest.MonkeyPatch, one: int, other: int) -> None:
    """Let the light that is led to one egress port leave the other, and the other way round."""
    readings, crossed = Matrix.readings, {one: other, other: one}

    def read_crossed(
        matrix: Matrix, egresses: Iterable[int], ingresses: Iterable[int] = ()
    ) -> list[float]:
        return readings(matrix, [crossed.get(port, port) for port in egresses], ingresses)

    patch.setattr(Matrix, "readings", read_crossed)


def slow_to_distant_ports(patch: pytest.MonkeyPatch) -> None:
    connect = Matrix.connect

    def connect_by_distance(matrix: Matrix, circuits: Collection[Circuit]) -> int:
        truth_of = matrix._truth_of
        distance = max(
            (abs(matrix.egress_of.get(c.ingress, c.egress) - c.egress) for c in circuits), default=0
        )
        settle = Delay(24_000_000 + 25_000_000 * distance, 1_000_000)
        matrix._truth_of = replace(truth_of, settle=settle)
        try:
            return connect(matrix, circuits)
        finally:
            matrix._truth_of = truth_of

    patch.setattr(Matrix, "connect", connect_by_distance)
