"""SONiC over gNMI: the driver against the simulated switch, in virtual time.

Sources of the expectations: SONiC OCS High Level Design, revision 0.5 (tables, one transaction);
sonic-gnmi, test_gnmi_configdb (paths); sonic-mgmt, `gnmi_path_to_proto`. Programs of other people
are in test_gnmi_clients.
"""

import socket
import ssl
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sonic_rack import N, bench, let_states_be, refuse_subscriptions
from switch_rig import LOGIN

from lightrig.harness.bench import Bench
from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    NoReplyError,
    NotDoneError,
    UnreachableError,
)
from lightrig.instruments.simulated.devices.sonic_switch import SonicSwitch
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.listeners import serve
from lightrig.instruments.simulated.protocols.tls_server import ServerCertificate, TlsConnection
from lightrig.instruments.simulated.registry import NoSimulatedDeviceError
from lightrig.instruments.switches.sonic_ocs.gnmi import SonicGnmi
from lightrig.instruments.wire import gnmi
from lightrig.instruments.wire.tcp import TcpConnection
from lightrig.instruments.wire.tls import TlsSocket
from lightrig.instruments.wire.trace import record
from lightrig.testbeds import Circuit
from lightrig.testbeds.parts import WireTimeouts

pytest.importorskip("pygnmi", reason="the extra gnmi is not installed")
pytest.importorskip("h2", reason="the extra gnmi is not installed")

MS = 1_000_000


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
        assert bound.world is not None
        device = bound.world.devices["ocs"][0]
        assert isinstance(device, SonicSwitch)
        assert device.table("CONFIG_DB", "OCS_CROSS_CONNECT").keys() == {"1A-2B", "5A-6B"}


def test_the_answer_to_another_path_is_refused(tmp_path: Path) -> None:
    """Both tables are keyed by circuits: the states would be taken for the configuration."""
    with bench(tmp_path, 'stale: "5A-6B"') as bound:
        switch = bound.switches["ocs"]
        switch.circuits()
        assert bound.world is not None
        bound.world.injectors["ocs"].fault = "previous"
        with pytest.raises(GarbledError, match="no answer to CONFIG_DB"):
            switch.change(switch.circuits(), [])


def test_circuits_that_only_the_hardware_has_are_removed(tmp_path: Path) -> None:
    with bench(tmp_path, 'stale: "5A-6B,7A-8B"') as bound:
        switch = bound.switches["ocs"]
        assert switch.circuits() == {Circuit(5, N + 6), Circuit(7, N + 8)}
        switch.change([Circuit(5, N + 6)], [Circuit(5, N + 7)]).done()
        assert switch.circuits() == {Circuit(5, N + 7), Circuit(7, N + 8)}
        switch.change([Circuit(7, N + 8)], []).done()
        assert switch.circuits() == {Circuit(5, N + 7)}


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
    refuse_subscriptions(monkeypatch)
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        done = switch.change([], [Circuit(2, N + 3)]).done()
        assert done.earliest <= tuned_since(bound, 0) <= done.latest
        assert done.latest - done.earliest <= 50 * MS
        assert switch.circuits() == {Circuit(2, N + 3)}


@pytest.mark.parametrize("side", ["a", "b"])
def test_both_sides_have_to_be_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    let_states_be(
        monkeypatch,
        lambda _, found: {id_: {**e, f"{side}_side_status": "tuning"} for id_, e in found.items()},
    )
    with bench(tmp_path) as bound:
        operation = bound.switches["ocs"].change([], [Circuit(2, N + 3)])
        with pytest.raises(NotDoneError, match=r"2A-3B .*tuning"):
            operation.done()


def test_a_denial_of_another_kind_is_no_empty_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is the table of that name in another release read in its place."""
    from lightrig.instruments.simulated.devices import sonic_gnmi

    permission_denied = 7  # gRPC, statuscodes.md

    def refuse(self: Any, names: list[str]) -> None:
        raise sonic_gnmi.RefusedCallError(permission_denied, "not for you")

    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        switch.change([], [Circuit(1, N + 1)]).done()
        read = sonic_gnmi.SonicGnmi.read
        monkeypatch.setattr(
            sonic_gnmi.SonicGnmi,
            "read",
            lambda self, names: (
                refuse(self, names)
                if names[1:] == ["OCS_CROSS_CONNECT"]
                else read(self, [names[0], names[1].removesuffix("_TABLE")])
            ),
        )
        with pytest.raises(DeniedError, match="PERMISSION_DENIED not for you"):
            switch.circuits()


@pytest.mark.parametrize("state", ["failed", "blocked"])
def test_a_circuit_that_does_not_tune_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    sides = {"a_side_status": state, "b_side_status": state}
    let_states_be(monkeypatch, lambda _, found: {id_: {**e, **sides} for id_, e in found.items()})
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
        with pytest.raises(DeniedError, match=f"it has no port {N + 1}B"):
            switch.set_shutters([1, 2 * N + 1], is_open=False)
        with pytest.raises(DeniedError, match=f"'{N + 1}B' not found\n  meaning .* port"):
            switch.set_label(2 * N + 1, "rack 4")
        assert switch.shutters([1]) == {1: True}


def test_a_label_and_a_shutter_leave_each_other_alone(tmp_path: Path) -> None:
    """An update of a whole row would replace it: RFC 6902, 4.1; sonic-gnmi, mixed_db_client.go."""
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        assert isinstance(switch, SonicGnmi)
        switch.set_label(2, "rack 4")
        switch.set_shutters([2, N + 3], is_open=False)
        assert switch.labels()[2] == "rack 4"
        switch.set_label(2, "rack 5")
        assert switch.shutters([2, 3, N + 3]) == {2: False, 3: True, N + 3: False}
        assert (switch.labels()[2], switch.labels()[3]) == ("rack 5", "")
        switch.set_label(2, "")
        assert switch.labels()[2] == ""
        switch.set_shutters([N + 3], is_open=True)
        assert switch.shutters([2, N + 3]) == {2: False, N + 3: True}


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
        bound.clock.sleep(1000 * MS)  # nothing is left in flight
        assert right.circuits() == frozenset()
        for driver in (wrong, stranger):
            driver.close()


def test_a_handshake_takes_none_of_the_stated_time(tmp_path: Path) -> None:
    """Both of its ends are this process: how long it takes is no property of the switch."""
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        assert isinstance(switch, SonicGnmi)
        short = WireTimeouts(connect_ns=1000)
        hurried = SonicGnmi("ocs", replace(switch.endpoint, timeouts=short), bound.clock, ports=N)
        assert hurried.circuits() == frozenset()
        hurried.close()


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
        bound.world.injectors["ocs"].fault = fault
        with pytest.raises(FAULTS[fault]) as raised:
            operation.done()
        bound.world.injectors["ocs"].stop()
        assert str(raised.value).startswith("ocs ")
        assert "last on the wire" in str(raised.value)
        assert raised.value.trace
        assert switch.circuits() == {Circuit(1, N + 2)}


@pytest.mark.parametrize("fault", ["closes", "resets", "cuts"])
def test_a_reading_is_repeated_once_where_the_connection_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    """A Set is not: it may have been carried out."""
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        switch.change([], [Circuit(3, N + 2)]).done()
        assert bound.world is not None
        injector = bound.world.injectors["ocs"]
        send, left = injector.send, [1]

        def sometimes(connection: Any, data: bytes) -> None:
            send(connection, data)
            if injector.injected and injector.fault != "none":
                left[0] -= 1
                if not left[0]:
                    injector.stop()

        monkeypatch.setattr(injector, "send", sometimes)
        injector.fault = fault
        assert switch.circuits() == {Circuit(3, N + 2)}
        assert injector.injected == 1
        injector.fault, left[0] = fault, 0
        with pytest.raises(DisconnectedError) as raised:
            switch.circuits()
        assert "".join(raised.value.trace).count("once more") == 1


def test_without_the_extra_the_address_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pygnmi.spec.v080", None)
        with pytest.raises(gnmi.MissingExtraError, match=r"lightrig\[gnmi\]"):
            gnmi.GnmiSession("ocs", "x", 1, None, gnmi.GnmiCredentials(None))  # type: ignore[arg-type]
    with bench(tmp_path) as bound:
        assert bound.world is not None
        device, _ = bound.world.devices["ocs"]
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        server = DeviceServer(bound.clock)
        with pytest.raises(NoSimulatedDeviceError, match=r"lightrig\[gnmi\]"):
            serve("ocs", device, "gnmi", server, LOGIN)
        server.close()


def test_a_client_is_known_by_its_certificate(tmp_path: Path) -> None:
    """Login or certificate: without either, or with one that nobody signed, no call is made."""
    authority, stranger = ServerCertificate("clients"), ServerCertificate("clients")
    (tmp_path / "clients.pem").write_text(authority.text)
    for name, made in (("known", authority), ("stranger", stranger)):
        (tmp_path / f"{name}.pem").write_text(made.text + made.key())
    (tmp_path / "keyless.pem").write_text(authority.text)
    with bench(tmp_path, f'clients: "{tmp_path}/clients.pem"') as bound:
        switch = bound.switches["ocs"]
        assert isinstance(switch, SonicGnmi)
        login = switch.endpoint
        nobody = replace(login, login=None)

        def client(name: str, endpoint: Any = nobody) -> SonicGnmi:
            file = str(tmp_path / f"{name}.pem")
            return SonicGnmi("ocs", endpoint, bound.clock, ports=N, client=file)

        with pytest.raises(UnreachableError, match="refused the login"):
            SonicGnmi("ocs", nobody, bound.clock, ports=N).circuits()
        for endpoint in (nobody, login):  # a right login does not save a wrong certificate
            with pytest.raises((UnreachableError, DisconnectedError), match="ocs closed the conn"):
                client("stranger", endpoint).circuits()
        for name in ("keyless", "absent"):
            with pytest.raises(UnreachableError, match="is the file of certificates right"):
                client(name).circuits()
        bound.clock.sleep(1000 * MS)  # nothing is left in flight
        known = client("known")
        assert known.circuits() == frozenset()
        known.close()


def test_time_waits_for_the_refusal_of_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By TLS 1.3 a client may write before it hears of one (RFC 8446, section 4.4.4).

    Here the server looks at the certificate when the client has written, and the client reads when
    the server has handled all that there was, the end included.
    """
    authority, stranger = ServerCertificate("clients"), ServerCertificate("clients")
    (tmp_path / "clients.pem").write_text(authority.text)
    (tmp_path / "stranger.pem").write_text(stranger.text + stranger.key())
    read, write, take = TlsSocket.recv, TcpConnection.send, TlsConnection.received
    written = threading.Event()
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE

    def note_written(connection: TcpConnection, data: bytes) -> None:
        write(connection, data)
        written.set()

    def take_late(connection: TlsConnection, data: bytes) -> None:
        if not data.startswith(b"\x16"):  # all that follows the first message of a handshake
            written.wait(30)
        take(connection, data)

    def read_late(encrypted: TlsSocket, size: int) -> bytes:
        for _ in range(2):
            with (
                socket.create_connection(encrypted.getpeername(), timeout=30) as line,
                unverified.wrap_socket(line) as other,
            ):
                other.recv(1)  # settings of HTTP/2: one thread serves all connections in turn
        return read(encrypted, size)

    with bench(tmp_path, f'clients: "{tmp_path}/clients.pem"') as bound:
        switch = bound.switches["ocs"]
        assert isinstance(switch, SonicGnmi)
        nobody, file = replace(switch.endpoint, login=None), str(tmp_path / "stranger.pem")
        refused = SonicGnmi("ocs", nobody, bound.clock, ports=N, client=file)
        began = bound.clock.now()
        with monkeypatch.context() as late:
            late.setattr(TcpConnection, "send", note_written)
            late.setattr(TlsConnection, "received", take_late)
            late.setattr(TlsSocket, "recv", read_late)
            with pytest.raises((UnreachableError, DisconnectedError), match="ocs closed the conn"):
                refused.circuits()
        assert bound.clock.now() - began < 1000 * MS
        assert switch.circuits() == frozenset()


def test_without_a_file_of_clients_a_certificate_stands_for_no_login(tmp_path: Path) -> None:
    made = ServerCertificate("clients")
    (tmp_path / "client.pem").write_text(made.text + made.key())
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        assert isinstance(switch, SonicGnmi)
        nobody = replace(switch.endpoint, login=None)
        client = SonicGnmi("ocs", nobody, bound.clock, ports=N, client=str(tmp_path / "client.pem"))
        with pytest.raises(UnreachableError, match="refused the login"):
            client.circuits()


@pytest.mark.parametrize("moved", [1, 5])
def test_polling_and_a_subscription_see_one_truth_at_their_own_widths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """Both contain the moment of the world; a polled one is as wide as a round of Gets.

    Either way one Get shows that what was removed is gone.
    """
    before = {Circuit(i, N + i) for i in range(1, moved + 1)}
    after = {Circuit(i, N + i + 7) for i in range(1, moved + 1)}
    widths, gets, made = {}, {}, {}
    for how in ("subscription", "polling"):
        folder = tmp_path / how
        folder.mkdir()
        if how == "polling":
            refuse_subscriptions(monkeypatch)
        with bench(folder) as bound:
            switch = bound.switches["ocs"]
            switch.change([], before).done()
            operation = switch.change(before, after)
            done = operation.done()
            tuned = tuned_since(bound, operation.sent.latest)
            assert done.earliest <= tuned <= done.latest
            made[how] = tuned - operation.sent.earliest
            widths[how] = done.latest - done.earliest
            stamps = [float(line.split()[0]) for line in sent(bound, "Get")]
            gets[how] = sum(stamp * 1e9 > operation.sent.latest for stamp in stamps)
            assert switch.circuits() == after
    assert gets["subscription"] == 1 < gets["polling"]
    assert widths["subscription"] < widths["polling"] <= 50 * MS


def test_a_server_that_ends_a_connection_after_the_handshake_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of TLS 1.3 does, which verifies a client's certificate then (RFC 8446, appendix E)."""

    def ended(*_: Any) -> None:
        time.sleep(0.1)  # until the reader has the settings of the other end
        raise OSError("TLS/SSL connection has been closed (EOF)")

    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        switch.close()
        with monkeypatch.context() as patch:
            patch.setattr("lightrig.instruments.wire.grpc_connection.TcpConnection.send", ended)
            with pytest.raises(UnreachableError, match="when TLS had begun"):
                switch.circuits()
        assert switch.circuits() == frozenset()
