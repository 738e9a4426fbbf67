"""With any fault of a NETCONF server: the right error in time, and the next rpc works."""

import contextlib
import socket
import threading
import time

import pytest
from real_time import LONG, over_soon, until
from scripted_netconf import (
    HELLO,
    LOGIN,
    NC,
    ScriptedServer,
    scripted_netconf,
    served_netconf,
)
from unused_ports import unused_ports

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
    UnreachableError,
)
from lightrig.instruments.simulated.faults.wire_faults import FaultInjector
from lightrig.instruments.simulated.protocols.netconf_server import NetconfService
from lightrig.instruments.wire import netconf, netconf_ssh
from lightrig.instruments.wire.netconf import NetconfSession
from lightrig.instruments.wire.netconf_ssh import NcSession, open_session
from lightrig.testbeds.parts import WireTimeouts

MS = 1_000_000
SHORT = 80 * MS
CRITERIA = '<box xmlns="urn:box"/>'


@pytest.fixture
def against(system_clock, tmp_path):
    """Open a session with a scripted server; rpcs without a script get the right reply."""
    with contextlib.ExitStack() as stack:

        def make(*scripts, **options):
            def script(call):
                if call.number <= len(scripts):
                    scripts[call.number - 1](call)
                else:
                    call.data("next")

            return stack.enter_context(scripted_netconf(system_clock, tmp_path, script, **options))

        yield make


def ends(session):
    """Return how many times the switch has closed the session."""
    return sum("closed" in piece.text for piece in session.trace.pieces())


def leaf(session, timeout=LONG):
    return session.get(CRITERIA, timeout).leaves("box")["leaf"]


def assert_names(error: InstrumentError, *details: str) -> None:
    """Assert that the error names instrument, command and the last lines of the trace."""
    text = str(error)
    assert error.instrument == "ocs"
    assert text.startswith("ocs ")
    assert "<box" in error.command
    assert error.command in text
    assert any("<box" in line for line in error.trace)
    assert all(line in text for line in error.trace)
    for detail in details:
        assert detail in text


def split(call, *cuts):
    """Send one reply in several chunks, each in several pieces."""
    inner = '<data xmlns=""><box><leaf>grüße</leaf></box></data>'
    data = f'<rpc-reply xmlns="{NC}" message-id="{call.id}">{inner}</rpc-reply>'.encode()
    chunks = [data[a:b] for a, b in zip((0, *cuts), (*cuts, len(data)), strict=True)]
    for byte in b"".join(b"\n#%d\n%s" % (len(chunk), chunk) for chunk in chunks) + b"\n##\n":
        call.raw(bytes([byte]))


SUCCESSES = {
    "plain": lambda call: call.data("grüße"),
    "in chunks and pieces": lambda call: split(call, 1, 30, 90),
    # `ü` is two octets, and chunks are counted in octets (RFC 6242, 4.2).
    "in chunks that end in a character": lambda call: split(call, *range(90, 110)),
    "a notification before": lambda call: (
        call.message('<notification xmlns="urn:n"><eventTime>now</eventTime></notification>'),
        call.data("grüße"),
    ),
    "another's reply before": lambda call: (call.reply(tag="777"), call.data("grüße")),
    "twice": lambda call: (call.data("grüße"), call.data("nonsense")),
    "slow": lambda call: (time.sleep(0.1), call.data("grüße")),
    "with a warning": lambda call: call.reply(
        "<data><box><leaf>grüße</leaf></box></data><rpc-error><error-severity>warning"
        "</error-severity><error-message>hot</error-message></rpc-error>"
    ),
}


@pytest.mark.parametrize("fault", SUCCESSES.values(), ids=SUCCESSES)
def test_reply_is_found(against, fault):
    session, server = against(fault)
    assert leaf(session) == "grüße"
    assert leaf(session) == "next"
    assert server.sessions == 1


def test_notifications_are_stored_as_reports(against):
    session, _ = against(SUCCESSES["a notification before"])
    leaf(session)
    assert len(session.reports) == 1
    assert "eventTime" in session.reports[0]


def test_rpc_error_keeps_tag_and_message(against):
    session, _ = against(
        lambda call: call.error("in-use", f"by {LOGIN[1]}"), meanings={"in-use": ("busy", "wait")}
    )
    with pytest.raises(DeniedError) as raised:
        leaf(session)
    assert (raised.value.code, raised.value.text) == ("in-use", "by ***")
    assert_names(raised.value, "answered  in-use by ***", "meaning   busy", "try       wait")
    assert leaf(session) == "next"


OPENFLOW = (
    "<rpc-error><error-type>application</error-type><error-tag>operation-failed</error-tag>"
    "<error-severity>error</error-severity><error-message>{}</error-message></rpc-error>"
).format("cross-connects are under OpenFlow control")
WARNING = (
    "<rpc-error><error-severity>warning</error-severity><error-message>hot</error-message>"
    "</rpc-error>"
)
CONFIG = f'<config xmlns="{NC}"><box xmlns="urn:box"/></config>'
OPERATIONS = {
    "get": lambda session: session.get(CRITERIA),
    "get-config": lambda session: session.get_config(CRITERIA),
    "edit-config": lambda session: session.edit(CONFIG).result(LONG),
    "rpc of a vendor": lambda session: session.call(CRITERIA),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_spurious_errors_are_ignored_beside_a_complete_reply(against, operation):
    data = operation in {OPERATIONS["get"], OPERATIONS["get-config"]}
    session, _ = against(
        lambda call: call.reply(OPENFLOW + ("<data/>" if data else "<ok/>")),
        spurious=("openflow",),
    )
    operation(session)
    assert any("set aside: cross-connects" in piece.text for piece in session.trace.pieces())


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_spurious_error_alone_is_a_refusal(against, operation):
    session, _ = against(lambda call: call.reply(OPENFLOW), spurious=("openflow",))
    with pytest.raises(DeniedError, match="under OpenFlow control") as raised:
        operation(session)
    assert raised.value.code == "operation-failed"
    assert leaf(session) == "next"


INCOMPLETE = {
    ("get", ""),
    ("get", "<ok/>"),
    ("get-config", ""),
    ("get-config", "<ok/>"),
    ("get-config", WARNING),
    ("edit-config", ""),
    ("edit-config", "<data/>"),
    ("rpc of a vendor", ""),
}


@pytest.mark.parametrize(("operation", "reply"), sorted(INCOMPLETE))
def test_a_reply_without_what_its_rpc_asks_for_is_garbled(against, operation, reply):
    """A read has `data` (RFC 6241, 7.1, 7.7), an edit and an rpc without output `ok` (4.4, 7.2)."""
    session, _ = against(lambda call: call.reply(reply))
    with over_soon(), pytest.raises(GarbledError, match="answered without") as raised:
        OPERATIONS[operation](session)
    assert_names(raised.value)
    assert leaf(session) == "next"


@pytest.mark.parametrize("operation", ["edit-config", "rpc of a vendor"])
def test_an_edit_with_a_warning_has_no_ok(against, operation):
    """`ok` is sent "if no errors or warnings occurred" (RFC 6241, 4.4)."""
    session, _ = against(lambda call: call.reply(WARNING))
    OPERATIONS[operation](session)


SILENCES = {
    "silent": lambda call: None,
    "unfinished": lambda call: call.raw(b"\n#500\n<rpc-reply"),
    "another's reply": lambda call: call.reply(tag="777"),
    "a notification": lambda call: call.message("<notification/>"),
}


@pytest.mark.parametrize("fault", SILENCES.values(), ids=SILENCES)
def test_missing_reply_is_an_error_at_the_timeout(against, fault):
    session, server = against(fault)
    with (
        over_soon(after=SHORT),
        pytest.raises(NoReplyError, match=r"did not answer within 0\.08 s") as raised,
    ):
        session.get(CRITERIA, SHORT)
    assert_names(raised.value)
    assert leaf(session) == "next"
    assert server.sessions == 2


def test_reply_after_its_timeout_is_discarded(against, system_clock):
    late = []
    session, _ = against(late.append)
    with pytest.raises(NoReplyError):
        leaf(session, SHORT)
    until(lambda: late, system_clock)
    late[0].data("previous")
    assert leaf(session) == "next"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
def test_line_ends_behind_the_hello_are_skipped(system_clock, tmp_path, end):
    """As agents of RFC 4742 send them, for which they were white space between documents."""
    server = ScriptedServer(lambda call: call.data("right"), HELLO + end)
    with served_netconf(server, system_clock, tmp_path) as session:
        assert leaf(session) == "right"


GARBAGE = {
    "no XML": lambda call: call.message("M  1 COMPLD"),
    "cut short": lambda call: call.message(f'<rpc-reply xmlns="{NC}" message-id="{call.id}"><da'),
    "no reply": lambda call: call.message("<surprise/>"),
    "no message-id": lambda call: call.message(f'<rpc-reply xmlns="{NC}"><ok/></rpc-reply>'),
    "no framing": lambda call: call.raw(b"<rpc-reply message-id='1'/>\n#0\n]]>]]>"),
    "a line end before a chunk": lambda call: call.raw(b"\n\n#2\n<a"),
    "a carriage return before a chunk": lambda call: call.raw(b"\r\n#2\n<a"),
    "a size of nothing": lambda call: call.raw(b"\n#0\n"),
    "a chunk that never ends": lambda call: call.raw(b"\n#4294967295\n<a"),
    "no text": lambda call: call.raw(b"\n#4\n\xff\xfe\xfd\xfc\n##\n"),
}


@pytest.mark.parametrize("fault", GARBAGE.values(), ids=GARBAGE)
def test_non_netconf_reply_raises_garbled_error(against, fault):
    session, _ = against(fault)
    with over_soon(), pytest.raises(GarbledError, match="not NETCONF") as raised:
        leaf(session)
    assert_names(raised.value)
    with contextlib.suppress(InstrumentError):
        session.close()
    assert leaf(session) == "next"


ENDS = {
    "before": lambda call: call.line.close(),
    "in the middle": lambda call: (call.raw(b"\n#500\n<rpc-reply"), call.line.close()),
    "with the whole connection": lambda call: call.line.close(abruptly=True),
}


@pytest.mark.parametrize("fault", ENDS.values(), ids=ENDS)
def test_close_is_noticed_at_once(against, fault):
    session, server = against(fault)
    with over_soon(), pytest.raises(DisconnectedError, match="closed the session") as raised:
        leaf(session)
    assert_names(raised.value)
    assert leaf(session) == "next"
    assert server.sessions == 2


def test_close_between_commands_is_no_error(against, system_clock):
    session, server = against(lambda call: (call.data("one"), call.line.close()))
    assert leaf(session) == "one"
    until(lambda: ends(session) == 1, system_clock)
    assert leaf(session) == "next"
    assert server.sessions == 2


def test_close_during_opening_fails_the_command(against, system_clock, monkeypatch):
    """The opening thread writes after the end was read and before the channel is closed."""
    session, server = against()
    written = threading.Event()

    class Slow(NcSession):
        def _dispatch_error(self, error):
            assert written.wait(60)

        def send(self, message):
            try:
                super().send(message)
            finally:
                if self.over:
                    written.set()

    def open_late(*arguments):
        made = open_session(*arguments)
        server.channel.shutdown_write()
        until(lambda: any("closed" in piece.text for piece in session.trace.pieces()), system_clock)
        return made

    with monkeypatch.context() as patched:
        patched.setattr(netconf_ssh, "NcSession", Slow)
        patched.setattr(netconf, "open_session", open_late)
        with over_soon(), pytest.raises(DisconnectedError, match="closed the session"):
            leaf(session)
    assert leaf(session) == "next"


HELLOS = {
    "none": (None, "timed out"),
    "no XML": ("hello]]>]]>", "no NETCONF session"),
    "another's": ("SSH-2.0-OpenSSH]]>]]>", "no NETCONF session"),
}


@pytest.mark.parametrize(("hello", "message"), HELLOS.values(), ids=HELLOS)
def test_server_without_hello_is_unreachable(against, monkeypatch, hello, message):
    session, server = against()
    server.hello = hello
    with monkeypatch.context() as patched:
        patched.setattr(session, "timeouts", WireTimeouts(connect_ns=1_500_000_000))
        with pytest.raises(UnreachableError, match=message) as raised:
            leaf(session)
    assert "is NETCONF on?" in str(raised.value)
    server.hello = HELLO
    assert leaf(session) == "next"


def test_non_ssh_server_is_unreachable(system_clock, tmp_path, monkeypatch):
    def answer(listener):
        line, _ = listener.accept()
        line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        line.close()

    (tmp_path / "known_hosts").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        session = NetconfSession(
            "ocs",
            *listener.getsockname(),
            system_clock,
            LOGIN,
            known_hosts=tmp_path / "known_hosts",
        )
        with pytest.raises(UnreachableError, match="opened no NETCONF session at 127"):
            session.get(CRITERIA)
        thread.join()


def test_missing_server_is_unreachable(system_clock):
    (port,) = unused_ports()
    for host, message in (("127.0.0.1", "refused"), ("ocs.invalid", "never looked up")):
        session = NetconfSession("ocs", host, port, system_clock, LOGIN)
        with pytest.raises(UnreachableError, match=message):
            session.get(CRITERIA)


def test_several_rpcs_in_flight(against):
    results = []

    def shuffle(call):
        results.append(call)
        if len(results) == 3:
            for late in reversed(results):
                late.reply()

    session, server = against(shuffle, shuffle, shuffle)
    pending = [session.edit(CONFIG) for _ in range(3)]
    assert [one.result(LONG).root.get("message-id") for one in pending] == ["1", "2", "3"]
    assert server.sessions == 1


def test_concurrent_threads_get_matching_replies(against):
    def echo(call):
        call.data(call.text.partition(' xmlns="urn:')[2].partition('"')[0])

    session, server = against(*[echo] * 80)
    wrong = []

    def ask(name):
        for number in range(20):
            urn = f"{name}{number}"
            if session.get(f'<box xmlns="urn:{urn}"/>').leaves("box") != {"leaf": urn}:
                wrong.append(urn)

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert server.sessions == 1


def test_close_fails_pending_commands(against):
    session, _ = against(lambda call: None)
    pending = session.edit(CONFIG)
    session.close()
    with pytest.raises(DisconnectedError, match="had its session closed") as raised:
        pending.result(LONG)
    assert "<box" in raised.value.command
    assert leaf(session) == "next"


@pytest.mark.parametrize("make_clock", [SystemClock, VirtualClock])
def test_close_by_the_server_does_not_stall_virtual_time(make_clock, tmp_path):
    clock = make_clock()

    def script(call):
        clock.schedule(clock.now() + 5 * MS, "server", lambda: (call.data("x"), call.line.close()))

    with scripted_netconf(clock, tmp_path, script) as (session, _):
        for number in range(3):
            assert leaf(session) == "x"
            until(lambda number=number: ends(session) > number, clock)
    clock.close()


@pytest.mark.parametrize("fault", ["cuts", "closes", "resets"])
def test_close_before_the_reader_starts_does_not_stall_virtual_time(tmp_path, fault):
    """The server greets and hangs up before it has confirmed the subsystem."""
    clock = VirtualClock(stall_timeout=20)
    injector = FaultInjector(clock, fault)
    scripted = ScriptedServer(lambda call: call.data("x"))
    device = injector.wrap(scripted)

    def confirm_late(self, channel, name):
        self._server.run_session(channel, self.ends)
        return True

    with served_netconf(device, clock, tmp_path) as session:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(NetconfService, "check_channel_subsystem_request", confirm_late)
            for _ in range(3):
                with pytest.raises(UnreachableError, match="no NETCONF session"):
                    leaf(session)
        clock.sleep(MS)
        injector.stop()
        assert leaf(session) == "x"
    clock.close()


def test_timeout_in_virtual_time(tmp_path):
    clock = VirtualClock(stall_timeout=20)
    with scripted_netconf(clock, tmp_path, lambda call: None) as (session, _):
        with over_soon(), pytest.raises(NoReplyError, match="within 30 s"):
            session.get(CRITERIA, LONG)
        assert clock.now() == LONG
    clock.close()
