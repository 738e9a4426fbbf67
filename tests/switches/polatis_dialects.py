"""A Polatis' driver against the forms of its protocols that public sources show."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from switch_rig import MS, Rig, simulated_switch

from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.simulated.devices.polatis_dialects import DIALECTS
from lightrig.instruments.switches.polatis import Polatis
from lightrig.testbeds import Circuit

Forms = Mapping[str, str]

DRIVER_OPTIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "restconf": {"collection": ("patch", "put")}
}
"""Options of the driver by which it speaks differently, by wire."""


def _starts(rig: Rig, switch: Polatis) -> None:
    assert switch.size() == (16, 16)
    assert switch.circuits() == frozenset()


def _makes(rig: Rig, switch: Polatis) -> None:
    switch.change([], [Circuit(3, 29), Circuit(5, 18)]).done()
    assert rig.matrix.egress_of == {3: 29, 5: 18}
    assert switch.circuits() == {Circuit(3, 29), Circuit(5, 18)}


def _keeps(rig: Rig, switch: Polatis) -> None:
    switch.change([], [Circuit(3, 29)]).done()
    rig.clock.sleep(6000 * MS)
    assert switch.circuits() == {Circuit(3, 29)}


def _moves(rig: Rig, switch: Polatis) -> None:
    rig.matrix.connect([Circuit(3, 29), Circuit(5, 18)])
    switch.change([Circuit(3, 29)], [Circuit(3, 31)]).done()
    assert rig.matrix.egress_of == {3: 31, 5: 18}


def _removes(rig: Rig, switch: Polatis) -> None:
    rig.matrix.connect([Circuit(3, 29)])
    switch.change([Circuit(3, 29)], []).done()
    assert rig.matrix.egress_of == {}
    assert switch.circuits() == frozenset()


def _shuts(rig: Rig, switch: Polatis) -> None:
    switch.set_shutters([29], is_open=False)
    assert rig.matrix.shut == {29}
    assert switch.shutters([3, 29]) == {3: True, 29: False}
    switch.set_shutters([29], is_open=True)
    assert switch.shutters([3, 29]) == {3: True, 29: True}


def _reads_power(rig: Rig, switch: Polatis) -> None:
    assert switch._commands.powers([3]).dbm == {3: 0.0}


OPERATIONS: Mapping[str, Callable[[Rig, Polatis], None]] = {
    "starts without circuits": _starts,
    "makes circuits": _makes,
    "circuits stay": _keeps,
    "moves one": _moves,
    "removes the last": _removes,
    "closes and opens a shutter": _shuts,
    "reads power": _reads_power,
}


def outcome(wire: str, forms: Forms, operation: str) -> str:
    """Carry out `operation` on a new switch; return "right", "wrong" or the error's class."""
    clock = VirtualClock(stall_timeout=20)
    driver = {name: form for name, form in forms.items() if name in DRIVER_OPTIONS.get(wire, {})}
    device = {name: form for name, form in forms.items() if name not in driver}
    try:
        with simulated_switch(clock, scheme=wire, monitors="both", **device) as rig:
            OPERATIONS[operation](rig, rig.driver(**driver))
    except AssertionError:
        return "wrong"
    except InstrumentError as error:
        return type(error).__name__
    finally:
        clock.close()
    return "right"


def factors(wire: str) -> dict[str, Sequence[str]]:
    """Return the forms of each dialect of a wire, and of the driver's options."""
    found = {each.option: tuple(each.forms) for each in DIALECTS if each.wire == wire}
    return found | dict(DRIVER_OPTIONS.get(wire, {}))


def products(wire: str) -> Iterator[Forms]:
    """Return every combination of the forms of a wire."""
    named = factors(wire)
    for chosen in itertools.product(*named.values()):
        yield dict(zip(named, chosen, strict=True))


def pairwise(wire: str) -> list[Forms]:
    """Return few combinations in which every pair of forms of two dialects occurs."""

    def pairs(forms: Forms) -> set[object]:
        return {frozenset(pair) for pair in itertools.combinations(forms.items(), 2)}

    candidates = list(products(wire))
    left = set().union(*map(pairs, candidates))
    chosen = []
    while left:
        best = max(candidates, key=lambda forms: len(pairs(forms) & left))
        chosen.append(best)
        left -= pairs(best)
    return chosen
