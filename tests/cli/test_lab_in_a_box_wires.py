"""Kernel links of a served lab follow circuits that clients of other people set, on each wire."""

import contextlib
import socket
import tempfile
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
    with httpx.Client(auth=box.login, trust_env=False, timeout=30, verify=False) as client:

        def put(made: bool) -> None:
            pairs = [{"ingress": 1, "egress": 6}] if made else []
            answer = client.put(base, json={"optical-switch:cross-connects": {"pair": pairs}})
            assert answer.status_code in {201, 204}, answer.text

        yield put


@contextlib.contextmanager
def gnmi(box: Box) -> Iterator[SetCircuit]:
    """pygnmi on a SONiC switch, where ingress 1 is 1A and egress 6 is 2B; it follows the states."""
    pygnmi = pytest.importorskip("pygnmi.client", reason="the extra gnmi is not installed")
    table = "localhost/OCS_CROSS_CONNECT"
    entry = f"sonic-db:/CONFIG_DB/{table}/1A-2B"
    states = {"path": f"sonic-db:/STATE_DB/{table}/1A-2B/a_side_status", "mode": "on_change"}
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(box.services["ocs"]["certificate"])
        file.flush()
        login = dict(zip(("username", "password"), box.login, strict=True))
        with pygnmi.gNMIclient(
            target=box.address("ocs"), path_cert=file.name, gnmi_timeout=30, **login
        ) as client:
            seen = client.subscribe_stream(
                {"subscription": [states], "mode": "stream", "encoding": "json_ietf"}
            )

            def edit(made: bool) -> None:
                if not made:
                    client.set(delete=[entry])
                    return
                sides = {"a_side": "1A", "b_side": "2B"}
                client.set(update=[(entry, sides)], encoding="json_ietf")
                while "tuned" not in str(seen.get_update(timeout=30)):
                    pass

            yield edit
            seen.close()


CLIENTS: Mapping[str, Callable[[Box], contextlib.AbstractContextManager[SetCircuit]]] = {
    "scpi": scpi,
    "netconf": netconf,
    "restconf": restconf,
    "gnmi": gnmi,
}


@pytest.mark.parametrize("scheme", CLIENTS)
def test_the_carrier_follows_the_circuits_of_a_client(tmp_path: Path, scheme: str) -> None:
    description = BOX.replace("tl1://", f"{scheme}://")
    if scheme == "gnmi":
        description = description.replace("model: polatis", "model: sonic-ocs")
        description = description.replace(", options: {rerouting: true}", "")

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
