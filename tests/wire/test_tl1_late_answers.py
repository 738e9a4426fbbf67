"""A reply after its timeout is never taken for another command's."""

import socket
from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from scripted_tl1 import block, denial, report

from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.errors import GarbledError, InstrumentError, NoReplyError
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.wire.tl1 import Tl1Session

MS = 1_000_000
TIMEOUT = 100 * MS


class Unreliable:
    """Answer each command by the next of `behaviours`, `delay` ms later."""

    def __init__(self, connection, clock, behaviours):
        self._connection = connection
        self._clock = clock
        self._behaviours = behaviours

    def received(self, data):
        for command in data.decode().split(";")[:-1]:
            _, _, aid, tag = command.split(":")[:4]
            how, delay = next(self._behaviours)
            right = block(tag, aid)
            before = block(str(int(tag) - 1), aid)
            match how:
                case "late":
                    self._say(100 + delay, right)
                case "right":
                    self._say(delay, right)
                case "twice":
                    self._say(delay, right)
                    self._say(2 * delay + 50, right)
                case "report":
                    self._say(delay, report(aid) + right + report(aid))
                case "previous":
                    self._say(delay, before + right)
                case "cut":
                    self._say(delay, right.removesuffix("\r\n;"))
                case "denied late":
                    self._say(100 + delay, denial(tag, "SRCN", "/* late */"))
                case "only previous":
                    self._say(delay, before)

    def closed(self):
        pass

    def _say(self, delay, text):
        self._clock.schedule(
            self._clock.now() + delay * MS, "server", lambda: self._connection.send(text.encode())
        )


HOW = st.sampled_from(
    ["late", "right", "twice", "report", "drop", "previous", "cut", "denied late", "only previous"]
)
ANSWERED = {"right", "twice", "report", "previous"}


@settings(max_examples=60)
@given(st.lists(st.tuples(HOW, st.integers(1, 90)), min_size=1, max_size=40))
def test_each_command_gets_its_reply_or_a_timeout(behaviours):
    clock = VirtualClock(stall_timeout=20)
    server = DeviceServer(clock)
    script = iter(behaviours)
    session = Tl1Session("ocs", *server.listen(lambda c, _: Unreliable(c, clock, script)), clock)
    now = 0
    try:
        for number, (how, delay) in enumerate(behaviours):
            pending = session.submit("RTRV-HDR", f"n{number}")
            try:
                lines = pending.result(TIMEOUT).lines
            except NoReplyError:
                assert how not in ANSWERED
                now += TIMEOUT
            except GarbledError:
                assert how == "cut"  # and another's late answer followed
                # The other's answer may come at the very moment at which time runs out.
                assert now < clock.now() <= now + TIMEOUT
                now = clock.now()
            else:
                assert how in ANSWERED
                assert lines == (f"n{number}",)
                now += delay * MS
            assert clock.now() == now
    finally:
        session.close()
        server.close()
        clock.close()


@pytest.fixture(scope="module")
def listening() -> Iterator[socket.socket]:
    """A switch that answers nothing by itself."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def outcomes(listening, pieces):
    """Feed bytes to a session with commands 1 to 10 in flight; return what they come to."""
    clock = VirtualClock()
    session = Tl1Session("ocs", *listening.getsockname(), clock)
    waiting = [session.submit("RTRV-HDR") for _ in range(10)]
    line, _ = listening.accept()
    for piece in pieces:
        session.received(piece, 0)
    for pending in waiting:
        session.cancel(pending, 1)
    found = []
    for pending in waiting:
        try:
            found.append(pending.result())
        except InstrumentError as error:
            found.append(str(error))
    trace = [str(piece) for piece in session.trace.pieces()]
    reports = list(session.reports)
    line.close()
    session.close()
    clock.close()
    return found, reports, trace


_TAGS = st.integers(0, 12).map(str)
_LINES = st.lists(st.from_regex(r"[0-9]{1,2},[0-9]{1,2}", fullmatch=True), max_size=3)
_MESSAGES = st.one_of(
    st.builds(lambda tag, lines: block(tag, *lines), _TAGS, _LINES),
    st.builds(lambda tag, lines: block(tag, *lines, ends=">"), _TAGS, _LINES),
    st.builds(lambda tag, lines: block(tag, *lines, ends=""), _TAGS, _LINES),
    st.builds(lambda tag: block(tag, status="DELAY"), _TAGS),
    st.builds(lambda tag: denial(tag, "IDNV", "/* no; not so > */"), _TAGS),
    st.builds(report, st.just("Port 1 disabled")),
    st.sampled_from([";", "\r\n;", "\n>", "\xff\xfe;\n", "garbage\n;", '   "1,2"\r\n;']),
)


@settings(max_examples=50)
@given(st.lists(_MESSAGES, max_size=12), st.data())
def test_result_does_not_depend_on_segmentation(listening, messages, data):
    stream = "".join(messages).encode("latin-1")
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20).map(sorted))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole = outcomes(listening, [stream])
    assert outcomes(listening, pieces) == whole
    assert outcomes(listening, [bytes([byte]) for byte in stream]) == whole
