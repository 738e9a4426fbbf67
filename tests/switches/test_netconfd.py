"""The NETCONF driver against a server by others: netconfd of yuma123, with the vendor's module.

netconfd checks each edit against the module, so a leaf or a value that it does not have is refused.
It has no hardware: containers of state are empty. The module is fetched into a folder of its own;
what yuma123 2.13 cannot parse of it, two ranges of decimals, is left out there.
"""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from netconf_client import netconf_session
from public_sources import content_at, fetched
from real_time import until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import DeniedError, GarbledError
from lightrig.instruments.simulated.protocols.netconf_server import NetconfServer
from lightrig.instruments.switches.polatis.netconf import PolatisNetconf
from lightrig.instruments.switches.polatis.session import Voa
from lightrig.instruments.wire.netconf import NetconfSession
from lightrig.testbeds import Circuit

pytestmark = pytest.mark.long

MODULE = "models/polatis/src/main/yang/optical-switch@2018-03-22.yang"
SOURCE = ("opennetworkinglab/onos", MODULE, "bd0779f07c4ed2659f7de039fc896dcd66fce068")
OPSW = "http://www.polatis.com/yang/optical-switch"
LOGIN = ("admin", "any")
SSH_PORT = 8300
"""Port in the names of netconfd's socket; nobody listens on it."""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("netconfd", path=f"/usr/sbin:{os.environ['PATH']}") is None:
        pytest.skip("netconfd is not installed")
    file = fetched(*SOURCE[:2])
    try:
        text = file.read_text() if file else content_at(*SOURCE).decode()
    except (OSError, subprocess.SubprocessError):
        pytest.skip("needs a public program")
    copy = tmp_path_factory.mktemp("yang") / Path(MODULE).name
    text, ranges = re.subn(r"type floatFormat2d \{\s*range [^}]*\}", "type floatFormat2d;", text)
    assert ranges == 2
    copy.write_text(text)
    return copy


@pytest.fixture
def environment(module: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Run netconfd; yield the environment of its subsystems."""
    socket, log = tmp_path / "ncx.sock", tmp_path / "log"
    environment = {
        "PATH": f"/usr/sbin:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "YUMA_MODPATH": f"{module.parent}:/usr/share/yuma/modules",
        "USER": LOGIN[0],
        "SSH_CONNECTION": f"127.0.0.1 5555 127.0.0.1 {SSH_PORT}",
        "SOCKET": f"{SSH_PORT}@{socket}",
    }
    options = {
        "target": "running",
        "access-control": "off",
        "ncxserver-sockname": str(socket),
        "port": str(SSH_PORT),
        "module": str(module),
        "log": str(log),
    }
    command = ["netconfd", "--no-startup", *(f"--{k}={v}" for k, v in options.items())]
    daemon = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, cwd=tmp_path)
    try:
        until(lambda: socket.exists() or daemon.poll() is not None, SystemClock(), 20_000_000)
        assert daemon.poll() is None, log.read_text()
        yield environment
    finally:
        daemon.terminate()
        daemon.wait(30)


class Subsystem:
    """One session: the bytes of an SSH channel go to and from a `netconf-subsystem`."""

    def __init__(self, environment: dict[str, str], line: Any) -> None:
        self._program = subprocess.Popen(
            ["netconf-subsystem", f"--ncxserver-sockname={environment['SOCKET']}"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._reader = threading.Thread(target=self._forward, args=(line,), daemon=True)
        self._reader.start()

    def _forward(self, line: Any) -> None:
        assert self._program.stdout is not None
        while data := self._program.stdout.read(1 << 16):
            line.send(data)
        line.close()

    def received(self, data: bytes) -> None:
        assert self._program.stdin is not None
        self._program.stdin.write(data)

    def closed(self) -> None:
        with self._program as program:  # closes its pipes
            program.terminate()
            program.wait(30)
            self._reader.join(30)


@pytest.fixture
def server(environment: dict[str, str]) -> Iterator[NetconfServer]:
    server = NetconfServer(lambda line, _: Subsystem(environment, line), SystemClock(), LOGIN)
    yield server
    server.close()


@pytest.fixture
def endpoint(server: NetconfServer, tmp_path: Path) -> Endpoint:
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(server.known_hosts_line())
    host, port = server.address
    return Endpoint("netconf", host, port, LOGIN, known_hosts=known_hosts)


@pytest.fixture
def driver(endpoint: Endpoint) -> Iterator[PolatisNetconf]:
    driver = PolatisNetconf("ocs", endpoint, SystemClock(), averaging=5)
    yield driver
    driver.close()


@pytest.fixture
def configured(server: NetconfServer) -> Iterator[Callable[[str], Any]]:
    """Return what ncclient, in a session of its own, reads of a container."""
    with netconf_session(server.address, LOGIN) as session:
        yield (
            lambda name: (
                session.get_config("running", ("subtree", f'<{name} xmlns="{OPSW}"/>')).data_ele
            )
        )


def pairs(data: Any) -> set[tuple[int, int]]:
    return {
        (int(pair.findtext("{*}ingress")), int(pair.findtext("{*}egress")))
        for pair in data.iter(f"{{{OPSW}}}pair")
    }


def test_circuits_are_made_moved_and_removed(
    driver: PolatisNetconf, configured: Callable[[str], Any]
) -> None:
    steps: list[tuple[set[tuple[int, int]], set[tuple[int, int]]]] = [
        (set(), {(1, 17), (2, 18)}),  # the first of a table that is not there
        ({(1, 17)}, {(1, 19)}),
        ({(2, 18)}, set()),
        ({(1, 19)}, set()),  # the last one
        (set(), {(i, i + 384) for i in range(1, 385)}),
    ]
    held: set[tuple[int, int]] = set()
    assert driver.circuits() == frozenset()
    for remove, add in steps:
        driver.change([Circuit(*each) for each in remove], [Circuit(*each) for each in add]).done()
        held = held - remove | add
        assert pairs(configured("cross-connects")) == held
        assert {tuple(circuit) for circuit in driver.circuits()} == held


def test_attenuation_and_shutters_are_commands_of_the_module(
    driver: PolatisNetconf, configured: Callable[[str], Any]
) -> None:
    driver.set_voa(17, Voa("RELATIVE", 3.25))
    assert driver.voa(17) == Voa("RELATIVE", 3.25)
    (port,) = configured("voa").iter(f"{{{OPSW}}}port")
    assert port.findtext("{*}atten-mode") == "VOA_MODE_RELATIVE"
    assert float(port.findtext("{*}atten-level")) == 3.25
    driver.set_shutters([17], is_open=False)  # an rpc; netconfd confirms it and has no shutter


def test_refusals_are_named(driver: PolatisNetconf, configured: Callable[[str], Any]) -> None:
    driver.circuits()
    with pytest.raises(DeniedError, match="data-missing") as missing:
        driver.change([Circuit(5, 21)], []).done()
    assert missing.value.code == "data-missing"
    with pytest.raises(DeniedError, match="invalid-value") as invalid:
        driver.change([], [Circuit(70000, 17)]).done()  # the module has ports 1 to 65535
    assert invalid.value.code == "invalid-value"
    assert pairs(configured("cross-connects")) == set()
    with pytest.raises(GarbledError, match="no identity"):
        driver.identity()


def test_a_notification_between_is_no_reply(endpoint: Endpoint) -> None:
    """netconfd reports every edit to a session that subscribed (RFC 5277)."""
    session = NetconfSession(
        "ocs", endpoint.host, endpoint.port or 0, SystemClock(), LOGIN,
        known_hosts=endpoint.known_hosts,
    )  # fmt: skip
    try:
        session.call(
            '<create-subscription xmlns="urn:ietf:params:xml:ns:netconf:notification:1.0"/>'
        )
        for port in range(1, 21):
            pair = f"<pair><ingress>{port}</ingress><egress>{port + 32}</egress></pair>"
            session.edit(
                '<nc:config xmlns:nc="urn:ietf:params:xml:ns:netconf:base:1.0">'
                f'<cross-connects xmlns="{OPSW}">{pair}</cross-connects></nc:config>'
            ).result()
        found = session.get_config(f'<cross-connects xmlns="{OPSW}"/>')
        assert len(found.entries("cross-connects", "pair")) == 20
        until(lambda: len(session.reports) >= 20, SystemClock())
        assert all("netconf-config-change" in report for report in session.reports)
    finally:
        session.close()
