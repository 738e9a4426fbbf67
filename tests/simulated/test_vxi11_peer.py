"""A simulated instrument's VXI-11, called by PyVISA as anybody calls it, and by a driver."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from real_time import LONG

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection, DeviceServer
from lightrig.instruments.simulated.protocols.session_output import SessionOutput
from lightrig.instruments.simulated.protocols.vxi11_server import Vxi11Server, vxi11_resource
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
    import pyvisa

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


class Slow:
    """A session whose answer comes when the next session is asked."""

    connections: ClassVar[list[DeviceConnection]] = []

    def __init__(self, connection: DeviceConnection, _: int) -> None:
        self.connections.append(connection)

    def received(self, data: bytes) -> None:
        if data.startswith(b"NEXT?"):
            for number, connection in enumerate(self.connections, 1):
                connection.send(b"session %d\n" % number)

    def closed(self) -> None:
        """Nothing ends here: the answer is on its way."""


def test_an_answer_on_its_way_does_not_outlive_a_clear() -> None:
    import pyvisa

    clock = SystemClock()
    server = DeviceServer(clock)
    address = server.listen(Vxi11Server(Slow, clock, "slow"))
    manager = pyvisa.ResourceManager("@py")
    session: Any = manager.open_resource(vxi11_resource(*address), timeout=LONG // 1_000_000)
    try:
        session.write("LATE?")
        session.clear()
        assert session.query("NEXT?").strip() == "session 2"
    finally:
        session.close()
        server.close()
        clock.close()


def test_an_answer_is_discarded_that_has_waited_for_a_clear_to_end() -> None:
    """The lock of the output is had when the clear has muted it."""
    sent: list[bytes] = []
    client: Any = SimpleNamespace(send=sent.append)
    output = SessionOutput(client, contextlib.nullcontext())
    output.send(b"1")

    @contextlib.contextmanager
    def cleared() -> Iterator[None]:
        late.mute()
        yield

    late = SessionOutput(client, cleared())
    late.send(b"2")
    assert sent == [b"1"]


def test_an_answer_is_read_in_parts_to_its_end(opened: Any) -> None:
    from pyvisa.constants import StatusCode

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
    import pyvisa
    from pyvisa.constants import StatusCode

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
