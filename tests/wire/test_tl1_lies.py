"""Whatever a TL1 peer does ends in the right error within the timeout, and the next one works."""

import itertools
import re
import select
import socket
import threading
import time

import pytest
from liar import HEADER, block, denial, report
from real_time import LONG, over_soon, until

from instruments.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
    UnreachableError,
)
from instruments.wire import tl1
from instruments.wire.tl1 import LONGEST_BLOCK

MS = 1_000_000
PASSWORD = "hunter2-and-more"
SHORT = 60 * MS


def scripted(*scripts):
    """The first command by the first script and so on; whatever else comes is done."""

    def script(call):
        if call.number <= len(scripts):
            scripts[call.number - 1](call)
        else:
            call.done(call.aid)

    return script


def assert_tells(error: InstrumentError, *words: str) -> None:
    """It names the instrument, the command and what was last on the wire."""
    text = str(error)
    assert error.instrument == "ocs"
    assert text.startswith("ocs ")
    assert error.command
    assert error.command in text
    assert error.trace
    assert any(error.command in line for line in error.trace)
    assert all(line in text for line in error.trace)
    for word in words:
        assert word in text


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
    "an unset name": lambda call: call.write(
        block(call.tag, "1,17", "2,18").replace("ocs", "( nil )")
    ),
    "bare line feeds": lambda call: call.write(
        block(call.tag, "1,17", "2,18").replace("\r\n", "\n")
    ),
    "slow": lambda call: (time.sleep(0.1), call.done("1,17", "2,18")),
    "rubbish before the header": lambda call: call.write(
        b"\xff\xfe\x00garbage" + block(call.tag, "1,17", "2,18").encode()
    ),
}


@pytest.mark.parametrize("lie", SUCCESSES.values(), ids=SUCCESSES)
def test_the_answer_is_found(against, lie):
    session, _ = against(scripted(lie))
    assert session.command("RTRV-PATCH", timeout=LONG).lines == ("1,17", "2,18")
    assert_next_works(session)


def test_reports_are_kept_apart(against):
    session, _ = against(scripted(SUCCESSES["reports inside"], SUCCESSES["report before"]))
    session.command("RTRV-PATCH")
    session.command("RTRV-PATCH")
    assert [text.splitlines() for text in session.reports] == [
        ["A  1 REPT EVT EQPT", '"a"'],
        ["A  2 REPT EVT EQPT", '"b"'],
        ["A  1 REPT EVT EQPT", '"a"'],
    ]


@pytest.mark.parametrize("code", ["*C", "**", "* ", "A "])
def test_every_kind_of_report_is_one(against, code):
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
def test_a_denial_keeps_code_and_text(against, lines, code, text):
    session, _ = against(scripted(lambda call: call.write(denial(call.tag, *lines))))
    with pytest.raises(DeniedError) as raised:
        session.command("ENT-PATCH", "3,35")
    assert (raised.value.code, raised.value.text) == (code, text)
    assert raised.value.command == "ENT-PATCH::3,35:1:;"
    assert_tells(raised.value, "denied a command", code, text)
    assert_next_works(session)


def test_a_part_done_is_no_success(against):
    session, _ = against(
        scripted(lambda call: call.write(denial(call.tag, "SRCN", "/* 3 in use */", status="PRTL")))
    )
    with pytest.raises(DeniedError) as raised:
        session.command("ENT-PATCH", "3,35")
    assert (raised.value.code, raised.value.text) == ("SRCN", "3 in use")
    assert_tells(raised.value)
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


@pytest.mark.parametrize(("lie", "says"), SILENCES.values(), ids=SILENCES)
def test_no_answer_is_an_error_at_the_timeout(against, lie, says):
    said = threading.Event()
    session, liar = against(scripted(lambda call: (lie(call), said.set())))
    pending = session.submit("RTRV-PATCH")
    assert said.wait()
    with (
        over_soon(after=SHORT),
        pytest.raises(NoReplyError, match=r"did not answer within 0\.06 s") as raised,
    ):
        pending.result(SHORT)
    assert_tells(raised.value, says)
    assert_next_works(session)
    assert liar.connections == 1


GARBAGE = {
    "words": b"HTTP/1.1 400 Bad Request\r\n\r\n;",
    "eight bits": bytes(range(128, 256)) + b"\r\n;",
    "zeros": b"\0" * 100 + b"\r\n;",
    "no code": HEADER.encode() + b"M  1 FINE\r\n;",
    "no tag": HEADER.encode() + b"M COMPLD\r\n;",
    "a header alone": HEADER.encode() + b";",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_an_answer_that_is_not_tl1_is_told_at_once(against, garbage):
    session, _ = against(scripted(lambda call: call.write(garbage)))
    with over_soon(), pytest.raises(GarbledError, match="not TL1") as raised:
        session.command("RTRV-PATCH", timeout=LONG)
    assert_tells(raised.value, "not a TL1 answer")
    assert_next_works(session)


def test_an_answer_without_end_is_given_up_before_the_timeout(against):
    def endless(call):
        call.write(block(call.tag, "1,17", ends=""))
        for _ in range(LONGEST_BLOCK // 10_000 + 1):
            call.write(b"\xe9" * 10_000)

    session, _ = against(scripted(endless))
    with over_soon(), pytest.raises(GarbledError, match="a megabyte without ending") as raised:
        session.command("RTRV-PATCH", timeout=LONG)
    assert raised.value.command == "RTRV-PATCH:::1:;"
    assert_next_works(session)


def test_an_answer_cut_short_by_the_next_is_neither(against):
    both = threading.Event()

    def first(call):
        assert both.wait()
        call.write(block(call.tag, "1,17", ends=""))

    session, _ = against(scripted(first, lambda call: call.done("2,18")))
    one, two = session.submit("RTRV-PATCH"), session.submit("RTRV-PATCH")
    both.set()
    with pytest.raises(GarbledError, match="cut its answer short") as raised:
        one.result(LONG)
    assert_tells(raised.value)
    assert two.result(LONG).lines == ("2,18",)


ENDS = {
    "before": lambda call: call.hang_up(),
    "in the middle": lambda call: (call.write(block(call.tag, "1", ends="")), call.hang_up()),
    "within the header": lambda call: (call.write("\r\n\n   oc"), call.hang_up()),
    "by a reset": lambda call: call.reset(),
}


@pytest.mark.parametrize("login", [False, True], ids=["open", "with login"])
@pytest.mark.parametrize("lie", ENDS.values(), ids=ENDS)
def test_a_peer_that_closes_is_known_at_once(against, lie, login):
    scripts = [lambda call: call.done()] if login else []
    session, liar = against(scripted(*scripts, lie), login=login)
    with over_soon(), pytest.raises(DisconnectedError, match="closed the connection") as raised:
        session.command("RTRV-PATCH", timeout=LONG)
    assert_tells(raised.value)
    assert_next_works(session)
    assert liar.connections == 2
    assert [text.split(":")[0] for text in liar.calls].count("ACT-USER") == 2 * login


def test_a_peer_that_closes_while_nobody_waits_is_no_trouble(against, system_clock):
    session, liar = against(scripted(lambda call: (call.done("1"), call.hang_up())))
    assert session.command("RTRV-PATCH").lines == ("1",)
    until(lambda: session._connection is None, system_clock)
    assert_next_works(session)
    assert liar.connections == 2


def test_a_peer_that_lets_nobody_in_is_known_at_once(against):
    session, liar = against(lambda call: call.done(call.aid))
    for how in range(30):
        liar.on_connect = (
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
    liar.on_connect = lambda line: None
    assert_next_works(session)


@pytest.mark.parametrize("login", [False, True], ids=["open", "with login"])
def test_a_peer_that_closes_while_it_is_let_in_is_known_at_once(against, monkeypatch, login):
    class Slow(tl1.TcpConnection):
        def __init__(self, *args):
            super().__init__(*args)
            time.sleep(0.03)

    monkeypatch.setattr(tl1, "TcpConnection", Slow)
    session, liar = against(lambda call: call.done(call.aid), login=login)
    liar.on_connect = lambda line: line.shutdown(socket.SHUT_WR)
    with over_soon(), pytest.raises(DisconnectedError):
        session.command("RTRV-PATCH", timeout=LONG)
    liar.on_connect = lambda line: None
    assert_next_works(session)


def test_a_refused_login_says_so(against):
    session, liar = against(
        scripted(lambda call: call.write(denial(call.tag, "PICC", "/* Authentication failure */"))),
        login=True,
    )
    with pytest.raises(UnreachableError, match="refused the login at 127") as raised:
        session.command("RTRV-PATCH")
    assert raised.value.command == "ACT-USER::bench:1::***;"
    assert_tells(raised.value, "PICC Authentication failure", "case counts")
    assert_next_works(session)
    assert liar.connections == 2


def test_being_logged_in_already_is_fine(against):
    session, liar = against(
        scripted(lambda call: call.write(denial(call.tag, "PICC", "/* Already logged in */"))),
        login=True,
    )
    assert_next_works(session)
    assert liar.connections == 1


LOGIN_TROUBLE = {
    "garbage": (lambda call: call.write(b"login: \r\n;"), GarbledError),
    "hang-up": (lambda call: call.hang_up(), DisconnectedError),
}


@pytest.mark.parametrize(("lie", "kind"), LOGIN_TROUBLE.values(), ids=LOGIN_TROUBLE)
def test_after_a_login_that_failed_the_next_command_logs_in(against, lie, kind):
    session, liar = against(scripted(lie), login=True)
    with pytest.raises(kind) as raised:
        session.command("RTRV-PATCH")
    assert_tells(raised.value, "ACT-USER::bench:1::***;")
    assert_next_works(session)
    assert [text.split(":")[0] for text in liar.calls] == ["ACT-USER", "ACT-USER", "RTRV-HDR"]
    assert liar.connections == 2


def test_the_password_is_nowhere(against):
    told = f"did you mean {PASSWORD}?"
    session, _ = against(
        scripted(
            lambda call: call.write(denial(call.tag, "PICC", f"/* {told} */")),
            lambda call: call.done(),
            lambda call: call.write(denial(call.tag, "PICC", f"/* {told} */")),
            lambda call: call.write(f"{told}\r\n;"),
            lambda call: call.write(report(told) + f"{'x' * 190}{PASSWORD}\r\n;"),
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


def test_threads_get_each_their_own_answer(against):
    kept = []

    def shuffle(call):
        """Answer last come first served, once no other command follows."""
        kept.append(call)
        if len(kept) == 8 or not select.select([call.line], [], [], 0.002)[0]:
            for late in reversed(kept):
                late.done(late.aid)
            kept.clear()

    session, liar = against(shuffle)
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
    assert liar.connections == 1
    assert len(set(liar.calls)) == len(liar.calls) == 200


def test_several_answers_in_one_segment(against):
    kept = []

    def together(call):
        kept.append(call)
        if len(kept) == 5:
            call.write("".join(block(one.tag, one.aid) for one in kept))

    session, _ = against(together)
    pending = [session.submit("RTRV-HDR", str(number)) for number in range(5)]
    assert [one.result(LONG).lines for one in pending] == [(str(n),) for n in range(5)]
    assert len({one.tag for one in pending}) == 5
    for one, after in itertools.pairwise(pending):
        assert one.sent.earliest <= one.sent.latest <= after.sent.earliest
        assert one.result().received >= one.sent.latest


def test_what_is_sent_is_one_command(against):
    session, liar = against(scripted())
    session.command("ent-patch", "1&2,17&18")
    session.command("RTRV-EQPT", "SYSTEM", "", "", "PARAMETER=SIZE")
    assert liar.calls == ["ent-patch::1&2,17&18:1:", "RTRV-EQPT::SYSTEM:2:::PARAMETER=SIZE"]


def test_closing_and_using_again_opens_again(against):
    session, liar = against(scripted(), login=True)
    session.close()
    assert_next_works(session)
    session.close()
    session.close()
    assert_next_works(session)
    assert liar.connections == 2
    assert [text.split(":")[0] for text in liar.calls] == ["ACT-USER", "RTRV-HDR"] * 2


def test_closing_ends_what_still_waits(against):
    session, _ = against(scripted(lambda call: None))
    pending = session.submit("RTRV-PATCH")
    session.close()
    with over_soon(), pytest.raises(DisconnectedError, match="session closed") as raised:
        pending.result(LONG)
    assert re.search(r"RTRV-PATCH:::1:;", str(raised.value))
