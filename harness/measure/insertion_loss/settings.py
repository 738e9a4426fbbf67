"""Settings that cover every circuit of a switch, as few as there are ports."""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from lightrig.testbeds import Circuit, LightrigError, SwitchSpec

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


def telling_settings(ingress: Sequence[int], egress: Sequence[int]) -> list[Setting]:
    """Settings of which for each two egress ports one leads light to one of them alone.

    Each leads to the ports whose place has a bit set, with fewer ingress ports to some after the
    others. Without an ingress port there are none.
    """
    if not ingress:
        return []
    places = [
        [port for place, port in enumerate(egress) if place >> bit & 1]
        for bit in range((len(egress) - 1).bit_length())
    ]
    return [
        tuple(Circuit(*pair) for pair in zip(ingress, ports[first:], strict=False))
        for ports in places
        for first in range(0, len(ports), len(ingress))
    ]


class CheckStandardError(LightrigError):
    """Raised where the stated check standard is not among the circuits that can be measured."""


def checked_first(settings: Sequence[Setting], switch: SwitchSpec) -> list[Setting]:
    """Return the settings, that of the circuit which the switch's check standard states first.

    Raises `CheckStandardError` where none has it.
    """
    stated = switch.check_standard.circuit
    first = [each for each in settings if stated and Circuit.parse(stated) in each]
    if stated and settings and not first:
        raise CheckStandardError(
            f"{switch.name}: check standard {stated}: found no such circuit between ports that are "
            "observed, expected one of those whose loss is measured"
        )
    return [*first, *(each for each in settings if each not in first)]


def check_circuits(setting: Setting, switch: SwitchSpec) -> Setting:
    """Return the circuits of the check standard in its setting: that which is stated, or all."""
    stated = switch.check_standard.circuit
    return setting if stated is None else (Circuit.parse(stated),)


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
