"""A simulated instrument's VXI-11, called by PyVISA as anybody calls it, and by a driver."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pyvisa
from pyvisa.constants import StatusCode
from real_time import LONG

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.instruments.switches.keysight_n773x import KeysightN773x
from lightrig.testbeds import Circuit, load

FILE = """
name: little
switches:
  ocs: {model: keysight-n773x, address: "visa://TCPIP::ocs.invalid::inst0::INSTR", size: 1x4}
"""


@pytest.fixture
def resource(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "little.yaml"
    path.write_text(FILE)
    clock = SystemClock()
    world = SimulatedLab(load(path), clock, 1)
    (service,) = world.services.values()
    yield service.resource
    world.close()
    clock.close()


@pytest.fixture
def opened(resource: str) -> Iterator[Any]:
    manager = pyvisa.ResourceManager("@py")
    session = manager.open_resource(resource, timeout=LONG // 1_000_000)
    yield session
    session.close()


def test_a_stranger_asks_by_pyvisa(opened: Any) -> None:
    assert opened.resource_name.endswith("::inst0::INSTR")
    assert opened.query("*IDN?").startswith("Keysight Technologies,N7734A")
    assert opened.query(":ROUT1:CHAN1?").strip() == "A,1"
    opened.write(":ROUT1:CHAN1 A,3")
    assert opened.query(":ROUT1:CHAN1?").strip() == "A,3"
    opened.write("NO:SUCH:COMMAND")
    assert opened.query("SYST:ERR?").startswith("-113")
    assert opened.read_stb() & 16 == 0
    opened.write("*IDN?")
    opened.clear()
    assert opened.query(":ROUT1:CHAN1?").strip() == "A,3"


def test_an_answer_is_read_in_parts_to_its_end(opened: Any) -> None:
    opened.write("*IDN?")
    parts = []
    status = StatusCode.success_max_count_read
    with opened.ignore_warning(StatusCode.success_max_count_read):
        while status == StatusCode.success_max_count_read:
            part, status = opened.visalib.read(opened.session, 7)
            parts.append(part)
    assert [len(part) for part in parts[:-1]] == [7] * (len(parts) - 1)
    assert b"".join(parts).startswith(b"Keysight Technologies,N7734")


def test_a_read_without_an_answer_ends_at_its_time_limit(opened: Any) -> None:
    opened.timeout = 100
    with pytest.raises(pyvisa.VisaIOError) as raised:
        opened.read()
    assert raised.value.error_code == StatusCode.error_timeout
    opened.timeout = LONG // 1_000_000
    assert opened.query("*IDN?")


def test_the_driver_works_over_it(resource: str) -> None:
    clock = SystemClock()
    switch = KeysightN773x("ocs", Endpoint("visa", resource=resource), clock)
    try:
        assert switch.identity().simulated
        switch.change([Circuit(1, 2)], [Circuit(1, 5)]).done()
        assert switch.circuits() == {Circuit(1, 5)}
    finally:
        switch.close()
        clock.close()
