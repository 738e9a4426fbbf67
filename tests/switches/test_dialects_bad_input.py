"""Replies that are cut off, or that hold bytes of no encoding, in each form of each wire.

A driver reads what is true or raises a typed error: never other circuits, never none.
"""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from dialect_matrix import pairwise
from switch_rig import MODELS, let_entries_be, let_ports_have, simulated_switch

from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.errors import GarbledError, InstrumentError
from lightrig.instruments.simulated.devices import simulated_polatis
from lightrig.instruments.simulated.devices.dialects import DIALECTS, forms
from lightrig.testbeds import Circuit

WIRES = sorted(
    {(model, each.wire) for model, known in DIALECTS.items() for each in known}
    - {("sonic-ocs", "ssh")}  # prints of its programs are spoilt in test_sonic_ocs.py
)
SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda data: data[: len(data) // 2],
    "all but the end": lambda data: data[:-1],
    "no encoding": lambda data: data[: len(data) // 2] + b"\xff\xfe\x80" + data[len(data) // 2 :],
    "zeros": lambda data: b"\x00" * len(data),
}
CIRCUITS = frozenset({Circuit(3, 29), Circuit(5, 18)})


class Spoiling:
    """A client's connection; once `how` is set, what is sent is spoilt, and the connection ends."""

    how: str = ""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def send(self, data: bytes) -> None:
        if not Spoiling.how:
            self._connection.send(data)
        else:
            self._connection.send(SPOILT[Spoiling.how](data))
            self._connection.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.fixture
def spoilt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spoiling, "how", "")
    for device, _ in MODELS.values():
        of_wire = device.wires

        def wires(self: Any, of_wire: Any = of_wire) -> dict[str, Any]:
            return {
                scheme: lambda connection, index, make=make: make(Spoiling(connection), index)
                for scheme, make in of_wire(self).items()
            }

        monkeypatch.setattr(device, "wires", wires)


def _cases() -> list[Any]:
    found = []
    for (model, wire), how in itertools.product(WIRES, SPOILT):
        for index, chosen in enumerate(pairwise(model, wire)):
            marks = [pytest.mark.long] if index else []
            name = "-".join((model, wire, how, *chosen.values()))
            found.append(pytest.param(model, wire, how, chosen, id=name, marks=marks))
    return found


@pytest.mark.usefixtures("spoilt")
@pytest.mark.parametrize(("model", "wire", "how", "chosen"), _cases())
def test_a_spoilt_reply_is_an_error_or_the_truth(
    monkeypatch: pytest.MonkeyPatch, model: str, wire: str, how: str, chosen: dict[str, str]
) -> None:
    clock = VirtualClock(stall_timeout=20)
    driver: dict[str, Any] = {"ports": 16} if model != "polatis" else {}
    if "collection" in chosen:
        driver["collection"] = chosen["collection"]
    device = {name: form for name, form in chosen.items() if name != "collection"}
    try:
        with simulated_switch(clock, scheme=wire, model=model, **device) as rig:
            switch = rig.driver(**driver)
            switch.change([], sorted(CIRCUITS)).done()
            monkeypatch.setattr(Spoiling, "how", how)
            with contextlib.suppress(InstrumentError):
                assert switch.circuits() == CIRCUITS
            monkeypatch.setattr(Spoiling, "how", "")
            with contextlib.suppress(InstrumentError):
                switch.circuits()  # the connection may have ended behind a whole reply
            assert switch.circuits() == CIRCUITS
    finally:
        clock.close()


def test_a_later_revision_is_named_and_what_it_adds_is_passed_over(virtual, monkeypatch):
    """Its circuits have a leaf more, and states of shutters a word more."""
    later = {"revision": "2031-05-05"}
    monkeypatch.setattr(simulated_polatis, "forms", lambda *which: forms(*which) | later)
    let_entries_be(
        monkeypatch,
        "cross-connects",
        lambda entries: [{**leaves, "colour": "red"} for leaves in entries],
    )
    let_ports_have(monkeypatch, {"status": "HALF-OPEN"})
    rig = virtual(scheme="netconf")
    switch = rig.driver()
    switch.change([], sorted(CIRCUITS)).done()
    assert switch.circuits() == CIRCUITS
    with pytest.raises(GarbledError, match="HALF-OPEN") as raised:
        switch.shutters([3])
    assert "of optical-switch: 2031-05-05" in str(raised.value)


@pytest.mark.parametrize("scheme", ["netconf", "restconf"])
def test_an_entry_without_its_egress_is_no_circuit_and_not_none(virtual, monkeypatch, scheme):
    let_entries_be(
        monkeypatch,
        "cross-connects",
        lambda entries: [{"ingress": each["ingress"], "colour": "red"} for each in entries],
    )
    rig = virtual(scheme=scheme)
    rig.matrix.connect([Circuit(3, 29)])
    with pytest.raises(GarbledError, match="list of circuits"):
        rig.driver().circuits()
