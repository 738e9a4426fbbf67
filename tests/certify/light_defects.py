"""Defects of the light of simulated switches, whatever they are controlled by."""

from collections.abc import Collection, Iterable

import pytest

from lightrig.instruments.simulated.world.optics import DARK_DBM, Matrix
from lightrig.testbeds import Circuit


def cross_egress_ports(patch: pytest.MonkeyPatch, one: int, other: int) -> None:
    """Let the light that is led to one egress port leave the other, and the other way round."""
    readings, crossed = Matrix.readings, {one: other, other: one}

    def read_crossed(
        matrix: Matrix, egresses: Iterable[int], ingresses: Iterable[int] = ()
    ) -> list[float]:
        return readings(matrix, [crossed.get(port, port) for port in egresses], ingresses)

    patch.setattr(Matrix, "readings", read_crossed)


def cross_ingress_ports(
    patch: pytest.MonkeyPatch, one: int, other: int, *, before_shutters: bool = False
) -> None:
    """Let circuits of two ingress ports have each other's light.

    A shutter takes the light of its own port's fiber, where the ports are not exchanged before the
    shutters already.
    """
    readings, crossed = Matrix.readings, {one: other, other: one}

    def read_crossed(
        matrix: Matrix, egresses: Iterable[int], ingresses: Iterable[int] = ()
    ) -> list[float]:
        ports = tuple(egresses)
        shown = readings(matrix, ports, ingresses)
        for index, port in enumerate(ports):
            ingress = matrix.ingress_of.get(port)
            if ingress in crossed:
                entering = crossed[ingress]
                shut = {ingress if before_shutters else entering, port}
                dbm = matrix.entering(entering)
                dark = dbm is None or not matrix.shut.isdisjoint(shut)
                loss = matrix.loss(Circuit(entering, port))
                shown[index] = DARK_DBM if dark or dbm is None else dbm - loss
        return shown

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
