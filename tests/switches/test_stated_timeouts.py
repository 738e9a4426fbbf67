"""Time limits of wires that a testbed file states, on the sockets of simulated switches."""

import socket
from collections.abc import Callable
from typing import Any

import paramiko
import pytest

from lightrig.harness.bench import Bench, simulation
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import NoReplyError, UnreachableError
from lightrig.instruments.core.registry import open_instrument
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.simulated.faults.wire_faults import LATE, FaultInjector
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import load

LAB = """
name: slow
switches:
  ocs: {model: MODEL, address: "ADDRESS", size: SIZE, timeouts: TIMEOUTS}
"""
USUAL = {
    ("polatis", "tl1://ocs.invalid", "5x7"): 10,
    ("polatis", "scpi://ocs.invalid", "5x7"): 5,
    ("polatis", "serial:///dev/ttyUSB0", "5x7"): 5,
    ("polatis", "netconf://ocs.invalid", "5x7"): 10,
    ("polatis", "restconf://ocs.invalid", "5x7"): 10,
    ("calient-s", "tl1://ocs.invalid", "5x7"): 10,
    ("sonic-ocs", "ssh://ocs.invalid", "7x7"): 30,
    ("sonic-ocs", "gnmi://ocs.invalid", "7x7"): 10,
    ("dicon-gp600", "scpi://ocs.invalid", "5x7"): 5,
    ("keysight-n773x", "visa://TCPIP::ocs.invalid::hislip0::INSTR", "1x4"): 5,
    ("keysight-n773x", "visa://TCPIP::ocs.invalid::inst0::INSTR", "1x4"): 5,
    ("sercalo", "serial:///dev/ttyUSB0", "1x4"): 5,
}
"""Seconds that each wire is waited for where nothing is stated."""

CASES = [
    pytest.param(*at, seconds, id=f"{at[0]}-{at[1].split('::')[-2 if '::' in at[1] else 0][:8]}")
    for at, seconds in USUAL.items()
]
Simulated = Callable[..., Bench]


@pytest.fixture
def faulty(simulated: Simulated, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Bind a lab whose wires have faults; return its bench and the injector of these."""

    def bound(model: str, address: str, size: str, timeouts: str) -> tuple[Bench, FaultInjector]:
        made: list[FaultInjector] = []

        def world(testbed: Any, clock: Any, *rest: Any) -> SimulatedLab:
            made.append(FaultInjector(clock))
            return SimulatedLab(testbed, clock, *rest, wire_faults=made[0])

        text = LAB.replace("MODEL", model).replace("ADDRESS", address).replace("SIZE", size)
        with monkeypatch.context() as patched:
            patched.setattr(simulation, "SimulatedLab", world)
            bench = simulated(text.replace("TIMEOUTS", timeouts))
        return bench, made[0]

    return bound


@pytest.mark.parametrize(("model", "address", "size", "usual"), CASES)
@pytest.mark.parametrize("stated", [None, "700 ms", "45 s"])
def test_a_silent_switch_is_waited_for_as_long_as_stated(
    faulty: Any, model: str, address: str, size: str, usual: int, stated: str | None
) -> None:
    timeouts = "{}" if stated is None else f"{{reply: {stated}}}"
    bench, faults = faulty(model, address, size, timeouts)
    switch = bench.switches["ocs"]
    faults.fall_silent()
    waited = {None: usual, "700 ms": 0.7, "45 s": 45}[stated]
    began = bench.clock.now()
    with pytest.raises(NoReplyError, match=rf"within {waited:g} s") as raised:
        switch.circuits()
    assert bench.clock.now() - began >= waited * 1e9
    assert "timeouts: {reply: ...}" in str(raised.value)


@pytest.mark.parametrize(("model", "address", "size", "usual"), CASES)
def test_a_late_reply_is_taken_where_that_is_stated(
    faulty: Any, model: str, address: str, size: str, usual: int
) -> None:
    late = round(LATE / 1e9)
    bench, faults = faulty(model, address, size, f"{{reply: {usual + late + 2} s}}")
    before = bench.switches["ocs"].circuits()
    faults.fault = "late"
    began = bench.clock.now()
    assert bench.switches["ocs"].circuits() == before
    assert bench.clock.now() - began >= LATE


def test_a_connection_is_waited_for_as_long_as_stated(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each wire hands to the system as the limit of a connection."""
    import pyvisa

    asked: dict[str, float] = {}
    monkeypatch.setenv("LIGHTRIG_SERVED", "bench:secret")
    wires = dict.fromkeys(each for each in USUAL if not each[1].startswith("serial"))
    for model, address, size in wires:
        text = LAB.replace("MODEL", model).replace("SIZE", size).replace("ADDRESS", address)
        path = tmp_path / "lab.yaml"
        path.write_text(text.replace("TIMEOUTS", "{connect: 1300 ms}"))
        spec = load(path).switches["ocs"]

        def never(
            _: Any, timeout: float = 0, *_more: Any, at: str = address, **_options: Any
        ) -> socket.socket:
            asked[at] = timeout
            raise TimeoutError

        def open_resource(*_: object, open_timeout: int, at: str = address) -> None:
            asked[at] = open_timeout / 1e3
            raise OSError

        with monkeypatch.context() as patched:
            patched.setattr(socket, "create_connection", never)
            patched.setattr(pyvisa.ResourceManager, "open_resource", open_resource)
            clock = SystemClock()
            endpoint = Endpoint.parse(address.replace("ocs.invalid", "192.0.2.7"), ("a", "b"))
            instrument = open_instrument(spec, endpoint, clock)
            with pytest.raises(UnreachableError):
                instrument.identity()
            instrument.close()
            clock.close()
    assert asked == {address: 1.3 for _, address, _ in wires}


SERVER = """
name: slow
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", size: 4x4}
servers:
  server0:
    address: ssh://bench@server0.invalid
    timeouts: {login: 1 ms}
    nics: {nic0: {netdev: ens0, rate: 100G, transceiver: lr4}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4 dBm, max: 4 dBm}
    receive: {min: -10 dBm, max: 4 dBm}
fibers: [server0.nic0 <-> ocs]
"""


def test_a_simulated_login_takes_none_of_the_stated_time(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both of its ends are this process: how long it takes is no property of the server."""
    start, asked = paramiko.Transport.start_client, list[float]()

    def note(transport: paramiko.Transport, *given: Any, **named: Any) -> None:
        asked.extend((transport.banner_timeout, transport.handshake_timeout))
        asked.append(transport.auth_timeout)
        start(transport, *given, **named)

    monkeypatch.setattr(paramiko.Transport, "start_client", note)
    server = simulated(SERVER).servers["server0"]
    assert isinstance(server, LinuxServer)
    assert server.identity().model
    assert len(asked) == 3
    assert min(asked) >= 60
