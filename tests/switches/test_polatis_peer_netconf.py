"""The simulated Polatis as a stranger's ncclient and a person with ssh -s netconf see it."""

import re

import paramiko
import pytest
from lxml import etree
from ncclient.operations import RaiseMode
from ncclient.operations.rpc import RPCError
from netconf_client import netconf_session
from switch_rig import LOGIN

OPSW = "http://www.polatis.com/yang/optical-switch"
NC = "urn:ietf:params:xml:ns:netconf:base:1.0"


@pytest.fixture
def rig(real):
    return real(scheme="netconf", monitors="both")


@pytest.fixture
def stranger(rig):
    """A session as ncclient's README opens one."""
    with netconf_session((rig.host, rig.port), LOGIN) as session:
        yield session


def config(inner):
    return f'<nc:config xmlns:nc="{NC}">{inner}</nc:config>'


def circuits(*pairs, operation=""):
    attribute = f' nc:operation="{operation}"' if operation else ""
    listed = "".join(
        f"<pair{attribute}><ingress>{i}</ingress>{f'<egress>{e}</egress>' if e else ''}</pair>"
        for i, e in pairs
    )
    return config(f'<cross-connects xmlns="{OPSW}">{listed}</cross-connects>')


def edit(session, *pairs, operation=""):
    return session.edit_config(circuits(*pairs, operation=operation), target="running")


def pairs_of(reply):
    return {
        (int(pair.findtext("{*}ingress")), int(pair.findtext("{*}egress")))
        for pair in reply.data_ele.iter(f"{{{OPSW}}}pair")
    }


def held(session):
    return pairs_of(session.get_config("running", ("subtree", f'<cross-connects xmlns="{OPSW}"/>')))


def test_the_hello_names_the_module_and_its_revision(stranger):
    capabilities = set(stranger.server_capabilities)
    assert f"{OPSW}?module=optical-switch&revision=2018-03-22" in capabilities
    assert "urn:ietf:params:netconf:base:1.0" in capabilities
    assert "urn:ietf:params:netconf:base:1.1" in capabilities
    assert ":writable-running" in stranger.server_capabilities
    assert stranger.session_id == "1"


def test_identity_and_size(stranger):
    criteria = f'<opsw:product-information xmlns:opsw="{OPSW}"/>'
    data = stranger.get(filter=("subtree", criteria)).data_ele
    assert data.findtext(".//{*}manufacturer") == "Polatis"
    assert data.findtext(".//{*}model-name") == "N-VST-16x16-LU1-DMHNV-801"
    assert data.findtext(".//{*}serial-number") == "SIM-ocs"
    assert data.findtext(".//{*}software-version") == "6.7.3.9"
    assert len(data) == 1


def test_circuits_are_merged_and_deleted(stranger, rig):
    edit(stranger, (1, 17), (2, 18))
    assert held(stranger) == {(1, 17), (2, 18)}
    edit(stranger, (1, 18), (2, 17))  # swapped in one go
    assert held(stranger) == {(1, 18), (2, 17)}
    edit(stranger, (1, None), operation="delete")
    assert held(stranger) == {(2, 17)}
    edit(stranger, (5, None), (2, None), operation="remove")
    assert rig.matrix.egress_of == {}
    edit(stranger, (3, 20), operation="create")
    edit(stranger, (3, 21), operation="replace")
    assert rig.matrix.egress_of == {3: 21}


def test_an_operation_without_its_namespace_is_accepted(stranger, rig):
    edit(stranger, (1, 17))
    stranger.edit_config(
        f'<config><cross-connects xmlns="{OPSW}"><pair operation="delete"><ingress> 1 </ingress>'
        "</pair></cross-connects></config>",
        target="running",
    )
    assert rig.matrix.egress_of == {}


def test_the_whole_list_is_replaced_or_deleted(stranger, rig):
    edit(stranger, (1, 17), (2, 18))
    whole = '<cross-connects xmlns="{}" nc:operation="{}">{}</cross-connects>'
    pair = "<pair><ingress>3</ingress><egress>17</egress></pair>"
    stranger.edit_config(config(whole.format(OPSW, "replace", pair)), target="running")
    assert rig.matrix.egress_of == {3: 17}
    stranger.edit_config(config(whole.format(OPSW, "delete", "")), target="running")
    assert rig.matrix.egress_of == {}


REFUSALS = {
    "no such port": (((1, 33),), "", "invalid-value", "Invalid OXC port: 33"),
    "no such ingress": (((17, 18),), "", "invalid-value", "Invalid OXC port: 17"),
    "in use": (((3, 17),), "", "in-use", "Port in use: 17"),
    "made already": (((1, 17),), "create", "data-exists", "Port in use: 1"),
    "not there": (((9, None),), "delete", "data-missing", "No connection at 9"),
    "no egress": (((9, None),), "", "missing-element", "egress is mandatory"),
    "no operation": (((9, None),), "tear-down", "bad-attribute", "no operation tear-down"),
}


@pytest.mark.parametrize(("pairs", "operation", "tag", "message"), REFUSALS.values(), ids=REFUSALS)
def test_a_refused_edit_changes_nothing(stranger, rig, pairs, operation, tag, message):
    edit(stranger, (1, 17))
    with pytest.raises(RPCError, match=message) as raised:
        edit(stranger, *pairs, *([] if operation else [(4, 20)]), operation=operation)
    assert raised.value.tag == tag
    assert (raised.value.type, raised.value.severity) in {
        ("application", "error"),
        ("protocol", "error"),
    }
    assert rig.matrix.egress_of == {1: 17}


def test_filters_select(stranger):
    edit(stranger, (1, 17), (2, 18), (3, 19))

    def selected(inner):
        criteria = f'<cross-connects xmlns="{OPSW}">{inner}</cross-connects>'
        return stranger.get(filter=("subtree", criteria)).data_ele

    one = selected("<pair><ingress>2</ingress></pair>")
    assert etree.tostring(one, method="text") == b"218"
    two = selected("<pair><ingress>2</ingress></pair><pair><ingress>3</ingress></pair>")
    assert len(two.findall(".//{*}pair")) == 2
    only_egress = selected("<pair><egress/></pair>")
    assert [leaf.text for leaf in only_egress.iter(f"{{{OPSW}}}egress")] == ["17", "18", "19"]
    assert not list(only_egress.iter(f"{{{OPSW}}}ingress"))
    with_egress = selected("<pair><ingress>2</ingress><egress/></pair>")
    assert etree.tostring(with_egress, method="text") == b"218"
    by_egress = selected("<pair><egress>19</egress></pair>")
    assert etree.tostring(by_egress, method="text") == b"319"
    assert len(selected("<pair><ingress>9</ingress></pair>")) == 0
    assert len(stranger.get(filter=("subtree", '<cross-connects xmlns="urn:x"/>')).data_ele) == 0
    anything = stranger.get().data_ele
    names = {etree.QName(each).localname for each in stranger.get_config("running").data_ele}
    writable = {"port-config", "cross-connects", "opm-config", "opm-alarm-config", "voa"}
    assert names == writable | {"ports"}
    assert {etree.QName(each).localname for each in anything} == names | {
        "product-information",
        "opm-power",
    }


def test_power_and_monitors(stranger):
    edit(stranger, (1, 17))
    criteria = (
        f'<opm-power xmlns="{OPSW}"><port><port-id>17</port-id><power/></port>'
        "<port><port-id>1</port-id><power/></port></opm-power>"
    )

    def power():
        found = stranger.get(filter=("subtree", criteria)).data_ele.iter(f"{{{OPSW}}}port")
        return {int(p.findtext("{*}port-id")): float(p.findtext("{*}power")) for p in found}

    while power()[17] < -5:
        pass
    assert power()[1] == 0.0
    port = "<port><port-id>17</port-id><wavelength>1400.0</wavelength><offset>1.0</offset>"
    port += "<averaging-time>8</averaging-time></port>"
    changed = config(f'<opm-config xmlns="{OPSW}">{port}</opm-config>')
    stranger.edit_config(changed, target="running")
    wanted = f'<opm-config xmlns="{OPSW}"><port><port-id>17</port-id></port></opm-config>'
    told = stranger.get_config("running", ("subtree", wanted)).data_ele
    leaves = [leaf.text for leaf in next(told.iter(f"{{{OPSW}}}port"))]
    assert leaves == ["17", "1400.00", "1.00", "8"]
    with pytest.raises(RPCError, match="cannot be configured"):
        stranger.edit_config(config(f'<opm-power xmlns="{OPSW}"/>'), target="running")


def test_shutters_by_the_modules_own_rpc(stranger, rig):
    shut = etree.fromstring(
        f'<port-set-state xmlns="{OPSW}"><port-disab>1</port-disab><port-disab>17</port-disab>'
        "<port-enab>2</port-enab></port-set-state>"
    )
    assert stranger.dispatch(shut).ok
    assert rig.matrix.shut == {1, 17}
    criteria = f'<port-config xmlns="{OPSW}"><port><port-id>1</port-id></port></port-config>'
    told = stranger.get(filter=("subtree", criteria)).data_ele
    assert told.findtext(".//{*}status") == "DISABLED"
    with pytest.raises(RPCError, match="Invalid OXC port: 99"):
        stranger.dispatch(
            etree.fromstring(
                f'<port-set-state xmlns="{OPSW}"><port-enab>99</port-enab></port-set-state>'
            )
        )


def test_labels_and_attenuators(stranger):
    label = "<port><port-id>1</port-id><label>T</label><peer-port/></port>"
    voa = "<port><port-id>17</port-id><atten-mode>VOA_MODE_ABSOLUTE</atten-mode>"
    stranger.edit_config(
        config(
            f'<port-config xmlns="{OPSW}">{label}</port-config>'
            f'<voa xmlns="{OPSW}">{voa}<atten-level>-10.00</atten-level></port></voa>'
        ),
        target="running",
    )
    told = stranger.get_config("running").data_ele
    assert told.findtext(".//{*}label") == "T"
    modes = [each.text for each in told.iter(f"{{{OPSW}}}atten-mode")]
    assert modes == ["VOA_MODE_ABSOLUTE", *["VOA_MODE_NONE"] * 15]
    with pytest.raises(RPCError, match="no attenuation mode"):
        stranger.edit_config(
            config(
                f'<voa xmlns="{OPSW}"><port><port-id>17</port-id><atten-mode>LOUD</atten-mode>'
                "</port></voa>"
            ),
            target="running",
        )


def test_unsupported_operations_are_errors(stranger):
    for ask, tag in (
        (lambda: stranger.get_config("candidate"), "invalid-value"),
        (lambda: stranger.edit_config(circuits((1, 17)), target="startup"), "invalid-value"),
        (lambda: stranger.dispatch(etree.fromstring("<make-coffee/>")), "operation-not-supported"),
        (lambda: stranger.get(filter=("xpath", "/pair")), "operation-not-supported"),
        (
            lambda: stranger.edit_config(config(f'<aps xmlns="{OPSW}"/>'), target="running"),
            "unknown-element",
        ),
    ):
        with pytest.raises(RPCError) as raised:
            ask()
        assert raised.value.tag == tag
    with stranger.locked("running"):
        edit(stranger, (1, 17))


def test_openflow_errors_in_complete_replies(real):
    rig = real(scheme="netconf", openflow_errors=True)
    with netconf_session((rig.host, rig.port), LOGIN) as session:
        with pytest.raises(RPCError, match="OpenFlow"):
            session.get()
        session.raise_mode = RaiseMode.NONE
        assert "N-VST-16x16" in session.get().xml


# ---------------------------------------------------------------------------- by hand


class Typed:
    """An SSH channel to the subsystem, and what comes over it."""

    def __init__(self, rig):
        self.transport = paramiko.Transport((rig.host, rig.port))
        self.transport.connect(username=LOGIN[0], password=LOGIN[1])
        self.channel = self.transport.open_session()
        self.channel.settimeout(30)
        self.channel.invoke_subsystem("netconf")

    def until(self, end):
        data = b""
        while not data.endswith(end):
            piece = self.channel.recv(4096)
            assert piece, f"the switch hung up after {data!r}"
            data += piece
        return data

    def greet(self, *versions):
        hello = self.until(b"]]>]]>")
        capabilities = "".join(
            f"<capability>urn:ietf:params:netconf:base:{version}</capability>"
            for version in versions
        )
        self.channel.sendall(
            f'<hello xmlns="{NC}"><capabilities>{capabilities}</capabilities></hello>]]>]]>'
        )
        return hello


@pytest.fixture
def typed(rig):
    made = Typed(rig)
    yield made
    made.transport.close()


RPC = (
    f'<rpc message-id="{{}}" xmlns="{NC}"><get><filter type="subtree">'
    f'<product-information xmlns="{OPSW}"/></filter></get></rpc>'
)


def test_framing_as_before_1_1(typed):
    assert b"<session-id>1</session-id>" in typed.greet("1.0")
    typed.channel.sendall(RPC.format("a-1") + "]]>]]>" + RPC.format("a-2") + "]]>]]>")
    both = b""
    while both.count(b"]]>]]>") < 2:
        both += typed.until(b"]]>]]>")
    assert both.index(b'message-id="a-1"') < both.index(b'message-id="a-2"')
    assert both.count(b"SIM-ocs") == 2


def test_chunks(typed):
    typed.greet("1.0", "1.1")
    rpc = RPC.format("7").encode()
    pieces = [rpc[:1], rpc[1:40], rpc[40:]]
    for byte in b"".join(b"\n#%d\n%s" % (len(piece), piece) for piece in pieces) + b"\n##\n":
        typed.channel.sendall(bytes([byte]))
    reply = typed.until(b"\n##\n")
    size, body = re.fullmatch(rb"\n#(\d+)\n(.*)\n##\n", reply, re.DOTALL).groups()
    assert int(size) == len(body)
    assert etree.fromstring(body).get("message-id") == "7"


def test_bad_rpcs_are_answered_with_errors(typed):
    typed.greet("1.1")
    for text, tag in (
        ("<rpc", b"malformed-message"),
        ("<nothing/>", b"unknown-element"),
        (f'<rpc xmlns="{NC}"><get/></rpc>', b"missing-attribute"),
        (f'<rpc xmlns="{NC}" message-id="1"/>', b"missing-element"),
    ):
        typed.channel.sendall(f"\n#{len(text)}\n{text}\n##\n")
        assert tag in typed.until(b"\n##\n")


def test_a_framing_error_ends_the_session(typed):
    typed.greet("1.1")
    typed.channel.sendall("this is not framed at all, is it")
    assert typed.channel.recv(100) == b""


def test_a_client_without_a_common_version_is_disconnected(typed):
    typed.greet("2.0")
    assert typed.channel.recv(100) == b""


def test_close_session_replies_before_it_closes(typed):
    typed.greet("1.0")
    typed.channel.sendall(f'<rpc message-id="1" xmlns="{NC}"><close-session/></rpc>]]>]]>')
    assert b"<ok/>" in typed.until(b"]]>]]>")
    assert typed.channel.recv(100) == b""


def test_only_the_right_password_and_the_right_subsystem(rig):
    transport = paramiko.Transport((rig.host, rig.port))
    with pytest.raises(paramiko.AuthenticationException):
        transport.connect(username=LOGIN[0], password="guess")
    transport.close()
    transport = paramiko.Transport((rig.host, rig.port))
    transport.connect(username=LOGIN[0], password=LOGIN[1])
    channel = transport.open_session()
    with pytest.raises(paramiko.SSHException):
        channel.invoke_subsystem("sftp")
    transport.close()
