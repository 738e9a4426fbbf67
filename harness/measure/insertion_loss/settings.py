"""Settings that cover every circuit of a switch, as few as there are ports."""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from lightrig.testbeds import Circuit

Setting: TypeAlias = tuple[Circuit, ...]
"""Circuits that are made at once; no two share a port."""


def cyclic_shifts(ingress: Sequence[int], egress: Sequence[int]) -> list[Setting]:
    """Every circuit from `ingress` to `egress` once, in as many settings as the larger side has.

    Setting k leads each port of the smaller side to the one k places on, round and round.
    """
    few, many = sorted((ingress, egress), key=len)
    pairs = [
        [(port, many[(place + shift) % len(many)]) for place, port in enumerate(few)]
        for shift in range(len(many))
    ]
    forward = few is ingress
    return [tuple(Circuit(*(p if forward else p[::-1])) for p in each) for each in pairs]


def one_by_one(circuits: Iterable[Circuit]) -> list[Setting]:
    """`circuits` packed greedily into settings, for a switch that cannot make every circuit."""
    settings: list[list[Circuit]] = []
    for circuit in sorted(circuits):
        free = (each for each in settings if not _touches(circuit, each))
        room = next(free, None)
        if room is None:
            settings.append([circuit])
        else:
            room.append(circuit)
    return [tuple(each) for each in settings]


def beside(setting: Setting, established: Collection[Circuit]) -> frozenset[Circuit]:
    """`setting` with the `established` circuits that share no port with it."""
    return frozenset(setting) | {
        circuit for circuit in established if not _touches(circuit, setting)
    }


def _touches(circuit: Circuit, circuits: Iterable[Circuit]) -> bool:
    return any(circuit.ingress == o.ingress or circuit.egress == o.egress for o in circuits)
