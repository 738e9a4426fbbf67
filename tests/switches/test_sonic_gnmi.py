"""SONiC over gNMI: the driver against the simulated switch, and programs of other people.

Sources of the expectations: SONiC OCS High Level Design, revision 0.5 (tables, one transaction);
sonic-gnmi, test_gnmi_configdb (paths, "Invalid elem length", "Set RPC does not support"; a change
is kept); sonic-mgmt, `gnmi_path_to_proto`. pygnmi and grpcio are clients of others.
"""

import contextlib
import queue
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import paramiko
import pytest
from real_time import SOON
from switch_rig import LOGIN

from lightrig.harness.bench import Bench, bind
from lightrig.harness.cli.served_lab import ServedLab
from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    NoReplyError,
    NotDoneError,
    UnreachableError,
)
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.listeners import Service, serve
from lightrig.instruments.simulated.registry import NoSimulatedDeviceError
from lightrig.instruments.switches.sonic_ocs.gnmi import SonicGnmi
from lightrig.instruments.wire import gnmi
from lightrig.instruments.wire.recording import record
from lightrig.testbeds import Circuit, load

pytest.importorskip("pygnmi", reason="the extra gnmi is not installed")
pytest.importorskip("h2", reason="the extra gnmi is not installed")

N = 24
TABLE = "sonic-db:/CONFIG_DB/localhost/OCS_CROSS_CONNECT"
STATES = "sonic-db:/STATE_DB/localhost/OCS_CROSS_CONNECT"
MS = 1_000_000


def rack(folder: Path, options: str = "", scheme: str = "gnmi") -> Path:
    path = folder / "rack.yaml"
    path.write_text(
        f'name: rack\nswitches: {{ocs: {{model: sonic-ocs, address: "{scheme}://ocs.invalid", '
        f"size: {N}x{N}, options: {{{options}}}}}}}\n"
    )
    return path


@contextlib.contextmanager
def bench(folder: Path, options: str = "") -> Iterator[Bench]:
    bound = bind(load(rack(folder, options)), "simulated", seed=4)
    try:
        yield bound
    finally:
        bound.close()


def sent(bound: Bench, method: str) -> list[str]:
    return [line for line in bound.switches["ocs"].wire() if f" > {method} " in line]


def tuned_since(bound: Bench, since: int) -> int:
    """Return when the world had made a change, in ns."""
    assert bound.world is not None
    at = bound.world.truth.first("ocs", "acknowledged", up=True, since=since)
    assert at is not None
    return at.latest


# ---------------------------------------------------------------------- the driver, virtual


def test_paths_are_those_of_sonic() -> None:
    """The example of `gnmi_path_to_proto`, and its bytes by hand (protobuf, encoding)."""
    from google.protobuf.json_format import MessageToDict
    from pygnmi.spec.v080 import gnmi_pb2

    names = ("CONFIG_DB", "localhost", "DEVICE_METADATA", "localhost")
    assert MessageToDict(gnmi.path_of(gnmi_pb2, names)) == {
        "origin": "sonic-db",
        "elem": [{"name": name} for name in names],
    }
    # Field 2 (origin) and 3 (elem) of Path, field 1 (name) of PathElem; wire type 2 each.
    made = gnmi.path_of(gnmi_pb2, ("AB",)).SerializeToString()
    assert made == b"\x12\x08sonic-db" + b"\x1a\x04\x0a\x02AB"


def test_many_circuits_move_in_one_transaction(tmp_path: Path) -> None:
    before = {Circuit(i, N + i) for i in range(1, N + 1)}
    after = {Circuit(i, N + i % N + 1) for i in range(1, N + 1)}
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        switch.change([], before).done()
        operation = switch.change(before, after)
        done = operation.done()
        assert switch.circuits() == after
        assert len([line for line in sent(bound, "Set") if line.count("OCS_CROSS") == 2 * N]) == 1
        tuned = tuned_since(bound, operation.sent.latest)
    assert operation.sent.latest < done.earliest <= tuned <= done.latest


def test_a_transaction_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        switch.change([], [Circuit(1, N + 2), Circuit(5, N + 6)]).done()
        with pytest.raises(DeniedError, match="in use by 1A-2B and 3A-2B") as denied:
            switch.change([Circuit(5, N + 6)], [Circuit(9, N + 9), Circuit(3, N + 2)]).done()
        assert denied.value.code == "INVALID_ARGUMENT"
        assert switch.circuits() == {Circuit(1, N + 2), Circuit(5, N + 6)}
        assert isinstance(switch, SonicGnmi)
        assert switch._configured() == switch.circuits()


def test_the_answer_to_another_path_is_refused(tmp_path: Path) -> None:
    """Both tables are keyed by circuits: the states would be taken for the configuration."""
    with bench(tmp_path, 'stale: "5A-6B"') as bound:
        switch = bound.switches["ocs"]
        assert isinstance(switch, SonicGnmi)
        switch.circuits()
        assert bound.world is not None
        bound.world._injectors["ocs"].fault = "previous"
        with pytest.raises(GarbledError, match="no answer to CONFIG_DB"):
            switch._configured()


def test_circuits_that_only_the_hardware_has_are_removed(tmp_path: Path) -> None:
    with bench(tmp_path, 'stale: "5A-6B,7A-8B"') as bound:
        switch = bound.switches["ocs"]
        assert switch.circuits() == {Circuit(5, N + 6), Circuit(7, N + 8)}
        switch.change([Circuit(5, N + 6)], [Circuit(5, N + 7)]).done()
        assert switch.circuits() == {Circuit(5, N + 7), Circuit(7, N + 8)}


@pytest.mark.parametrize("tables", ["hld", "kvm"])
def test_the_tables_of_states_have_either_name(tmp_path: Path, tables: str) -> None:
    with bench(tmp_path, f"state_tables: {tables}") as bound:
        switch = bound.switches["ocs"]
        assert switch.circuits() == frozenset()
        switch.change([], [Circuit(2, N + 3)]).done()
        assert switch.circuits() == {Circuit(2, N + 3)}


def test_an_empty_table_is_told_from_a_switch_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        assert switch.circuits() == frozenset()
        monkeypatch.setattr(
            "lightrig.instruments.simulated.devices.sonic_switch.TABLES", {"CONFIG_DB": ()}
        )
        with pytest.raises(DeniedError, match="No valid entry found on CONFIG_DB/OCS_PORT"):
            switch.circuits()


def test_a_switch_that_refuses_subscriptions_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lightrig.instruments.simulated.devices import sonic_gnmi

    def refuse(*_: Any) -> None:
        raise sonic_gnmi._RefusedError(sonic_gnmi.UNIMPLEMENTED, "no subscriptions")

    monkeypatch.setattr(sonic_gnmi.GnmiCall, "_subscribe", refuse)
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        done = switch.change([], [Circuit(2, N + 3)]).done()
        assert done.earliest <= tuned_since(bound, 0) <= done.latest
        assert done.latest - done.earliest <= 50 * MS
        assert switch.circuits() == {Circuit(2, N + 3)}


@pytest.mark.parametrize("state", ["failed", "blocked"])
def test_a_circuit_that_does_not_tune_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    from lightrig.instruments.simulated.devices.sonic_switch import SonicSwitch

    monkeypatch.setattr(SonicSwitch, "_state", lambda *_: state)
    with bench(tmp_path) as bound:
        operation = bound.switches["ocs"].change([], [Circuit(2, N + 3)])
        begun = bound.clock.now()
        with pytest.raises(NotDoneError, match=f"2A-3B .{state}, {state}"):
            operation.done()
        took = bound.clock.now() - begun
        assert took < 1_000 * MS if state == "failed" else took > 10_000 * MS
        bound.clock.sleep(1000 * MS)


def test_ports_are_blocked_in_one_transaction(tmp_path: Path) -> None:
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        assert isinstance(switch, SonicGnmi)
        switch.set_shutters([2, N + 3], is_open=False)
        assert switch.shutters([2, 3, N + 3]) == {2: False, 3: True, N + 3: False}
        assert len(sent(bound, "Set")) == 1
        switch.set_shutters([2], is_open=True)
        assert switch.shutters([2, N + 3]) == {2: True, N + 3: False}
        with pytest.raises(DeniedError, match=f"invalid port {N + 1}B"):
            switch.set_shutters([1, 2 * N + 1], is_open=False)
        assert switch.shutters([1]) == {1: True}


def test_one_seed_gives_one_trace(tmp_path: Path) -> None:
    def run() -> list[str]:
        with bench(tmp_path) as bound:
            switch = bound.switches["ocs"]
            switch.change([], [Circuit(i, N + i) for i in range(1, 9)]).done()
            switch.change([Circuit(2, N + 2)], [Circuit(9, N + 9)]).done()
            return switch.wire()

    assert run() == run()


def test_no_recording_has_the_password(tmp_path: Path) -> None:
    with bench(tmp_path) as bound:
        recorder = record(bound.clock, tmp_path / "traces")
        switch = bound.switches["ocs"]
        assert isinstance(switch, SonicGnmi)
        login = switch.endpoint.login
        assert login is not None
        switch.close()
        switch.change([], [Circuit(1, N + 1)]).done()
        recorder.close()
        text = (tmp_path / "traces" / "ocs.jsonl").read_text()
        assert login[1] not in text + "".join(switch.wire())
        assert len(text.splitlines()) > 10


def test_a_wrong_login_and_an_unknown_certificate_are_refused(tmp_path: Path) -> None:
    with bench(tmp_path) as bound:
        right = bound.switches["ocs"]
        assert isinstance(right, SonicGnmi)
        right.circuits()
        at = right.endpoint
        wrong = SonicGnmi("ocs", replace(at, login=("bench", "hunter2")), bound.clock, ports=N)
        with pytest.raises(UnreachableError, match="refused the login") as refused:
            wrong.circuits()
        assert "hunter2" not in str(refused.value)
        stranger = SonicGnmi("ocs", replace(at, certificates=None), bound.clock, ports=N)
        with pytest.raises(UnreachableError, match="certificate that is not trusted"):
            stranger.circuits()
        other = SonicGnmi("ocs", replace(at, host="127.0.0.2"), bound.clock, ports=N)
        with pytest.raises(UnreachableError):
            other.circuits()
        bound.clock.sleep(1000 * MS)  # nothing is left in flight
        assert right.circuits() == frozenset()
        for driver in (wrong, stranger, other):
            driver.close()


def test_plaintext_is_refused(tmp_path: Path) -> None:
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        assert isinstance(switch, SonicGnmi)
        assert switch.endpoint.port is not None
        with socket.create_connection(("127.0.0.1", switch.endpoint.port), timeout=30) as line:
            line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            received = b""
            while data := line.recv(4096):
                received += data
        assert received[:1] in {b"", b"\x15"}  # an alert of TLS (RFC 8446, section 5.1)
        assert len(received) <= 7
        bound.clock.sleep(1000 * MS)
        assert switch.circuits() == frozenset()


FAULTS = {
    "silent": NoReplyError,
    "late": NoReplyError,
    "truncates": NoReplyError,
    "closes": DisconnectedError,
    "cuts": DisconnectedError,
    "garbles": GarbledError,
    "junk": GarbledError,
    "previous": NoReplyError,  # a message of the subscription, which ends no call
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_while_a_change_is_made_ends_in_its_error(tmp_path: Path, fault: Any) -> None:
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        switch.change([], [Circuit(1, N + 1)]).done()
        operation = switch.change([Circuit(1, N + 1)], [Circuit(1, N + 2)])
        assert bound.world is not None
        bound.world._injectors["ocs"].fault = fault
        with pytest.raises(FAULTS[fault]) as raised:
            operation.done()
        bound.world._injectors["ocs"].stop()
        assert str(raised.value).startswith("ocs ")
        assert "last on the wire" in str(raised.value)
        assert raised.value.trace
        assert switch.circuits() == {Circuit(1, N + 2)}


def test_without_the_extra_the_address_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pygnmi.spec.v080", None)
        with pytest.raises(gnmi.MissingExtraError, match=r"lightrig\[gnmi\]"):
            gnmi.GnmiSession("ocs", "x", 1, None, gnmi.GnmiCredentials(None))  # type: ignore[arg-type]
    with bench(tmp_path) as bound:
        assert bound.world is not None
        device, _ = bound.world._devices["ocs"]
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        server = DeviceServer(bound.clock)
        with pytest.raises(NoSimulatedDeviceError, match=r"lightrig\[gnmi\]"):
            serve("ocs", device, "gnmi", server, LOGIN)
        server.close()


# ------------------------------------------------------------- programs of other people


@pytest.fixture
def served(tmp_path: Path) -> Iterator[dict[str, Service]]:
    """A switch whose address names SSH; gNMI is its further wire."""
    lab = ServedLab(load(rack(tmp_path, scheme="ssh")), 0, 0, {"ocs": LOGIN})
    further = {each.scheme: each for each in lab.further_wires["ocs"]}
    yield {"ssh": lab.services["ocs"], **further}
    lab.close()


@contextlib.contextmanager
def program(service: Service, folder: Path, password: str = LOGIN[1]) -> Iterator[Any]:
    from pygnmi.client import gNMIclient

    file = folder / "trusted.pem"
    file.write_text(service.certificate)
    with gNMIclient(
        target=(service.host, service.port),
        username=LOGIN[0],
        password=password,
        path_cert=str(file),
        gnmi_timeout=30,
    ) as client:
        yield client


def sides(id_: str) -> tuple[str, dict[str, str]]:
    a, _, b = id_.partition("-")
    return f"{TABLE}/{id_}", {"a_side": a, "b_side": b}


@contextlib.contextmanager
def shell(service: Service) -> Iterator[Any]:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect(service.host, service.port, *LOGIN, look_for_keys=False, allow_agent=False)

    def run(line: str) -> str:
        _, stdout, _ = client.exec_command(line, timeout=60)
        return str(stdout.read().decode())

    yield run
    client.close()


def test_pygnmi_moves_circuits_and_follows_their_states(
    served: dict[str, Service], tmp_path: Path
) -> None:
    """The command line shows changes by pygnmi; its subscription shows changes by both."""
    came: queue.Queue[Any] = queue.Queue()
    with program(served["gnmi"], tmp_path) as client, shell(served["ssh"]) as run:
        wanted = {"path": STATES, "mode": "on_change"}
        stream = client.subscribe2(
            {"subscription": [wanted], "mode": "stream", "encoding": "json_ietf"}
        )
        threading.Thread(target=lambda: [came.put(each) for each in stream], daemon=True).start()
        assert came.get(timeout=SOON / 1e9)["sync_response"]

        def states_of(id_: str) -> list[str]:
            """Return the states of a circuit until it is tuned."""
            found: list[str] = []
            while "tuned" not in found:
                for each in came.get(timeout=SOON / 1e9)["update"].get("update", ()):
                    found += [each["val"][id_]["b_side_status"]] if id_ in each["val"] else []
            return found

        client.set(update=[sides("1A-2B"), sides("3A-4B")], encoding="json_ietf")
        assert states_of("3A-4B") == ["tuning", "tuned"]
        status = run("show ocs cross-connect status").split()
        assert {"1A-2B", "3A-4B"} <= set(status)
        client.set(delete=[sides("1A-2B")[0]], update=[sides("1A-6B")], encoding="json_ietf")
        assert states_of("1A-6B") == ["tuning", "tuned"]
        run("config ocs cross-connect add 7A-8B")
        assert "tuned" in states_of("7A-8B")
        found = client.get(path=[TABLE], encoding="json_ietf")
        assert set(found["notification"][0]["update"][0]["val"]) == {"1A-6B", "3A-4B", "7A-8B"}
        stream.close()
        assert not stream._subscribe_thread.is_alive()  # the switch has ended the call too


def test_what_pygnmi_is_refused(served: dict[str, Service], tmp_path: Path) -> None:
    from pygnmi.client import gNMIException

    with program(served["gnmi"], tmp_path) as client:
        client.set(update=[sides("5A-6B")], encoding="json_ietf")

        def refused(text: str, **change: Any) -> None:
            with pytest.raises(gNMIException, match=text):
                client.set(**change, encoding="json_ietf")

        refused("in use by 5A-6B and 9A-6B", update=[sides("9A-6B")])
        refused("invalid cross-connect 1A-99B", update=[sides("1A-99B")])
        refused("cannot have", update=[(sides("1A-2B")[0], {"a_side": "1A", "b_side": "3B"})])
        refused("Invalid elem length", delete=["sonic-db:/CONFIG_DB/localhost"])
        refused("Set RPC does not support STATE_DB", delete=[f"{STATES}/5A-6B"])
        with pytest.raises(gNMIException, match="No valid entry found"):
            client.get(path=[f"{TABLE}/8A-8B"], encoding="json_ietf")
        found = client.get(path=[f"{STATES}/5A-6B/a_side"], encoding="json_ietf")
        assert found["notification"][0]["update"][0]["val"] == "5A"
    with (
        pytest.raises(gNMIException, match="Unauthenticated"),
        program(served["gnmi"], tmp_path, "another"),
    ):
        pass


def test_a_set_is_kept_over_a_restart_and_an_unsaved_command_is_not(
    served: dict[str, Service], tmp_path: Path
) -> None:
    with program(served["gnmi"], tmp_path) as client, shell(served["ssh"]) as run:
        client.set(update=[sides("1A-2B")], encoding="json_ietf")
        run("config ocs cross-connect add 3A-4B")
        run("config reload -y")
        found = client.get(path=[TABLE], encoding="json_ietf")
        assert set(found["notification"][0]["update"][0]["val"]) == {"1A-2B"}


def test_a_client_is_known_by_its_certificate(tmp_path: Path) -> None:
    """Login or certificate: without either no call is carried out."""
    from lightrig.instruments.simulated.protocols.tls_server import ServerCertificate

    authority = ServerCertificate("clients")
    (tmp_path / "clients.pem").write_text(authority.text)
    with bench(tmp_path, f'clients: "{tmp_path}/clients.pem"') as bound:
        switch = bound.switches["ocs"]
        assert isinstance(switch, SonicGnmi)
        (tmp_path / "client.pem").write_text(authority.text + authority.key())
        nobody = replace(switch.endpoint, login=None)
        with pytest.raises(UnreachableError, match="refused the login"):
            SonicGnmi("ocs", nobody, bound.clock, ports=N).circuits()
        known = SonicGnmi("ocs", nobody, bound.clock, ports=N, client=str(tmp_path / "client.pem"))
        assert known.circuits() == frozenset()
        known.close()
