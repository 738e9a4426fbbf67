"""Whatever a NETCONF peer does ends in the right error within the timeout, and the next works."""

import contextlib
import socket
import threading
import time

import pytest
from netconf_liar import HELLO, LOGIN, NC, netconf_liar
from real_time import LONG, over_soon, until

from instruments.clock import SystemClock
from instruments.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
    UnreachableError,
)
from instruments.virtual_clock import VirtualClock
from instruments.wire import netconf, netconf_ssh
from instruments.wire.netconf import NetconfSession
from instruments.wire.netconf_ssh import NcSession, open_session

MS = 1_000_000
SHORT = 80 * MS
CRITERIA = '<box xmlns="urn:box"/>'


@pytest.fixture
def against(system_clock, tmp_path):
    """A session with a liar; what its script does not say is answered as it should be."""
    with contextlib.ExitStack() as stack:

        def make(*scripts, **options):
            def script(call):
                if call.number <= len(scripts):
                    scripts[call.number - 1](call)
                else:
                    call.data("next")

            return stack.enter_context(netconf_liar(system_clock, tmp_path, script, **options))

        yield make


def leaf(session, timeout=LONG):
    return session.get(CRITERIA, timeout).leaves("box")["leaf"]


def assert_tells(error: InstrumentError, *words: str) -> None:
    """It names the instrument, the command and what was last on the wire."""
    text = str(error)
    assert error.instrument == "ocs"
    assert text.startswith("ocs ")
    assert "<box" in error.command
    assert error.command in text
    assert any("<box" in line for line in error.trace)
    assert all(line in text for line in error.trace)
    for word in words:
        assert word in text


def split(call, *cuts):
    """One reply in several chunks, each in several pieces."""
    inner = '<data xmlns=""><box><leaf>grüße</leaf></box></data>'
    data = f'<rpc-reply xmlns="{NC}" message-id="{call.id}">{inner}</rpc-reply>'.encode()
    chunks = [data[a:b] for a, b in zip((0, *cuts), (*cuts, len(data)), strict=True)]
    for byte in b"".join(b"\n#%d\n%s" % (len(chunk), chunk) for chunk in chunks) + b"\n##\n":
        call.raw(bytes([byte]))


SUCCESSES = {
    "plain": lambda call: call.data("grüße"),
    "in chunks and pieces": lambda call: split(call, 1, 30, 90),
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


@pytest.mark.parametrize("lie", SUCCESSES.values(), ids=SUCCESSES)
def test_the_answer_is_found(against, lie):
    session, liar = against(lie)
    assert leaf(session) == "grüße"
    assert leaf(session) == "next"
    assert liar.sessions == 1


def test_notifications_are_kept_apart(against):
    session, _ = against(SUCCESSES["a notification before"])
    leaf(session)
    assert len(session.reports) == 1
    assert "eventTime" in session.reports[0]


def test_an_rpc_error_keeps_tag_and_words(against):
    session, _ = against(
        lambda call: call.error("in-use", f"by {LOGIN[1]}"), meanings={"in-use": ("busy", "wait")}
    )
    with pytest.raises(DeniedError) as raised:
        leaf(session)
    assert (raised.value.code, raised.value.text) == ("in-use", "by ***")
    assert_tells(raised.value, "answered  in-use by ***", "meaning   busy", "try       wait")
    assert leaf(session) == "next"


def test_errors_that_are_spurious_are_set_aside(against):
    session, _ = against(
        lambda call: call.error("operation-failed", "OpenFlow is not licensed"),
        spurious=("openflow",),
    )
    assert session.get(CRITERIA).leaves("box") == {}
    assert any("set aside: OpenFlow" in piece.text for piece in session.trace.pieces())


SILENCES = {
    "silent": lambda call: None,
    "unfinished": lambda call: call.raw(b"\n#500\n<rpc-reply"),
    "another's reply": lambda call: call.reply(tag="777"),
    "a notification": lambda call: call.message("<notification/>"),
}


@pytest.mark.parametrize("lie", SILENCES.values(), ids=SILENCES)
def test_no_answer_is_an_error_at_the_timeout(against, lie):
    session, liar = against(lie)
    with (
        over_soon(after=SHORT),
        pytest.raises(NoReplyError, match=r"did not answer within 0\.08 s") as raised,
    ):
        session.get(CRITERIA, SHORT)
    assert_tells(raised.value)
    assert leaf(session) == "next"
    assert liar.sessions == 2


def test_an_answer_after_its_timeout_comes_nowhere(against, system_clock):
    late = []
    session, _ = against(late.append)
    with pytest.raises(NoReplyError):
        leaf(session, SHORT)
    until(lambda: late, system_clock)
    late[0].data("previous")
    assert leaf(session) == "next"


GARBAGE = {
    "no XML": lambda call: call.message("M  1 COMPLD"),
    "cut short": lambda call: call.message(f'<rpc-reply xmlns="{NC}" message-id="{call.id}"><da'),
    "no reply": lambda call: call.message("<surprise/>"),
    "no message-id": lambda call: call.message(f'<rpc-reply xmlns="{NC}"><ok/></rpc-reply>'),
    "no framing": lambda call: call.raw(b"<rpc-reply message-id='1'/>\n#0\n]]>]]>"),
    "no text": lambda call: call.raw(b"\n#4\n\xff\xfe\xfd\xfc\n##\n"),
}


@pytest.mark.parametrize("lie", GARBAGE.values(), ids=GARBAGE)
def test_what_is_not_netconf_is_told(against, lie):
    session, _ = against(lie)
    with over_soon(), pytest.raises((GarbledError, NoReplyError)) as raised:
        leaf(session, 500 * MS if lie is GARBAGE["no framing"] else LONG)
    assert_tells(raised.value)
    if lie is not GARBAGE["no framing"]:
        assert isinstance(raised.value, GarbledError)
        assert "not NETCONF" in str(raised.value)
    with contextlib.suppress(InstrumentError):
        session.close()
    assert leaf(session) == "next"


ENDS = {
    "before": lambda call: call.line.close(),
    "in the middle": lambda call: (call.raw(b"\n#500\n<rpc-reply"), call.line.close()),
    "with the whole connection": lambda call: call.line.close(abruptly=True),
}


@pytest.mark.parametrize("lie", ENDS.values(), ids=ENDS)
def test_a_peer_that_closes_is_known_at_once(against, lie):
    session, liar = against(lie)
    with over_soon(), pytest.raises(DisconnectedError, match="closed the session") as raised:
        leaf(session)
    assert_tells(raised.value)
    assert leaf(session) == "next"
    assert liar.sessions == 2


def test_a_peer_that_closes_while_nobody_waits_is_no_trouble(against, system_clock):
    session, liar = against(lambda call: (call.data("one"), call.line.close()))
    assert leaf(session) == "one"
    until(lambda: session._session is None, system_clock)
    assert leaf(session) == "next"
    assert liar.sessions == 2


def test_a_session_that_ends_as_it_is_opened_keeps_nobody_waiting(
    against, system_clock, monkeypatch
):
    """Its opener writes once the end was told, and before our half of the channel is closed."""
    session, liar = against()
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
        liar.line._channel.shutdown_write()
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


@pytest.mark.parametrize(("hello", "says"), HELLOS.values(), ids=HELLOS)
def test_a_peer_without_a_hello_is_unreachable(against, monkeypatch, hello, says):
    session, liar = against()
    liar.hello = hello
    greet = NcSession._post_connect
    with monkeypatch.context() as patched:
        patched.setattr(NcSession, "_post_connect", lambda session, _: greet(session, 0.2))
        with pytest.raises(UnreachableError, match=says) as raised:
            leaf(session)
    assert "is NETCONF on?" in str(raised.value)
    liar.hello = HELLO
    assert leaf(session) == "next"


def test_a_peer_that_is_no_ssh(system_clock, tmp_path, monkeypatch):
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


def test_nobody_there(system_clock):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for host, says in (("127.0.0.1", "refused"), ("ocs.invalid", "never looked up")):
        session = NetconfSession("ocs", host, port, system_clock, LOGIN)
        with pytest.raises(UnreachableError, match=says):
            session.get(CRITERIA)


def test_several_rpcs_are_under_way_at_once(against):
    kept = []

    def shuffle(call):
        kept.append(call)
        if len(kept) == 3:
            for late in reversed(kept):
                late.data(late.id)

    session, liar = against(shuffle, shuffle, shuffle)
    config = f'<config xmlns="{NC}"><box xmlns="urn:box"/></config>'
    pending = [session.edit(config) for _ in range(3)]
    assert [one.result(LONG).leaves("box")["leaf"] for one in pending] == ["1", "2", "3"]
    assert liar.sessions == 1


def test_threads_get_each_their_own_answer(against):
    def echo(call):
        call.data(call.text.partition(' xmlns="urn:')[2].partition('"')[0])

    session, liar = against(*[echo] * 80)
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
    assert liar.sessions == 1


def test_closing_ends_what_still_waits(against):
    session, _ = against(lambda call: None)
    config = f'<config xmlns="{NC}"><box xmlns="urn:box"/></config>'
    pending = session.edit(config)
    session.close()
    with pytest.raises(DisconnectedError, match="had its session closed") as raised:
        pending.result(LONG)
    assert "<box" in raised.value.command
    assert leaf(session) == "next"


@pytest.mark.parametrize("make_clock", [SystemClock, VirtualClock])
def test_a_server_that_hangs_up_stalls_no_clock(make_clock, tmp_path):
    clock = make_clock()

    def script(call):
        clock.schedule(clock.now() + 5 * MS, "liar", lambda: (call.data("x"), call.line.close()))

    with netconf_liar(clock, tmp_path, script) as (session, _):
        for _ in range(3):
            assert leaf(session) == "x"
            until(lambda: session._session is None, clock)
    clock.close()


def test_a_timeout_is_virtual_too(tmp_path):
    clock = VirtualClock(patience=20)
    with netconf_liar(clock, tmp_path, lambda call: None) as (session, _):
        with over_soon(), pytest.raises(NoReplyError, match="within 30 s"):
            session.get(CRITERIA, LONG)
        assert clock.now() == LONG
    clock.close()
