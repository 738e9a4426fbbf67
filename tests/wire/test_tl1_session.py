"""With any fault of a TL1 server: the right error in time, and the next command works."""

import itertools
import re
import select
import socket
import threading
import time

import pytest
from real_time import LONG, over_soon, until
from scripted_tl1 import HEADER, block, denial, report

from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
    UnreachableError,
)
from lightrig.instruments.wire import tl1
from lightrig.instruments.wire.tl1 import LONGEST_BLOCK

MS = 1_000_000
PASSWORD = "hunter2-and-more"
SHORT = 60 * MS


def scripted(*scripts):
    """Answer command n by script n; complete all later commands."""

    def script(call):
        if call.number <= len(scripts):
            scripts[call.number - 1](call)
        else:
            call.done(call.aid)

    return script


def assert_names(error: InstrumentError, *details: str) -> None:
    """Assert that the error names instrument, command and the last lines of the trace."""
    text = str(error)
    assert error.instrument == "ocs"
    assert text.startswith("ocs ")
    assert error.command
    assert error.command in text
    assert error.trace
    assert any(error.command in line for line in error.trace)
    assert all(line in text for line in error.trace)
    for detail in details:
        assert detail in text


def assert_next_works(session):
    assert session.command("RTRV-HDR", "next").lines == ("next",)


SUCCESSES = {
    "plain": lambda call: call.done("1,17", "2,18"),
    "one byte at a time": lambda call: call.dribble(block(call.tag, "1,17", "2,18")),
    "report before": lambda call: call.write(report("a") + block(call.tag, "1,17", "2,18")),
    "report after": lambda call: call.write(block(call.tag, "1,17", "2,18") + report("a")),
    "reports inside": lambda call: call.write(
        block(call.tag, "1,17", ends="") + report("a") + report("b", 2) + '\r\n   "2,18"\r\n;'
    ),
    "continued": lambda call: call.write(
        block(call.tag, "1,17", ends=">") + block(call.tag, "2,18")
    ),
    "continued without a head": lambda call: call.write(
        block(call.tag, "1,17", ends=">") + '\r\n   "2,18"\r\n;'
    ),
    "continued with a report between": lambda call: call.write(
        block(call.tag, "1,17", ends=">") + report("a") + block(call.tag, "2,18")
    ),
    "continued thrice": lambda call: call.write(
        block(call.tag, ends=">") + block(call.tag, "1,17", ends=">") + block(call.tag, "2,18")
    ),
    "repeated": lambda call: call.write(block(call.tag, "1,17", "2,18") * 3),
    "unknown ctag first": lambda call: call.write(
        block("777", "9,9") + block("ABC", "8,8") + block(call.tag, "1,17", "2,18")
    ),
    "another's denial first": lambda call: call.write(
        denial("777", "IICT") + block(call.tag, "1,17", "2,18")
    ),
    "delayed": lambda call: call.write(
        block(call.tag, status="DELAY") + block(call.tag, "1,17", "2,18")
    ),
    "another's answer cut short": lambda call: call.write(
        block("777", "9,9", ends="") + block(call.tag, "1,17", "2,18")
    ),
    "a prompt": lambda call: call.write("\r\n>" + block(call.tag, "1,17", "2,18") + "\r\n>"),
    "an echo before each block": lambda call: call.write(
        f"{call.text};\r\n"
        + block(call.tag, "1,17", ends=">")
        + f"\r\nagent> {call.text};\r\n>\r\n"
        + block(call.tag, "2,18")
    ),
    "an echo before a prompt": lambda call: call.write(
        f"{call.text};\r\n>" + block(call.tag, "1,17", "2,18")
    ),
    "an unset name": lambda call: call.write(
        block(call.tag, "1,17", "2,18").replace("ocs", "( nil )")
    ),
    "bare line feeds": lambda call: call.write(
        block(call.tag, "1,17", "2,18").replace("\r\n", "\n")
    ),
    "in progress": lambda call: call.write(f"IP {call.tag}\r\n<" + block(call.tag, "1,17", "2,18")),
    "in progress, as others end it": lambda call: call.write(
        f"\r\nPF {call.tag}\r\n>" + block(call.tag, "1,17", "2,18")
    ),
    "in progress, then a report": lambda call: call.write(
        f"OK {call.tag}\r\n<{report('a')}IP {call.tag}\r\n<" + block(call.tag, "1,17", "2,18")
    ),
    "repeat later, to another": lambda call: call.write(
        "RL 777\r\n<" + block(call.tag, "1,17", "2,18")
    ),
    "slow": lambda call: (time.sleep(0.1), call.done("1,17", "2,18")),
    "rubbish before the header": lambda call: call.write(
        b"\xff\xfe\x00garbage" + block(call.tag, "1,17", "2,18").encode()
    ),
}


@pytest.mark.parametrize("fault", SUCCESSES.values(), ids=SUCCESSES)
def test_reply_is_found(against, fault):
    session, _ = against(scripted(fault))
    assert session.command("RTRV-PATCH", timeout=LONG).lines == ("1,17", "2,18")
    assert_next_works(session)


def test_autonomous_messages_are_stored_as_reports(against):
    session, _ = against(scripted(SUCCESSES["reports inside"], SUCCESSES["report before"]))
    session.command("RTRV-PATCH")
    session.command("RTRV-PATCH")
    assert [text.splitlines() for text in session.reports] == [
        ["A  1 REPT EVT EQPT", '"a"'],
        ["A  2 REPT EVT EQPT", '"b"'],
        ["A  1 REPT EVT EQPT", '"a"'],
    ]


@pytest.mark.parametrize("code", ["*C", "**", "* ", "A "])
def test_all_kinds_of_autonomous_messages(against, code):
    session, _ = against(
        scripted(
            lambda call: call.write(
                report("x").replace("A  1", f"{code} 1") + block(call.tag, "1,17")
            )
        )
    )
    assert session.command("RTRV-PATCH").lines == ("1,17",)
    assert len(session.reports) == 1


DENIALS = {
    "code and text": (["IDNV", "/* Invalid OXC port: 35 */"], "IDNV", "Invalid OXC port: 35"),
    "code alone": (["IICT"], "IICT", ""),
    "text alone": (["/* Not logged in */"], "DENY", "Not logged in"),
    "quoted text": (["PICC", '"Already logged in"'], "PICC", "Already logged in"),
    "nothing": ([], "DENY", ""),
    "two texts": (["SRCN", "/* one */", "/* two */"], "SRCN", "one two"),
}


@pytest.mark.parametrize(("lines", "code", "text"), DENIALS.values(), ids=DENIALS)
def test_denial_keeps_code_and_text(against, lines, code, text):
    session, _ = against(scripted(lambda call: call.write(denial(call.tag, *lines))))
    with pytest.raises(DeniedError) as raised:
        session.command("ENT-PATCH", "3,35")
    assert (raised.value.code, raised.value.text) == (code, text)
    assert raised.value.command == "ENT-PATCH::3,35:1:;"
    assert_names(raised.value, "denied a command", code, text)
    assert_next_works(session)


@pytest.mark.parametrize("ends", ["\r\n<", "\r\n>", "\n<"])
@pytest.mark.parametrize(
    ("code", "kind"), [("RL", DeniedError), ("NG", DeniedError), ("NA", NoReplyError)]
)
def test_acknowledgment_in_place_of_a_reply_is_an_error_at_once(against, code, kind, ends):
    """RL: repeat later; NG: no good; NA: no acknowledgment, by which nothing is known (GR-831)."""
    session, _ = against(scripted(lambda call: call.write(f"{code} {call.tag}{ends}")))
    with over_soon(), pytest.raises(kind, match=code) as raised:
        session.command("RTRV-PATCH", timeout=LONG)
    said = {"RL": "is busy", "NG": "has not carried", "NA": "may be carried out"}
    assert said[code] in str(raised.value)
    assert_next_works(session)


def test_partial_completion_is_a_denial(against):
    session, _ = against(
        scripted(lambda call: call.write(denial(call.tag, "SRCN", "/* 3 in use */", status="PRTL")))
    )
    with pytest.raises(DeniedError) as raised:
        session.command("ENT-PATCH", "3,35")
    assert (raised.value.code, raised.value.text) == ("SRCN", "3 in use")
    assert_names(raised.value)
    assert_next_works(session)


def previous(call):
    call.write(block(str(int(call.tag) - 1), "9,9"))


SILENCES = {
    "silent": (lambda call: None, "nothing came"),
    "unfinished": (lambda call: call.write(block(call.tag, "1,17", ends="")), "bytes of an unf"),
    "half a status": (lambda call: call.write(f"{HEADER}M  {call.tag} COM"), "bytes of an unf"),
    "the previous command's": (previous, "set aside: no command waits for ctag 0"),
    "an unknown ctag": (lambda call: call.write(block("x1", "9,9")), "set aside"),
    "a report only": (lambda call: call.write(report("here")), "REPT EVT"),
    "only delayed": (lambda call: call.write(block(call.tag, status="DELAY")), "DELAY"),
    "continued and no more": (lambda call: call.write(block(call.tag, "1", ends=">")), "nothing"),
}


@pytest.mark.parametrize(("fault", "message"), SILENCES.values(), ids=SILENCES)
def test_missing_reply_is_an_error_at_the_timeout(against, fault, message):
    scripted_done = threading.Event()
    session, server = against(scripted(lambda call: (fault(call), scripted_done.set())))
    pending = session.submit("RTRV-PATCH")
    assert scripted_done.wait()
    with (
        over_soon(after=SHORT),
        pytest.raises(NoReplyError, match=r"did not answer within 0\.06 s") as raised,
    ):
        pending.result(SHORT)
    assert_names(raised.value, message)
    assert_next_works(session)
    assert server.connections == 1


GARBAGE = {
    "words": b"HTTP/1.1 400 Bad Request\r\n\r\n;",
    "eight bits": bytes(range(128, 256)) + b"\r\n;",
    "zeros": b"\0" * 100 + b"\r\n;",
    "no code": HEADER.encode() + b"M  1 FINE\r\n;",
    "no tag": HEADER.encode() + b"M COMPLD\r\n;",
    "a header alone": HEADER.encode() + b";",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_non_tl1_reply_raises_garbled_error_at_once(against, garbage):
    session, _ = against(scripted(lambda call: call.write(garbage)))
    with over_soon(), pytest.raises(GarbledError, match="not TL1") as raised:
        session.command("RTRV-PATCH", timeout=LONG)
    assert_names(raised.value, "not a TL1 answer")
    assert_next_works(session)


def test_endless_reply_fails_before_the_timeout(against):
    def endless(call):
        call.write(block(call.tag, "1,17", ends=""))
        for _ in range(LONGEST_BLOCK // 10_000 + 1):
            call.write(b"\xe9" * 10_000)

    session, _ = against(scripted(endless))
    with over_soon(), pytest.raises(GarbledError, match="a megabyte without ending") as raised:
        session.command("RTRV-PATCH", timeout=LONG)
    assert raised.value.command == "RTRV-PATCH:::1:;"
    assert_next_works(session)


def test_truncated_reply_is_not_merged_with_the_next(against):
    both = threading.Event()

    def first(call):
        assert both.wait()
        call.write(block(call.tag, "1,17", ends=""))

    session, _ = against(scripted(first, lambda call: call.done("2,18")))
    one, two = session.submit("RTRV-PATCH"), session.submit("RTRV-PATCH")
    both.set()
    with pytest.raises(GarbledError, match="cut its answer short") as raised:
        one.result(LONG)
    assert_names(raised.value)
    assert two.result(LONG).lines == ("2,18",)


ENDS = {
    "before": lambda call: call.hang_up(),
    "in the middle": lambda call: (call.write(block(call.tag, "1", ends="")), call.hang_up()),
    "within the header": lambda call: (call.write("\r\n\n   oc"), call.hang_up()),
    "by a reset": lambda call: call.reset(),
}


@pytest.mark.parametrize("login", [False, True], ids=["open", "with login"])
@pytest.mark.parametrize("fault", ENDS.values(), ids=ENDS)
def test_close_is_noticed_at_once(against, fault, login):
    scripts = [lambda call: call.done()] if login else []
    session, server = against(scripted(*scripts, fault), login=login)
    with over_soon(), pytest.raises(DisconnectedError, match="closed the connection") as raised:
        session.command("RTRV-PATCH", timeout=LONG)
    assert_names(raised.value)
    assert_next_works(session)
    assert server.connections == 2
    assert [text.split(":")[0] for text in server.calls].count("ACT-USER") == 2 * login


def test_close_between_commands_is_no_error(against, system_clock):
    session, server = against(scripted(lambda call: (call.done("1"), call.hang_up())))
    assert session.command("RTRV-PATCH").lines == ("1",)
    until(lambda: "closed" in session.trace.tail()[-1], system_clock)
    assert_next_works(session)
    assert server.connections == 2


def test_close_at_connect_is_noticed_at_once(against):
    session, server = against(lambda call: call.done(call.aid))
    for how in range(30):
        server.on_connect = (
            (lambda line: line.shutdown(socket.SHUT_RDWR))
            if how % 2
            else (
                lambda line: (
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0"),
                    line.close(),
                )
            )
        )
        with over_soon(), pytest.raises((DisconnectedError, UnreachableError)) as raised:
            session.command("RTRV-PATCH", timeout=LONG)
        assert raised.value.instrument == "ocs"
    server.on_connect = lambda line: None
    assert_next_works(session)


@pytest.mark.parametrize("login", [False, True], ids=["open", "with login"])
def test_close_during_login_is_noticed_at_once(against, monkeypatch, login):
    class Slow(tl1.TcpConnection):
        def __init__(self, *args):
            super().__init__(*args)
            time.sleep(0.03)

    monkeypatch.setattr(tl1, "TcpConnection", Slow)
    session, server = against(lambda call: call.done(call.aid), login=login)
    server.on_connect = lambda line: line.shutdown(socket.SHUT_WR)
    with over_soon(), pytest.raises(DisconnectedError):
        session.command("RTRV-PATCH", timeout=LONG)
    server.on_connect = lambda line: None
    assert_next_works(session)


def test_refused_login_is_unreachable(against):
    session, server = against(
        scripted(lambda call: call.write(denial(call.tag, "PICC", "/* Authentication failure */"))),
        login=True,
    )
    with pytest.raises(UnreachableError, match="refused the login at 127") as raised:
        session.command("RTRV-PATCH")
    assert raised.value.command == "ACT-USER::bench:1::***;"
    assert_names(raised.value, "PICC Authentication failure", "case counts")
    assert_next_works(session)
    assert server.connections == 2


def test_already_logged_in_is_accepted(against):
    session, server = against(
        scripted(lambda call: call.write(denial(call.tag, "PICC", "/* Already logged in */"))),
        login=True,
    )
    assert_next_works(session)
    assert server.connections == 1


LOGIN_FAILURES = {
    "garbage": (lambda call: call.write(b"login: \r\n;"), GarbledError),
    "hang-up": (lambda call: call.hang_up(), DisconnectedError),
}


@pytest.mark.parametrize(("fault", "kind"), LOGIN_FAILURES.values(), ids=LOGIN_FAILURES)
def test_command_after_a_failed_login_logs_in_again(against, fault, kind):
    session, server = against(scripted(fault), login=True)
    with pytest.raises(kind) as raised:
        session.command("RTRV-PATCH")
    assert_names(raised.value, "ACT-USER::bench:1::***;")
    assert_next_works(session)
    assert [text.split(":")[0] for text in server.calls] == ["ACT-USER", "ACT-USER", "RTRV-HDR"]
    assert server.connections == 2


def test_password_is_in_no_error_and_no_trace(against):
    leak = f"did you mean {PASSWORD}?"
    session, _ = against(
        scripted(
            lambda call: call.write(denial(call.tag, "PICC", f"/* {leak} */")),
            lambda call: call.done(),
            lambda call: call.write(denial(call.tag, "PICC", f"/* {leak} */")),
            lambda call: call.write(f"{leak}\r\n;"),
            lambda call: call.write(report(leak) + f"{'x' * 190}{PASSWORD}\r\n;"),
            lambda call: call.write(f"ACT-USER::bench:1::{PASSWORD};" + block(call.tag, "1")),
            lambda call: (call.write(f"ACT-USER::bench:1::{PASSWORD}"), call.hang_up()),
        ),
        login=True,
    )
    shown = [repr(session)]
    kinds = []
    for _ in range(5):
        try:
            pending = session.submit("RTRV-PATCH", PASSWORD)
            shown.append(repr(pending) + pending.command)
            shown.append(repr(pending.result()))
        except InstrumentError as error:
            kinds.append(type(error))
            shown += [str(error), repr(error), *error.trace, error.command, repr(error.__cause__)]
            shown += map(str, error.args)
    assert kinds == [UnreachableError, DeniedError, GarbledError, GarbledError]
    with pytest.raises(DisconnectedError) as raised:
        session.command("RTRV-PATCH")
    shown += [str(raised.value), *session.reports]
    shown += [str(piece) + repr(piece) for piece in session.trace.pieces()]
    assert PASSWORD not in "\n".join(shown)
    assert PASSWORD[:9] not in "\n".join(shown)
    assert "ACT-USER::bench:1::***;" in "\n".join(shown)


def test_concurrent_threads_get_matching_replies(against):
    results = []

    def shuffle(call):
        """Answer in reverse order, once no more command follows."""
        results.append(call)
        if len(results) == 8 or not select.select([call.line], [], [], 0.002)[0]:
            for late in reversed(results):
                late.done(late.aid)
            results.clear()

    session, server = against(shuffle)
    wrong = []

    def ask(name):
        for number in range(25):
            aid = f"{name}-{number}"
            if session.command("RTRV-PORT", aid).lines != (aid,):
                wrong.append(aid)

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert server.connections == 1
    assert len(set(server.calls)) == len(server.calls) == 200


def test_several_replies_in_one_segment(against):
    results = []

    def together(call):
        results.append(call)
        if len(results) == 5:
            call.write("".join(block(one.tag, one.aid) for one in results))

    session, _ = against(together)
    pending = [session.submit("RTRV-HDR", str(number)) for number in range(5)]
    assert [one.result(LONG).lines for one in pending] == [(str(n),) for n in range(5)]
    assert len({one.tag for one in pending}) == 5
    for one, after in itertools.pairwise(pending):
        assert one.sent.earliest <= one.sent.latest <= after.sent.earliest
        assert one.result().received >= one.sent.latest


def test_command_on_the_wire(against):
    session, server = against(scripted())
    session.command("ent-patch", "1&2,17&18")
    session.command("RTRV-EQPT", "SYSTEM", "", "", "PARAMETER=SIZE")
    assert server.calls == ["ent-patch::1&2,17&18:1:", "RTRV-EQPT::SYSTEM:2:::PARAMETER=SIZE"]


def test_command_after_close_reopens_the_session(against):
    session, server = against(scripted(), login=True)
    session.close()
    assert_next_works(session)
    session.close()
    session.close()
    assert_next_works(session)
    assert server.connections == 2
    assert [text.split(":")[0] for text in server.calls] == ["ACT-USER", "RTRV-HDR"] * 2


def test_close_fails_pending_commands(against):
    session, _ = against(scripted(lambda call: None))
    pending = session.submit("RTRV-PATCH")
    session.close()
    with over_soon(), pytest.raises(DisconnectedError, match="session closed") as raised:
        pending.result(LONG)
    assert re.search(r"RTRV-PATCH:::1:;", str(raised.value))
