"""Units of Polatis that differ: busy ports, attenuators, older YANG, host keys, https.

Sources of the expectations, unless another is named: PyPolatis, the vendor's wrapper of TL1, whose
command lines are typed here as it sends them (verbs in lower case, ctag 123).
"""

import contextlib
import datetime
import io
import select
import socket
import ssl
import threading

import paramiko
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID
from lxml import etree
from netconf_client import netconf_session
from switch_rig import LOGIN

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import DeniedError, GarbledError, UnreachableError
from lightrig.instruments.simulated.devices.polatis_yang import PolatisYang
from lightrig.instruments.simulated.protocols.netconf_server import NetconfServer
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome, SshServer
from lightrig.instruments.simulated.protocols.tl1_device import Tl1Denial
from lightrig.instruments.switches.polatis import Polatis
from lightrig.instruments.wire.netconf import NetconfReply
from lightrig.instruments.wire.ssh import SshLogin, SshShell
from lightrig.testbeds import Circuit

OLD, NEW = Circuit(1, 17), Circuit(1, 18)


def commands(switch):
    pieces = [line.split(" > ", 1)[-1] for line in switch.wire() if " > " in line]
    return [text.split(":")[0] for text in pieces if text.startswith(("ENT-PATCH", "DLT-PATCH"))]


# ---------------------------------------------------------------------------- busy ports


@pytest.mark.parametrize("scheme", ["tl1", "scpi"])
@pytest.mark.parametrize("rerouting", [True, False])
def test_the_first_move_finds_out_whether_the_switch_moves_ports(virtual, scheme, rerouting):
    switch = virtual(scheme=scheme, rerouting=rerouting).driver()
    switch.change([], [OLD]).done()
    for before, after in ((OLD, NEW), (NEW, OLD)):
        operation = switch.change([before], [after])
        done = operation.done()
        assert operation.sent.latest <= done.earliest
        assert switch.circuits() == {after}
    if scheme == "tl1":
        moves = commands(switch)[1:]
        expected = ["ENT-PATCH", "DLT-PATCH", "ENT-PATCH", "DLT-PATCH", "ENT-PATCH"]
        assert moves == (["ENT-PATCH"] * 2 if rerouting else expected)


def test_a_denied_move_takes_nothing_down_before_its_own_retry(virtual):
    switch = virtual(rerouting=False).driver()
    switch.change([], [OLD, Circuit(2, 19)]).done()
    with pytest.raises(DeniedError, match="SRCN"):
        switch.change([OLD], [Circuit(1, 19)]).done()
    assert Circuit(2, 19) in switch.circuits()


@pytest.mark.parametrize("scheme", ["tl1", "scpi"])
def test_a_move_to_a_port_that_does_not_exist_takes_nothing_down(virtual, scheme):
    switch = virtual(scheme=scheme).driver()
    switch.change([], [OLD]).done()
    with pytest.raises(DeniedError, match="99"):
        switch.change([OLD], [Circuit(1, 99)]).done()
    assert switch.circuits() == {OLD}


def test_connecting_a_port_in_use_moves_it_as_the_vendors_examples_expect(real, type_in):
    line = type_in(real())
    assert line.ask("ent-patch::1,17:123:;\n") == ["M  123 COMPLD"]
    assert line.ask("ent-patch::1,18:123::frcd;\n") == ["M  123 COMPLD"]
    assert line.ask("rtrv-patch:::123:;\n") == ["M  123 COMPLD", '"1,18"']
    assert line.ask("dlt-patch::1:123::frcd;\n") == ["M  123 COMPLD"]
    assert line.ask("ent-patch::1,18:123::adm;\n")[1] == "IPNV"


# -------------------------------------------------------------------- monitors, shutters


def test_monitors_average_over_the_published_times(virtual):
    milliseconds = [10, 20, 50, 100, 200, 500, 1000, 2000]
    rig = virtual()
    switch = rig.driver()
    for step, ms in enumerate(milliseconds, 1):
        rig.peer.box.set_monitor(17, step=step)
        assert rig.matrix.window(17) == ms * 1_000_000
        assert switch.sessions[-1].windows([17]) == {17: ms * 1_000_000}


def test_thresholds_states_and_reverse_monitors(real, type_in):
    line = type_in(real(monitors="both"))
    assert line.ask("rtrv-eqpt::revpmon:123:::parameter=config;\n") == ["M  123 COMPLD"]
    assert line.ask("set-th-pmon::17:123:::type=LOS,mode=cont,low=(-20.0);\n") == ["M  123 COMPLD"]
    answer = line.ask("rtrv-th-pmon::17:123:LOS;\n")[1].strip('"')
    port, data = answer.split(":")
    mode, edge, high, low = data.split(",")
    assert (port, mode, edge, float(high), float(low)) == ("17", "CONT", "LOW", 25.0, -20.0)
    state = line.ask("rtrv-state-pmon::17:123:LOS;\n")[1].strip('"')
    assert state == "17:CONT&TRIGGERED"
    assert line.ask("rtrv-state-pmon::18:123:;\n")[1].strip('"') == "18:OFF"


@pytest.mark.parametrize("code", ["IICM", "PIUI"])
def test_a_unit_that_knows_no_monitors_has_none(virtual, monkeypatch, code):
    """PyPolatis takes IICM for a function that the unit lacks, other codes for errors."""
    rig = virtual()
    switch = rig.driver()

    def execute(request, honest=rig.peer.execute):
        if request.verb == "RTRV-EQPT":
            raise Tl1Denial(code, "Not supported")
        return honest(request)

    monkeypatch.setattr(rig.peer, "execute", execute)
    if code == "IICM":
        assert switch.monitored() == frozenset()
    else:
        with pytest.raises(DeniedError, match=code):
            switch.monitored()


def test_a_programmed_shutter_blocks_and_opens(real, type_in):
    rig = real()
    line = type_in(rig)
    assert line.ask("ent-port-flap::10:123::50,500,1:;\n") == ["M  123 COMPLD"]
    assert line.ask("rtrv-port-flap::10:123::;\n")[1] == '"10:50,500,1"'
    assert line.ask("opr-arc-eqpt::repmgr:123::ind;\n") == ["M  123 COMPLD"]
    assert line.ask("opr-port-flap::10:123:;\n") == ["M  123 COMPLD"]
    seen = set()
    for _ in range(400):
        seen.add(10 in rig.matrix.shut)
        if seen == {True, False} and 10 not in rig.matrix.shut:
            break
        rig.clock.sleep(1_000_000)
    assert seen == {True, False}
    assert line.ask("ent-port-flap::10:123::5,500,1:;\n")[1] == "IPNV"


def test_an_unsupported_command_is_answered_iicm(real, type_in):
    assert type_in(real()).ask("rtrv-coffee:::123:;\n")[:2] == ["M  123 DENY", "IICM"]


# ----------------------------------------------------------------------------- attenuators


@pytest.mark.parametrize(
    ("kind", "mode"), [("relative", "REL"), ("absolute", "ABS"), ("none", None)]
)
def test_attenuation_uses_the_mode_that_the_switch_states(virtual, kind, mode):
    rig = virtual(attenuation=kind, monitors="both")
    switch = rig.driver()
    switch.change([], [Circuit(1, 17)]).done()
    if mode is None:
        with pytest.raises(DeniedError, match="no attenuators"):
            switch.set_attenuation(17, 10)
        return
    switch.set_attenuation(17, 10)
    rig.clock.sleep(500_000_000)
    assert rig.matrix.readings([17])[0] == pytest.approx(-10, abs=0.1)
    assert switch.attenuation(17) == pytest.approx(10)
    assert any(f"MODE={mode}" in line for line in switch.wire())
    switch.set_attenuation(17, 0)
    assert switch.attenuation(17) == 0


def test_absolute_attenuation_without_a_monitor_at_the_ingress_is_refused(virtual):
    switch = virtual(attenuation="absolute", monitors="egress").driver()
    switch.change([], [Circuit(1, 17)]).done()
    with pytest.raises(DeniedError, match="ingress 1 has none"):
        switch.set_attenuation(17, 10)


def test_an_absolute_attenuation_that_somebody_else_set_is_refused(virtual):
    """A level states no attenuation unless the power that entered then is known."""
    rig = virtual(attenuation="absolute", monitors="both")
    switch, theirs = rig.driver(), rig.driver()
    switch.change([], [Circuit(1, 17)]).done()
    switch.set_attenuation(17, 10)
    assert switch.attenuation(17) == pytest.approx(10)
    theirs.set_attenuation(17, 7)
    with pytest.raises(DeniedError, match="egress 17 is in mode ABSOLUTE"):
        switch.attenuation(17)
    assert theirs.attenuation(17) == pytest.approx(7)


def test_relative_mode_is_an_error_on_absolute_variants(real, type_in):
    """PyPolatis: only the VST 200 variant supports relative attenuation."""
    line = type_in(real(attenuation="absolute"))
    config = line.ask("rtrv-eqpt::atten:123:::parameter=config;\n")[1]
    assert config.strip('"').split("=")[1] == "ABSOLUTE"
    assert line.ask("set-port-atten::17:123:::mode=REL,level=(-3.0);\n")[0] == "M  123 DENY"
    assert line.ask("set-port-atten::17:123:::mode=ABS,level=(-3.0);\n") == ["M  123 COMPLD"]
    assert line.ask("set-port-atten::17:123:::mode=FIX;\n") == ["M  123 COMPLD"]
    assert line.ask("rtrv-port-atten::17:123:;\n")[1].strip('"').split(":")[1].startswith("FIX,")


# ----------------------------------------------------------------------- older NETCONF


def test_circuits_of_an_older_unit_are_read_and_changed(virtual):
    rig = virtual(scheme="netconf", revision="2015-09-14", monitors="both")
    switch = rig.driver()
    assert switch.circuits() == frozenset()
    rig.matrix.connect([OLD, Circuit(2, 19)])
    assert switch.circuits() == {OLD, Circuit(2, 19)}
    switch.change([OLD], [NEW]).done()
    assert switch.circuits() == {NEW, Circuit(2, 19)}
    assert switch.shutters([1]) == {1: True}
    assert switch.sessions[-1].powers([1]).dbm == {1: 0.0}


@pytest.mark.parametrize(
    ("monitors", "ports"), [("egress", range(17, 33)), ("both", range(1, 33)), ("none", ())]
)
def test_monitors_of_an_older_unit_are_the_ports_with_a_power(virtual, monitors, ports):
    switch = virtual(scheme="netconf", revision="2015-09-14", monitors=monitors).driver()
    assert switch.monitored() == set(ports)


def test_an_older_unit_answers_as_captured(real):
    """`pairs`, and `<data/>` for no circuits (valarmathip/Terafast, logs of 2016)."""
    rig = real(scheme="netconf", revision="2015-09-14")
    with netconf_session((rig.host, rig.port), LOGIN) as session:
        namespace = "http://www.polatis.com/yang/optical-switch"
        criteria = ("subtree", f'<cross-connects xmlns="{namespace}"/>')
        assert len(session.get_config("running", criteria).data) == 0
        rig.matrix.connect([OLD])
        (circuits,) = session.get_config("running", criteria).data
        (pair,) = circuits
        assert pair.tag == f"{{{namespace}}}pairs"
        assert [leaf.text for leaf in pair] == ["1", "17"]


def test_shutters_of_a_unit_that_configures_them_are_read_and_set(virtual):
    """A program of 2018 reads and sets `ports/port/port-state`; such a unit lists nothing else."""
    rig = virtual(scheme="netconf", revision="2015-09-14", port_leaves="port-state")
    switch = rig.driver()
    assert switch.shutters([1, 17]) == {1: True, 17: True}
    switch.set_shutters([17], is_open=False)
    assert rig.peer.box.is_shut(17)
    assert not rig.peer.box.is_shut(1)
    assert switch.shutters([1, 17]) == {1: True, 17: False}
    switch.set_shutters([17], is_open=True)
    assert not rig.peer.box.is_shut(17)


@pytest.mark.parametrize("state", ["", "PC_TUNING"])
def test_a_shutter_without_a_known_state_is_an_error_and_not_closed(virtual, monkeypatch, state):
    whole = PolatisYang.deprecated_ports

    def ports(self):
        listed = whole(self)
        for leaves in listed:
            leaves["port-status"] = leaves["port-state"] = state
        return listed

    monkeypatch.setattr(PolatisYang, "deprecated_ports", ports)
    switch = virtual(scheme="netconf", revision="2015-09-14").driver()
    with pytest.raises(GarbledError, match="state of the shutter of port 1"):
        switch.shutters([1])


def test_a_qualified_message_id_is_answered(real):
    """As the package `netconf` sends it: nc:message-id, with the namespace of the base."""
    rig = real(scheme="netconf")
    transport = paramiko.Transport((rig.host, rig.port))
    with contextlib.closing(transport):
        transport.connect(username=LOGIN[0], password=LOGIN[1])
        channel = transport.open_session()
        channel.invoke_subsystem("netconf")
        channel.settimeout(20)
        base = "urn:ietf:params:xml:ns:netconf:base:1.0"
        version = "urn:ietf:params:netconf:base:1.0"
        hello = f"<hello xmlns='{base}'><capabilities><capability>{version}</capability>"
        rpc = f"<nc:rpc xmlns:nc='{base}' nc:message-id='7'><nc:get/></nc:rpc>"
        channel.sendall(f"{hello}</capabilities></hello>]]>]]>{rpc}]]>]]>".encode())
        answered = b""
        while answered.count(b"]]>]]>") < 2:
            answered += channel.recv(65536)
    reply = etree.fromstring(answered.split(b"]]>]]>")[1].strip())
    assert reply.get(f"{{{base}}}message-id") == "7"
    assert reply.find(f"{{{base}}}rpc-error") is None
    assert reply.find(f"{{{base}}}data") is not None


def test_circuits_in_an_unknown_form_are_an_error_and_not_none(virtual, monkeypatch):
    rig = virtual(scheme="netconf")
    switch = rig.driver()
    rig.matrix.connect([OLD])
    monkeypatch.setattr(NetconfReply, "children", lambda *_: {"connection"})
    with pytest.raises(GarbledError, match="connection"):
        switch.circuits()


# ------------------------------------------------------------------------------ host keys


def host_key(kind):
    match kind:
        case "rsa":
            return paramiko.RSAKey.generate(2048)
        case "ecdsa":
            return paramiko.ECDSAKey.generate()
    private = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    return paramiko.Ed25519Key(file_obj=io.StringIO(private.decode()))


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_a_switch_with_one_kind_of_host_key_is_reached(real, tmp_path, kind):
    rig = real(scheme="netconf")
    clock = SystemClock()
    server = NetconfServer(rig.peer.wires()["netconf"], clock, LOGIN, host_key=host_key(kind))
    known = tmp_path / "known_hosts"
    known.write_text(server.known_hosts_line() + "\n")
    endpoint = Endpoint("netconf", *server.address, LOGIN, known_hosts=known)
    switch = Polatis("ocs", endpoint, clock)
    try:
        assert switch.identity().manufacturer == "Polatis"
        switch.close()
        known.write_text(server.known_hosts_line().rpartition(" ")[0] + " " + other_key(kind))
        with pytest.raises(UnreachableError, match="another host key"):
            switch.identity()
    finally:
        switch.close()
        server.close()
        clock.close()


def other_key(kind):
    return str(host_key(kind).get_base64())


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_a_server_with_one_kind_of_host_key_is_reached(tmp_path, kind):
    clock = SystemClock()

    def run(argv):
        return ProgramOutcome(" ".join(argv) + "\n")

    server = SshServer("host", clock, LOGIN, None, run, host_key=host_key(kind))
    known = tmp_path / "known_hosts"
    known.write_text(server.known_hosts_line() + "\n")
    host, port = server.address
    shell = SshShell("host", host, clock, port=port, login=SshLogin(*LOGIN, known))
    try:
        assert not shell.lost
    finally:
        shell.close()
        server.close()
        clock.close()


# ---------------------------------------------------------------------------------- https


def certificate(folder, name):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)  # the verifying library compares with it
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / f"{name}.pem", folder / f"{name}.key"
    public.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return public, private


@contextlib.contextmanager
def tls_in_front_of(host, port, files):
    """Forward connections to `host:port`, without TLS; yield the port that speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    listener = socket.create_server(("127.0.0.1", 0))

    def connect(client):
        with client, socket.create_connection((host, port)) as inner, contextlib.suppress(OSError):
            while True:
                # In one thread: an SSLSocket must not be read and written at the same time.
                ready = [client] if client.pending() else select.select([client, inner], [], [])[0]
                for source in ready:
                    data = source.recv(4096)
                    if not data:
                        return
                    (inner if source is client else client).sendall(data)

    def serve():
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            try:
                client = context.wrap_socket(raw, server_side=True)
            except OSError:
                continue
            threading.Thread(target=connect, args=(client,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_restconf_over_https_with_a_verified_certificate(real, tmp_path):
    rig = real(scheme="restconf")
    files = certificate(tmp_path, "localhost")
    with tls_in_front_of(rig.host, rig.port, files) as port:
        endpoint = Endpoint("restconf", "localhost", port, LOGIN)
        trusting = Polatis("ocs", endpoint, rig.clock, tls=True, certificates=str(files[0]))
        trusting.change([], [OLD]).done()
        assert trusting.circuits() == {OLD}
        trusting.close()
        for options in ({}, {"certificates": str(certificate(tmp_path, "elsewhere")[0])}):
            careful = Polatis("ocs", endpoint, rig.clock, tls=True, **options)
            with pytest.raises(UnreachableError, match="certificate that is not trusted"):
                careful.circuits()
            careful.close()


def test_https_to_a_unit_that_speaks_plain_http_is_an_error(real):
    rig = real(scheme="restconf")
    switch = Polatis("ocs", Endpoint("restconf", rig.host, rig.port, LOGIN), rig.clock, tls=True)
    with pytest.raises(UnreachableError, match="began no TLS"):
        switch.circuits()
    switch.close()


# ----------------------------------------------------------------------------------- SCPI


def test_free_ports_have_an_empty_partner_and_the_boot_mode_is_reported(real):
    """wllzhk/Polatis_OST_Controller and a driver that quotes the manual (boot modes)."""
    rig = real(scheme="scpi")
    with socket.create_connection((rig.host, rig.port), timeout=30) as line:

        def query(text):
            line.sendall(text + b"\n")
            return line.recv(1000)

        assert query(b":oxc:swit:conn:port? 3") == b'""\r\n'
        line.sendall(b":oxc:boot:mode DARK\n")
        assert query(b":oxc:boot:mode?") == b"DARK\r\n"
