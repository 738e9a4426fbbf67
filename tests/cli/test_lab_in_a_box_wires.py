"""Kernel links of a served lab follow circuits that SCPI, NETCONF and RESTCONF clients set."""

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from cli.test_lab_in_a_box import BOX, Box, possible, served
from netconf_client import netconf_session

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("possible")]
__all__ = ["possible"]

MODULE = "http://www.polatis.com/yang/optical-switch"
PAIR = "<pair><ingress>1</ingress><egress>6</egress></pair>"

SetCircuit = Callable[[bool], None]
"""Makes the circuit from ingress 1 to egress 6, or takes it down."""


@contextlib.contextmanager
def scpi(box: Box) -> Iterator[SetCircuit]:
    with socket.create_connection(box.address("ocs"), timeout=30) as line:

        def write(made: bool) -> None:
            verb = "add" if made else "sub"
            line.sendall(f":oxc:swit:conn:{verb} (@1),(@6);*opc?\n".encode())
            assert line.recv(64).strip() == b"1"

        yield write


@contextlib.contextmanager
def netconf(box: Box) -> Iterator[SetCircuit]:
    with netconf_session(box.address("ocs"), box.login) as session:

        def edit(made: bool) -> None:
            pair = PAIR if made else PAIR.replace("<pair>", '<pair nc:operation="delete">')
            session.edit_config(
                '<config xmlns:nc="urn:ietf:params:xml:ns:netconf:base:1.0">'
                f'<cross-connects xmlns="{MODULE}">{pair}</cross-connects></config>',
                target="running",
            )

        yield edit


@contextlib.contextmanager
def restconf(box: Box) -> Iterator[SetCircuit]:
    host, port = box.address("ocs")
    base = f"http://{host}:{port}/api/data/optical-switch:cross-connects"
    with httpx.Client(auth=box.login, trust_env=False, timeout=30) as client:

        def put(made: bool) -> None:
            pairs = [{"ingress": 1, "egress": 6}] if made else []
            answer = client.put(base, json={"optical-switch:cross-connects": {"pair": pairs}})
            assert answer.status_code in {201, 204}, answer.text

        yield put


CLIENTS: Mapping[str, Callable[[Box], contextlib.AbstractContextManager[SetCircuit]]] = {
    "scpi": scpi,
    "netconf": netconf,
    "restconf": restconf,
}


@pytest.mark.parametrize("scheme", CLIENTS)
def test_the_carrier_follows_the_circuits_of_a_client(tmp_path: Path, scheme: str) -> None:
    description = BOX.replace("tl1://", f"{scheme}://")

    with served(tmp_path, description) as box, CLIENTS[scheme](box) as set_circuit:

        def carrier(wanted: str) -> bool:
            file = "/sys/class/net/fabric0/carrier"
            wait = (
                f"for i in $(seq 100); do [ $(cat {file}) = {wanted} ] && exit 0; sleep 0.1; done"
            )
            return box.run("server1", f"{wait}; exit 1").returncode == 0

        assert carrier("0")
        set_circuit(True)
        assert carrier("1")
        set_circuit(False)
        assert carrier("0")
