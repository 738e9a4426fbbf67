"""One question at a time, and what happens to it, told to the person at the bench."""

import contextlib
import threading
import time

import pytest
from faulty import MS, TIMEOUT, Bracketed, Fault, Faulty, Lines
from real_time import LONG, slack, until

from instruments.clock import SystemClock
from instruments.errors import (
    DisconnectedError,
    GarbledError,
    NoReplyError,
    UnreachableError,
)
from instruments.simulated.peer_server import PeerServer
from instruments.virtual_clock import VirtualClock
from instruments.wire import framing
from instruments.wire.exchange import Exchange, Resync
from instruments.wire.scpi import ScpiResync
from instruments.wire.stream import serial_stream, tcp_stream


@pytest.fixture(params=["virtual", "real"])
def clock(request):
    made = VirtualClock(patience=20) if request.param == "virtual" else SystemClock()
    yield made
    made.close()


@pytest.fixture
def opened(clock):
    """An exchange with a faulty instrument, on a socket or on a serial line."""
    with contextlib.ExitStack() as stack:

        def make(*plan, line=False, words=None, cut=None, **options):
            server = PeerServer(clock)
            stack.callback(server.close)
            instrument = Faulty(clock, words or Lines(), plan)
            if line:
                device = server.serial_line(instrument.session)

                def open_stream():
                    return serial_stream("meter", device, clock, baud=9600)
            else:
                host, port = server.listen(instrument.session)

                def open_stream():
                    return tcp_stream("meter", host, port, clock)

            exchange = Exchange("meter", open_stream, clock, cut or framing.Lines(), **options)
            stack.callback(exchange.close)
            return exchange, instrument

        yield make


def asked(instrument):
    return [question.decode() for question in instrument.heard]


def test_an_answer_and_its_stamps(opened, clock):
    exchange, _ = opened()
    assert exchange.openings == 0
    before = clock.now()
    answer = exchange.ask(b"Q1\n")
    assert answer.data == b"A1"
    assert before <= answer.sent.earliest <= answer.sent.latest <= answer.received <= clock.now()
    assert exchange.ask(b"Q2\n").data == b"A2"
    assert exchange.openings == 1
    texts = [(piece.direction, piece.text) for piece in exchange.trace.pieces()]
    assert texts == [("!", "connected"), (">", "Q1"), ("<", "A1"), (">", "Q2"), ("<", "A2")]


def test_silence_is_told_with_what_was_asked(opened, clock):
    exchange, _ = opened(Fault("silent"))
    before = clock.now()
    with pytest.raises(NoReplyError) as raised:
        exchange.ask(b"Q1\n", TIMEOUT)
    assert TIMEOUT <= clock.now() - before <= TIMEOUT + slack(clock)
    assert raised.value.command == "Q1"
    lines = str(raised.value).splitlines()
    assert lines[0] == "meter did not answer within 0.05 s"
    assert "  because   nothing came" in lines
    assert lines[-1].endswith("> Q1")


def late(clock):
    """How long after the timeout an answer comes late, even if its timeout is noticed late."""
    return (5 if clock.virtual else 300) * MS


@pytest.mark.parametrize("line", [False, True], ids=["tcp", "serial"])
def test_a_late_answer_is_never_the_next_one(opened, clock, line):
    resync = Resync(10 * MS, b"ID\n", b"IDENTITY".__eq__) if line else None
    exchange, _ = opened(Fault(after=TIMEOUT + late(clock)), line=line, resync=resync)
    with pytest.raises(NoReplyError):
        exchange.ask(b"Q1\n", TIMEOUT)
    assert exchange.ask(b"Q2\n").data == b"A2"
    assert exchange.openings == 2


def test_an_unfinished_answer_is_counted_and_shown(opened):
    exchange, _ = opened(Fault("truncates", at=2))
    with pytest.raises(NoReplyError, match="because   2 bytes of an unfinished answer came") as e:
        exchange.ask(b"Q1\n", TIMEOUT)
    assert str(e.value).splitlines()[-1].endswith("< A1")


@pytest.mark.parametrize("kind", ["closes", "resets"])
def test_a_peer_that_hangs_up_is_told_at_once(opened, clock, kind):
    exchange, _ = opened(Fault(kind, at=2, after=MS))
    before = clock.now()
    with pytest.raises(DisconnectedError, match="closed the connection before it had answered"):
        exchange.ask(b"Q1\n", LONG)
    assert clock.now() - before <= MS + slack(clock)
    assert exchange.ask(b"Q2\n").data == b"A2"
    assert exchange.openings == 2


def test_a_peer_that_hung_up_meanwhile_is_asked_over_a_new_connection(clock):
    server, sessions = PeerServer(clock), []
    instrument = Faulty(clock, Lines(), [])

    def session(connection, index):
        sessions.append(connection)
        return instrument.session(connection, index)

    host, port = server.listen(session)
    resync = ScpiResync(reopens=True)
    exchange = Exchange(
        "meter",
        lambda: tcp_stream("meter", host, port, clock),
        clock,
        framing.Scpi(),
        resync=resync,
    )
    assert exchange.ask(b"Q1\n").data == b"A1"
    closed = clock.event()
    clock.schedule(clock.now() + MS, "z", lambda: (sessions[0].close(), closed.set()))
    assert closed.wait(LONG)
    clock.sleep(MS)
    assert exchange.ask(b"Q2\n").data == b"A2"
    assert asked(instrument) == ["Q1", "Q2"]  # nothing was lost, so nothing needs regaining
    assert exchange.openings == 2
    exchange.close()
    server.close()


def test_bytes_that_nobody_asked_for_end_a_connection(opened, clock):
    exchange, instrument = opened(Fault("repeats", gap=(5 if clock.virtual else 200) * MS))
    assert exchange.ask(b"Q1\n").data == b"A1"
    until(lambda: instrument.done == 1, clock)
    assert exchange.ask(b"Q2\n").data == b"A2"
    assert exchange.openings == 2
    assert [p.text for p in exchange.trace.pieces()][3:5] == ["A1\n", "unasked for"]


def test_one_more_line_end_is_not_unasked_for(opened, clock):
    class Spaced(Lines):
        def answer(self, question):
            return super().answer(question) + b"\r\n"

    exchange, _ = opened(words=Spaced())
    for number in range(1, 4):
        assert exchange.ask(b"Q%d\n" % number).data == b"A%d" % number
        clock.sleep(MS)
    assert exchange.openings == 1


def test_what_its_protocol_does_not_allow(opened):
    exchange, _ = opened(Fault("garbles", at=0), words=Bracketed(), cut=framing.Bracketed())
    with pytest.raises(GarbledError, match="because   it does not begin with <") as raised:
        exchange.ask(b"<Q1>", TIMEOUT)
    assert raised.value.command == "<Q1>"
    assert exchange.ask(b"<Q2>").data == b"<A2>"
    assert exchange.openings == 2


def test_an_answer_without_sense_is_followed_by_a_new_connection(opened):
    exchange, _ = opened()
    exchange.ask(b"Q1\n")
    error = exchange.failed(GarbledError, "answered something that is no power", "Q1", ("x", "y"))
    assert str(error).splitlines()[:3] == [
        "meter answered something that is no power",
        "  sent      Q1",
        "  x         y",
    ]
    assert exchange.ask(b"Q2\n").data == b"A2"
    assert exchange.openings == 2


def test_a_command_without_an_answer(opened, clock):
    exchange, instrument = opened()
    before = clock.now()
    span = exchange.tell(b"SET\n")
    assert before <= span.earliest <= span.latest <= clock.now()
    assert exchange.ask(b"Q1\n").data == b"A1"
    assert asked(instrument) == ["SET", "Q1"]
    assert exchange.openings == 1


def test_secrets_are_shown_nowhere(opened):
    exchange, _ = opened(Fault("silent"))
    exchange.trace.mask("Q1")
    with pytest.raises(NoReplyError) as raised:
        exchange.ask(b"Q1\n", TIMEOUT)
    assert raised.value.command == "***"
    assert "Q1" not in str(raised.value)


def test_where_nobody_listens(clock):
    with PeerServerGone(clock) as (host, port):
        exchange = Exchange(
            "meter", lambda: tcp_stream("meter", host, port, clock), clock, framing.Lines()
        )
        with pytest.raises(UnreachableError, match=rf"meter did not answer at {host}:{port}"):
            exchange.ask(b"Q1\n")
    assert exchange.openings == 0


@contextlib.contextmanager
def PeerServerGone(clock):  # noqa: N802
    server = PeerServer(clock)
    address = server.listen(lambda *_: None)
    server.close()
    yield address


# ---------------------------------------------------------------------- regaining step


def test_on_a_line_silence_comes_first_then_a_question(opened, clock):
    exchange, instrument = opened(
        Fault("silent"), line=True, resync=Resync(20 * MS, b"ID\n", b"IDENTITY".__eq__)
    )
    with pytest.raises(NoReplyError):
        exchange.ask(b"Q1\n", TIMEOUT)
    before = clock.now()
    assert exchange.ask(b"Q2\n").data == b"A2"
    assert asked(instrument) == ["Q1", "ID", "Q2"]
    assert clock.now() - before >= 20 * MS


def test_what_fails_to_regain_step_is_told_as_that(opened):
    exchange, instrument = opened(Fault("silent"), Fault("silent"), resync=ScpiResync(reopens=True))
    with pytest.raises(NoReplyError):
        exchange.ask(b"Q1?\n", TIMEOUT)
    with pytest.raises(NoReplyError, match="before    the command was not sent") as raised:
        exchange.ask(b"Q2?\n", TIMEOUT)
    assert raised.value.command == "Q2?"
    assert str(raised.value).splitlines()[-1].endswith("> *IDN?")
    assert exchange.ask(b"Q3?\n").data == b"A3"
    assert asked(instrument) == ["Q1?", "*IDN?", "*ESE?;*IDN?", "Q3?"]


def test_an_identity_that_failed_is_asked_for_in_other_words(opened):
    exchange, instrument = opened(Fault("silent"), line=True, resync=ScpiResync(MS))
    with pytest.raises(NoReplyError):
        exchange.ask(b"*idn?\n".upper(), TIMEOUT)
    assert exchange.ask(b"Q2?\n").data == b"A2"
    assert asked(instrument) == ["*IDN?", "*ESE?;*IDN?", "Q2?"]


def test_at_last_the_first_words_are_tried_again(opened, clock):
    exchange, instrument = opened(*[Fault("silent")] * 4, resync=ScpiResync(MS, reopens=True))
    for number in range(1, 5):
        with pytest.raises(NoReplyError):
            exchange.ask(b"Q%d?\n" % number, 10 * MS)
    assert exchange.ask(b"Q5?\n").data == b"A5"
    assert asked(instrument) == [
        "Q1?", "*IDN?", "*ESE?;*IDN?", "*ESE?;*ESE?;*IDN?", "*IDN?", "Q5?",
    ]  # fmt: skip


@pytest.mark.parametrize("line", [False, True], ids=["tcp", "serial"])
def test_an_identity_that_is_said_twice_is_no_answer(opened, line):
    resync = ScpiResync(MS, reopens=not line)
    exchange, _ = opened(Fault("silent"), Fault("repeats", times=2), line=line, resync=resync)
    with pytest.raises(NoReplyError):
        exchange.ask(b"Q1?\n", TIMEOUT)
    assert exchange.ask(b"Q2?\n").data == b"A2"


@pytest.mark.parametrize(
    ("number", "answer", "known"),
    [
        (0, b"Keysight Technologies,N7745A,MY49123456,1.22", True),
        (0, b"THORLABS, PM100D, P0001, 2.4.0 ", True),
        (0, b"-3.25E+00", False),
        (0, b"1,2,3,4", False),
        (0, b"0;Keysight Technologies,N7745A,MY49123456,1.22", False),
        (1, b"0;Keysight Technologies,N7745A,MY49123456,1.22", True),
        (1, b"32;THORLABS,PM100D,P0001,2.4.0", True),
        (1, b"Keysight Technologies,N7745A,MY49123456,1.22", False),
        (2, b"0;Keysight Technologies,N7745A,MY49123456,1.22", False),
        (2, b"0;0;Keysight Technologies,N7745A,MY49123456,1.22", True),
        (0, b"HUBER+SUHNER,6000,1,2,extra", True),
    ],
)
def test_which_identities_are_the_wanted_one(number, answer, known):
    _, recognises = ScpiResync().variant(number)
    assert recognises(answer) is known


def test_what_babbles_is_not_brought_back_into_step(clock):
    server = PeerServer(clock)
    talking, over = threading.Lock(), threading.Event()

    class Babbler:
        def __init__(self, connection, index):
            self.connection = connection
            self.babble()

        def babble(self):
            with talking:
                if not over.is_set():
                    self.connection.send(b"<bla>")
                    clock.schedule(clock.now() + 5 * MS, "babbler", self.babble)

        def received(self, data):
            pass

        def closed(self):
            pass

    device = server.serial_line(Babbler)
    quiet = (20 if clock.virtual else 500) * MS  # a busy machine babbles with pauses
    exchange = Exchange(
        "switch",
        lambda: serial_stream("switch", device, clock, baud=9600),
        clock,
        framing.Sized(8),
        resync=Resync(quiet),
    )
    exchange.ask(b"Q1\n")
    before = clock.now()
    with pytest.raises(GarbledError, match="does not stop sending what nobody asked for"):
        exchange.ask(b"Q2\n", TIMEOUT)
    assert clock.now() - before <= TIMEOUT + quiet + slack(clock)
    exchange.close()
    with talking:
        over.set()
    server.close()


# ------------------------------------------------------------------------------ threads


def test_threads_take_turns(clock, opened):
    exchange, instrument = opened(*[Fault(after=0)] * 1000)

    def ask(which):
        numbers = range(which * 100, which * 100 + 25)
        return [exchange.ask(b"Q%d\n" % number).data == b"A%d" % number for number in numbers]

    found = clock.parallel(*[lambda which=which: ask(which) for which in range(1, 9)])
    assert found == [[True] * 25] * 8
    assert exchange.openings == 1
    assert len(instrument.heard) == 200


def test_several_questions_in_one_turn(clock, opened):
    exchange, instrument = opened()

    def ask(which):
        for _ in range(5):
            with exchange.alone("three questions") as alone:
                for number in range(3):
                    assert alone(b"Q%d\n" % (which * 10 + number)).data[:1] == b"A"

    clock.parallel(*[lambda which=which: ask(which) for which in range(1, 5)])
    numbers = [int(question[1:]) for question in instrument.heard]
    assert len(numbers) == 60
    for first in range(0, 60, 3):
        assert [n - numbers[first] for n in numbers[first : first + 3]] == [0, 1, 2]


def test_a_flood_ends_with_the_timeout():
    clock, server = SystemClock(), PeerServer(SystemClock())
    over = threading.Event()

    class Flood:
        def __init__(self, connection, index):
            self.connection = connection

        def received(self, data):
            threading.Thread(target=self.pour, daemon=True).start()

        def pour(self):
            while not over.is_set():
                self.connection.send(b"x" * 1000)
                time.sleep(0.001)

        def closed(self):
            over.set()

    host, port = server.listen(Flood)
    exchange = Exchange(
        "meter", lambda: tcp_stream("meter", host, port, clock), clock, framing.Lines()
    )
    before = clock.now()
    with pytest.raises(NoReplyError, match="bytes of an unfinished answer"):
        exchange.ask(b"Q1\n", 300 * MS)
    assert clock.now() - before < 300 * MS + slack(clock)
    exchange.close()
    server.close()


def test_what_cannot_be_told_is_noticed_afterwards(opened, clock):
    """An answer that is repeated once the next question was written looks like its answer."""
    again = Fault("repeats", after=MS, gap=(10 if clock.virtual else 300) * MS)
    exchange, instrument = opened(again, Fault(after=5 * MS), Fault(after=MS))
    assert exchange.ask(b"Q1\n").data == b"A1"
    assert exchange.ask(b"Q2\n").data == b"A1"
    until(lambda: instrument.done == 2, clock)
    assert exchange.ask(b"Q3\n").data == b"A3"
    assert "unasked for" in [piece.text for piece in exchange.trace.pieces()]
    assert exchange.openings == 2


# ---------------------------------------------------------------- begun, and waited for later


def test_an_answer_may_come_before_it_is_waited_for(opened, clock):
    exchange, _ = opened(Fault(after=10 * MS))
    begun = exchange.begin(b"Q1\n", LONG)
    written = clock.now()
    clock.sleep(100 * MS)
    answer = begun.result()
    assert answer.data == b"A1"
    assert begun.result() is answer
    assert answer.sent == begun.sent
    assert answer.sent.latest <= written
    assert clock.now() - written <= 100 * MS + slack(clock)


def test_whoever_comes_next_waits_first(opened, clock):
    exchange, instrument = opened(Fault(after=10 * MS))
    begun = exchange.begin(b"Q1\n")
    assert exchange.ask(b"Q2\n").data == b"A2"
    assert begun.result().data == b"A1"
    assert asked(instrument) == ["Q1", "Q2"]
    assert exchange.openings == 1


@pytest.mark.parametrize("next_first", [False, True])
def test_what_was_begun_fails_alone(opened, clock, next_first):
    exchange, _ = opened(Fault(after=TIMEOUT + late(clock)))
    begun = exchange.begin(b"Q1\n", TIMEOUT)
    if next_first:
        assert exchange.ask(b"Q2\n").data == b"A2"
    for _ in range(2):
        with pytest.raises(NoReplyError, match="sent      Q1"):
            begun.result()
    assert exchange.ask(b"Q3\n").data == b"A3"
    assert exchange.openings == 2


def test_what_was_begun_ends_with_the_session(opened):
    exchange, _ = opened(Fault(after=MS))
    begun = exchange.begin(b"Q1\n", TIMEOUT)
    exchange.close()
    with pytest.raises(DisconnectedError, match="the connection was given up"):
        begun.result()
    assert exchange.ask(b"Q2\n").data == b"A2"
