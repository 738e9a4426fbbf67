"""Drivers of switches against the forms of their protocols that public sources show."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from switch_rig import MS, Rig, simulated_switch

from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.errors import DeniedError, InstrumentError
from lightrig.instruments.simulated.devices.dialects import DIALECTS
from lightrig.testbeds import Circuit

Forms = Mapping[str, str]

DRIVER_OPTIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "restconf": {"collection": ("patch", "put")}
}
"""Options of the driver by which it speaks differently, by wire."""


class NotOfferedError(Exception):
    """The driver has no such operation on this wire."""


def _starts(rig: Rig, switch: Any) -> None:
    assert switch.identity().simulated
    assert rig.model != "polatis" or switch.size() == (16, 16)
    assert switch.circuits() == frozenset()


def _makes(rig: Rig, switch: Any) -> None:
    switch.change([], [Circuit(3, 29), Circuit(5, 18)]).done()
    assert rig.matrix.egress_of == {3: 29, 5: 18}
    assert switch.circuits() == {Circuit(3, 29), Circuit(5, 18)}


def _keeps(rig: Rig, switch: Any) -> None:
    switch.change([], [Circuit(3, 29)]).done()
    rig.clock.sleep(6000 * MS)
    assert switch.circuits() == {Circuit(3, 29)}


def _begin_with(rig: Rig, switch: Any, *circuits: Circuit) -> None:
    if rig.model == "polatis":  # another program has made them
        rig.matrix.connect(circuits)
    else:
        switch.change([], circuits).done()


def _moves(rig: Rig, switch: Any) -> None:
    _begin_with(rig, switch, Circuit(3, 29), Circuit(5, 18))
    switch.change([Circuit(3, 29)], [Circuit(3, 31)]).done()
    assert rig.matrix.egress_of == {3: 31, 5: 18}


def _removes(rig: Rig, switch: Any) -> None:
    _begin_with(rig, switch, Circuit(3, 29))
    switch.change([Circuit(3, 29)], []).done()
    assert rig.matrix.egress_of == {}
    assert switch.circuits() == frozenset()


def _shuts(rig: Rig, switch: Any) -> None:
    switch.set_shutters([29], is_open=False)
    assert rig.matrix.shut == {29}
    assert switch.shutters([3, 29]) == {3: True, 29: False}
    switch.set_shutters([29], is_open=True)
    assert switch.shutters([3, 29]) == {3: True, 29: True}


def _reads_power(rig: Rig, switch: Any) -> None:
    """Ports with a monitor are those of the form; light of 0 dBm enters ingress 3."""
    lit, dark = (3, 16) if rig.model == "calient-s" else (29, 31)
    if rig.model == "polatis":
        rig.matrix.connect([Circuit(3, 29)])
        rig.clock.sleep(500 * MS)
        fitted = {"egress": range(17, 33), "both": range(1, 33), "none": ()}
        where = rig.forms["monitors"]
        if rig.service.scheme == "tl1":
            assert switch.monitored() == set(fitted[where])
        if where == "none":
            with pytest.raises(DeniedError):
                switch.power([lit])
            return
    assert abs(switch.power([lit]).dbm[lit]) < 3
    assert switch.power([dark]).dbm[dark] <= -59


def _follows(rig: Rig, switch: Any) -> None:
    if not hasattr(switch, "follow_circuits"):
        raise NotOfferedError
    switch.change([], [Circuit(3, 29), Circuit(5, 18)]).done()
    following = switch.follow_circuits()
    for remove, add in (({(3, 29)}, {(3, 31)}), ({(5, 18)}, set()), ({(3, 31)}, set())):
        wanted = switch.circuits() - {Circuit(*each) for each in remove}
        wanted |= {Circuit(*each) for each in add}
        switch.change([Circuit(*each) for each in remove], [Circuit(*each) for each in add]).done()
        found = None
        while found != wanted:
            _, found = following.next(1000 * MS)
    following.close()


_OF_ALL = {
    "starts without circuits": _starts,
    "makes circuits": _makes,
    "circuits stay": _keeps,
    "moves one": _moves,
    "removes the last": _removes,
}
OPERATIONS: Mapping[str, Mapping[str, Callable[[Rig, Any], None]]] = {
    "polatis": {**_OF_ALL, "closes and opens a shutter": _shuts, "reads power": _reads_power},
    "calient-s": {**_OF_ALL, "reads power": _reads_power},
    "sonic-ocs": {**_OF_ALL, "follows circuits": _follows},
}
"""Operations of each model's driver."""


def outcome(model: str, wire: str, forms: Forms, operation: str) -> str:
    """Carry out `operation` on a new switch; return "right", "wrong", "not offered", an error."""
    clock = VirtualClock(stall_timeout=20)
    driver: dict[str, Any] = {
        name: form for name, form in forms.items() if name in DRIVER_OPTIONS.get(wire, {})
    }
    device: dict[str, Any] = {name: form for name, form in forms.items() if name not in driver}
    if model == "polatis":
        device.setdefault("monitors", "both")
    else:
        driver["ports"] = 16
    try:
        with simulated_switch(clock, scheme=wire, model=model, **device) as rig:
            rig.forms = device
            OPERATIONS[model][operation](rig, rig.driver(**driver))
    except AssertionError:
        return "wrong"
    except NotOfferedError:
        return "not offered"
    except InstrumentError as error:
        return type(error).__name__
    finally:
        clock.close()
    return "right"


def factors(model: str, wire: str) -> dict[str, Sequence[str]]:
    """Return the forms of each dialect of a wire, and of the driver's options."""
    found = {each.option: tuple(each.forms) for each in DIALECTS[model] if each.wire == wire}
    return found | dict(DRIVER_OPTIONS.get(wire, {}))


def products(model: str, wire: str) -> Iterator[Forms]:
    """Return every combination of the forms of a wire."""
    named = factors(model, wire)
    for chosen in itertools.product(*named.values()):
        yield dict(zip(named, chosen, strict=True))


def pairwise(model: str, wire: str) -> list[Forms]:
    """Return few combinations in which every pair of forms of two dialects occurs."""
    count = min(2, len(factors(model, wire)))

    def pairs(forms: Forms) -> set[object]:
        return {frozenset(pair) for pair in itertools.combinations(forms.items(), count)}

    candidates = list(products(model, wire))
    left = set().union(*map(pairs, candidates))
    chosen = []
    while left:
        best = max(candidates, key=lambda forms: len(pairs(forms) & left))
        chosen.append(best)
        left -= pairs(best)
    return chosen
