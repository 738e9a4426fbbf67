"""Labels, blocks, saved configurations and restarts of switches, on the wire."""

from collections.abc import Callable
from importlib.util import find_spec

import pytest

from lightrig.harness.bench import Bench
from lightrig.harness.certify.progress import Configuration
from lightrig.instruments.core.errors import DeniedError
from lightrig.instruments.switches.polatis.switch import Polatis
from lightrig.instruments.switches.sonic_ocs import SonicOcs
from lightrig.instruments.switches.sonic_ocs.gnmi import SonicGnmi
from lightrig.testbeds import Circuit

FILE = """
name: managed
switches:
  ocs: {model: MODEL, address: "WIRE://ocs.invalid", size: 3x5}
"""
WIRES = [
    ("polatis", "tl1"),
    ("sonic-ocs", "ssh"),
    pytest.param(
        "sonic-ocs",
        "gnmi",
        marks=pytest.mark.skipif(
            None in map(find_spec, ("pygnmi", "h2")), reason="the extra gnmi is not installed"
        ),
    ),
]
Simulated = Callable[..., Bench]


def opened(simulated: Simulated, model: str, wire: str) -> Bench:
    return simulated(FILE.replace("MODEL", model).replace("WIRE", wire))


@pytest.mark.parametrize(("model", "wire"), WIRES)
def test_labels_belong_to_one_port_each(simulated: Simulated, model: str, wire: str) -> None:
    switch = opened(simulated, model, wire).switches["ocs"]
    assert isinstance(switch, Polatis | SonicOcs | SonicGnmi)
    switch.set_label(2, "rack 7; shelf")
    switch.set_label(8, "a:b, c")
    named = {port: label for port, label in switch.labels().items() if label}
    assert named == {2: "rack 7; shelf", 8: "a:b, c"}
    assert sorted(switch.labels()) == [1, 2, 3, 4, 5, 6, 7, 8]
    switch.set_label(2, "")
    assert {port for port, label in switch.labels().items() if label} == {8}


def test_a_port_that_does_not_exist_has_no_label(simulated: Simulated) -> None:
    for model, wire in (("polatis", "tl1"), ("sonic-ocs", "ssh")):
        switch = opened(simulated, model, wire).switches["ocs"]
        with pytest.raises(DeniedError):
            switch.set_label(9, "none")  # type: ignore[attr-defined]


def test_labels_over_another_wire_of_a_polatis_are_refused(simulated: Simulated) -> None:
    switch = opened(simulated, "polatis", "scpi").switches["ocs"]
    with pytest.raises(DeniedError, match="no command over scpi") as refused:
        switch.labels()  # type: ignore[attr-defined]
    assert refused.value.code == "cannot"


def test_sonic_saves_restarts_and_blocks(simulated: Simulated) -> None:
    switch = opened(simulated, "sonic-ocs", "ssh").switches["ocs"]
    assert isinstance(switch, SonicOcs)
    kept, lost = Circuit(1, 5), Circuit(3, 8)
    switch.change([], [kept]).done()
    switch.set_shutters([5], is_open=False)
    switch.set_label(1, "saved")
    switch.save_configuration()
    switch.change([], [lost]).done()
    switch.set_shutters([8], is_open=False)
    assert switch.shutters([5, 6, 8]) == {5: False, 6: True, 8: False}
    switch.restart(warm=True)
    assert switch.circuits() == {kept, lost}
    switch.restart(warm=False)
    assert switch.circuits() == {kept}
    assert switch.shutters([5, 6, 8]) == {5: False, 6: True, 8: True}
    assert switch.labels()[1] == "saved"


def test_a_polatis_is_reset(simulated: Simulated) -> None:
    switch = opened(simulated, "polatis", "tl1").switches["ocs"]
    assert isinstance(switch, Polatis)
    switch.change([], [Circuit(1, 5), Circuit(3, 8)]).done()
    switch.reset_configuration()
    assert switch.circuits() == frozenset()


@pytest.mark.parametrize(("model", "wire"), [("polatis", "tl1"), ("sonic-ocs", "ssh")])
def test_a_configuration_is_given_back(simulated: Simulated, model: str, wire: str) -> None:
    switch = opened(simulated, model, wire).switches["ocs"]
    assert isinstance(switch, Polatis | SonicOcs)
    switch.set_label(2, "before")
    switch.set_shutters([7], is_open=False)
    found = Configuration.of(switch, [2, 6, 7])
    switch.set_label(2, "after")
    switch.set_label(6, "new")
    switch.set_shutters([7], is_open=True)
    switch.set_shutters([6], is_open=False)
    found.give_back(switch)
    assert {port: label for port, label in switch.labels().items() if label} == {2: "before"}
    assert switch.shutters([6, 7]) == {6: True, 7: False}
