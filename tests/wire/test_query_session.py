"""One query at a time: its reply, or an error that names the cause."""

import contextlib
import threading
import time

import pytest
from faulty import MS, TIMEOUT, Bracketed, Fault, Faulty, Lines
from real_time import LONG, slack, until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import (
    DisconnectedError,
    GarbledError,
    NoReplyError,
    UnreachableError,
)
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.wire import framing
from lightrig.instruments.wire.scpi import ScpiResync
from lightrig.instruments.wire.session import QuerySession, Resync
from lightrig.instruments.wire.stream import serial_stream, tcp_stream


@pytest.fixture
def opened(clock):
    """Open a session with a faulty instrument, on a socket or on a serial line."""
    with contextlib.ExitStack() as stack:

        def make(*plan, line=False, dialect=None, cut=None, **options):
            server = DeviceServer(clock)
            stack.callback(server.close)
            instrument = Faulty(clock, dialect or Lines(), plan)
            if line:
                device = server.serial_line(instrument.session)

                def open_stream():
                    return serial_stream("meter", device, clock, baud=9600)
            else:
                host, port = server.listen(instrument.session)

                def open_stream():
                    return tcp_stream("meter", host, port, clock)

            session = QuerySession("meter", open_stream, clock, cut or framing.Lines(), **options)
            stack.callback(session.close)
            return session, instrument

        yield make


def asked(instrument):
    return [question.decode() for question in instrument.heard]


def test_reply_has_stamps(opened, clock):
    session, _ = opened()
    assert session.openings == 0
    before = clock.now()
    answer = session.query(b"Q1\n")
    assert answer.data == b"A1"
    assert before <= answer.sent.earliest <= answer.sent.latest <= answer.received <= clock.now()
    assert session.query(b"Q2\n").data == b"A2"
    assert session.openings == 1
    texts = [(piece.direction, piece.text) for piece in session.trace.pieces()]
    assert texts == [("!", "connected"), (">", "Q1"), ("<", "A1"), (">", "Q2"), ("<", "A2")]


def test_timeout_error_names_the_query(opened, clock):
    session, _ = opened(Fault("silent"))
    before = clock.now()
    with pytest.raises(NoReplyError) as raised:
        session.query(b"Q1\n", TIMEOUT)
    assert TIMEOUT <= clock.now() - before <= TIMEOUT + slack(clock)
    assert raised.value.command == "Q1"
    lines = str(raised.value).splitlines()
    assert lines[0] == "meter did not answer within 0.05 s"
    assert "  because   nothing came" in lines
    assert lines[-1].endswith("> Q1")


def late(clock):
    """Delay that is after the timeout even if the timeout is noticed late."""
    return (5 if clock.virtual else 300) * MS


@pytest.mark.parametrize("line", [False, True], ids=["tcp", "serial"])
def test_late_reply_is_not_taken_for_the_next_one(opened, clock, line):
    resync = Resync(10 * MS, b"ID\n", b"IDENTITY".__eq__) if line else None
    session, _ = opened(Fault(after=TIMEOUT + late(clock)), line=line, resync=resync)
    with pytest.raises(NoReplyError):
        session.query(b"Q1\n", TIMEOUT)
    assert session.query(b"Q2\n").data == b"A2"
    assert session.openings == 2


def test_unfinished_reply_is_counted_and_traced(opened):
    session, _ = opened(Fault("truncates", at=2))
    with pytest.raises(NoReplyError, match="because   2 bytes of an unfinished answer came") as e:
        session.query(b"Q1\n", TIMEOUT)
    assert str(e.value).splitlines()[-1].endswith("< A1")


@pytest.mark.parametrize("kind", ["closes", "resets"])
def test_close_is_reported_at_once(opened, clock, kind):
    session, _ = opened(Fault(kind, at=2, after=MS))
    before = clock.now()
    with pytest.raises(DisconnectedError, match="closed the connection before it had answered"):
        session.query(b"Q1\n", LONG)
    assert clock.now() - before <= MS + slack(clock)
    assert session.query(b"Q2\n").data == b"A2"
    assert session.openings == 2


def test_query_after_a_close_opens_a_new_connection(clock):
    server, sessions = DeviceServer(clock), []
    instrument = Faulty(clock, Lines(), [])

    def session(connection, index):
        sessions.append(connection)
        return instrument.session(connection, index)

    host, port = server.listen(session)
    resync = ScpiResync(reopens=True)
    session = QuerySession(
        "meter",
        lambda: tcp_stream("meter", host, port, clock),
        clock,
        framing.Scpi(),
        resync=resync,
    )
    assert session.query(b"Q1\n").data == b"A1"
    closed = clock.event()
    clock.schedule(clock.now() + MS, "z", lambda: (sessions[0].close(), closed.set()))
    assert closed.wait(LONG)
    clock.sleep(MS)
    assert session.query(b"Q2\n").data == b"A2"
    assert asked(instrument) == ["Q1", "Q2"]  # nothing was lost, so nothing needs regaining
    assert session.openings == 2
    session.close()
    server.close()


def test_unexpected_bytes_reopen_the_connection(opened, clock):
    session, instrument = opened(Fault("repeats", gap=(5 if clock.virtual else 200) * MS))
    assert session.query(b"Q1\n").data == b"A1"
    until(lambda: instrument.done == 1, clock)
    assert session.query(b"Q2\n").data == b"A2"
    assert session.openings == 2
    assert [p.text for p in session.trace.pieces()][3:5] == ["A1\n", "unasked for"]


def test_surplus_line_end_is_ignored(opened, clock):
    class Spaced(Lines):
        def answer(self, question):
            return super().answer(question) + b"\r\n"

    session, _ = opened(dialect=Spaced())
    for number in range(1, 4):
        assert session.query(b"Q%d\n" % number).data == b"A%d" % number
        clock.sleep(MS)
    assert session.openings == 1


def test_malformed_reply_raises_garbled_error(opened):
    session, _ = opened(Fault("garbles", at=0), dialect=Bracketed(), cut=framing.Bracketed())
    with pytest.raises(GarbledError, match="because   it does not begin with <") as raised:
        session.query(b"<Q1>", TIMEOUT)
    assert raised.value.command == "<Q1>"
    assert session.query(b"<Q2>").data == b"<A2>"
    assert session.openings == 2


def test_garbled_reply_reopens_the_connection(opened):
    session, _ = opened()
    session.query(b"Q1\n")
    error = session.failed(GarbledError, "answered something that is no power", "Q1", ("x", "y"))
    assert str(error).splitlines()[:3] == [
        "meter answered something that is no power",
        "  sent      Q1",
        "  x         y",
    ]
    assert session.query(b"Q2\n").data == b"A2"
    assert session.openings == 2


def test_write_has_no_reply(opened, clock):
    session, instrument = opened()
    before = clock.now()
    span = session.write(b"SET\n")
    assert before <= span.earliest <= span.latest <= clock.now()
    assert session.query(b"Q1\n").data == b"A1"
    assert asked(instrument) == ["SET", "Q1"]
    assert session.openings == 1


def test_secrets_are_masked_in_errors_and_traces(opened):
    session, _ = opened(Fault("silent"))
    session.trace.mask("Q1")
    with pytest.raises(NoReplyError) as raised:
        session.query(b"Q1\n", TIMEOUT)
    assert raised.value.command == "***"
    assert "Q1" not in str(raised.value)


def test_closed_port_is_unreachable(clock):
    with closed_port(clock) as (host, port):
        session = QuerySession(
            "meter", lambda: tcp_stream("meter", host, port, clock), clock, framing.Lines()
        )
        with pytest.raises(UnreachableError, match=rf"meter did not answer at {host}:{port}"):
            session.query(b"Q1\n")
    assert session.openings == 0


@contextlib.contextmanager
def closed_port(clock):
    server = DeviceServer(clock)
    address = server.listen(lambda *_: None)
    server.close()
    yield address


# ---------------------------------------------------------------------- regaining step


def test_resync_on_a_line_waits_for_silence_then_queries(opened, clock):
    session, instrument = opened(
        Fault("silent"), line=True, resync=Resync(20 * MS, b"ID\n", b"IDENTITY".__eq__)
    )
    with pytest.raises(NoReplyError):
        session.query(b"Q1\n", TIMEOUT)
    before = clock.now()
    assert session.query(b"Q2\n").data == b"A2"
    assert asked(instrument) == ["Q1", "ID", "Q2"]
    assert clock.now() - before >= 20 * MS


def test_failed_resync_is_reported_as_such(opened):
    session, instrument = opened(Fault("silent"), Fault("silent"), resync=ScpiResync(reopens=True))
    with pytest.raises(NoReplyError):
        session.query(b"Q1?\n", TIMEOUT)
    with pytest.raises(NoReplyError, match="before    the command was not sent") as raised:
        session.query(b"Q2?\n", TIMEOUT)
    assert raised.value.command == "Q2?"
    assert str(raised.value).splitlines()[-1].endswith("> *IDN?")
    assert session.query(b"Q3?\n").data == b"A3"
    assert asked(instrument) == ["Q1?", "*IDN?", "*ESE?;*IDN?", "Q3?"]


def test_unanswered_identity_query_is_followed_by_a_variant(opened):
    session, instrument = opened(Fault("silent"), line=True, resync=ScpiResync(MS))
    with pytest.raises(NoReplyError):
        session.query(b"*idn?\n".upper(), TIMEOUT)
    assert session.query(b"Q2?\n").data == b"A2"
    assert asked(instrument) == ["*IDN?", "*ESE?;*IDN?", "Q2?"]


def test_first_variant_is_repeated_after_the_last(opened, clock):
    session, instrument = opened(*[Fault("silent")] * 4, resync=ScpiResync(MS, reopens=True))
    for number in range(1, 5):
        with pytest.raises(NoReplyError):
            session.query(b"Q%d?\n" % number, 10 * MS)
    assert session.query(b"Q5?\n").data == b"A5"
    assert asked(instrument) == [
        "Q1?", "*IDN?", "*ESE?;*IDN?", "*ESE?;*ESE?;*IDN?", "*IDN?", "Q5?",
    ]  # fmt: skip


@pytest.mark.parametrize("line", [False, True], ids=["tcp", "serial"])
def test_repeated_identity_is_not_a_reply(opened, line):
    resync = ScpiResync(MS, reopens=not line)
    session, _ = opened(Fault("silent"), Fault("repeats", times=2), line=line, resync=resync)
    with pytest.raises(NoReplyError):
        session.query(b"Q1?\n", TIMEOUT)
    assert session.query(b"Q2?\n").data == b"A2"


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
def test_recognised_identities(number, answer, known):
    _, recognises = ScpiResync().variant(number)
    assert recognises(answer) is known


def test_resync_of_a_babbling_instrument_fails(clock):
    server = DeviceServer(clock)
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
    session = QuerySession(
        "switch",
        lambda: serial_stream("switch", device, clock, baud=9600),
        clock,
        framing.Sized(8),
        resync=Resync(quiet),
    )
    session.query(b"Q1\n")
    before = clock.now()
    with pytest.raises(GarbledError, match="keeps sending without a query"):
        session.query(b"Q2\n", TIMEOUT)
    assert clock.now() - before <= TIMEOUT + quiet + slack(clock)
    session.close()
    with talking:
        over.set()
    server.close()


# ------------------------------------------------------------------------------ threads


def test_threads_share_a_session(clock, opened):
    session, instrument = opened(*[Fault(after=0)] * 1000)

    def ask(which):
        numbers = range(which * 100, which * 100 + 25)
        return [session.query(b"Q%d\n" % number).data == b"A%d" % number for number in numbers]

    found = clock.parallel(*[lambda which=which: ask(which) for which in range(1, 9)])
    assert found == [[True] * 25] * 8
    assert session.openings == 1
    assert len(instrument.heard) == 200


def test_exclusive_queries_are_not_interleaved(clock, opened):
    session, instrument = opened()

    def ask(which):
        for _ in range(5):
            with session.exclusive("three questions") as alone:
                for number in range(3):
                    assert alone(b"Q%d\n" % (which * 10 + number)).data[:1] == b"A"

    clock.parallel(*[lambda which=which: ask(which) for which in range(1, 5)])
    numbers = [int(question[1:]) for question in instrument.heard]
    assert len(numbers) == 60
    for first in range(0, 60, 3):
        assert [n - numbers[first] for n in numbers[first : first + 3]] == [0, 1, 2]


def test_flood_ends_with_the_timeout():
    clock, server = SystemClock(), DeviceServer(SystemClock())
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
    session = QuerySession(
        "meter", lambda: tcp_stream("meter", host, port, clock), clock, framing.Lines()
    )
    before = clock.now()
    with pytest.raises(NoReplyError, match="bytes of an unfinished answer"):
        session.query(b"Q1\n", 300 * MS)
    assert clock.now() - before < 300 * MS + slack(clock)
    session.close()
    server.close()


def test_repeated_reply_is_noticed_one_query_later(opened, clock):
    """A reply that is repeated after the next query was written looks like its reply."""
    again = Fault("repeats", after=MS, gap=(10 if clock.virtual else 300) * MS)
    session, instrument = opened(again, Fault(after=5 * MS), Fault(after=MS))
    assert session.query(b"Q1\n").data == b"A1"
    assert session.query(b"Q2\n").data == b"A1"
    until(lambda: instrument.done == 2, clock)
    assert session.query(b"Q3\n").data == b"A3"
    assert "unasked for" in [piece.text for piece in session.trace.pieces()]
    assert session.openings == 2


# ---------------------------------------------------------------- submitted, and collected later


def test_submitted_query_may_be_answered_before_its_result_is_awaited(opened, clock):
    session, _ = opened(Fault(after=10 * MS))
    pending = session.submit(b"Q1\n", LONG)
    written = clock.now()
    clock.sleep(100 * MS)
    answer = pending.result()
    assert answer.data == b"A1"
    assert pending.result() is answer
    assert answer.sent == pending.sent
    assert answer.sent.latest <= written
    assert clock.now() - written <= 100 * MS + slack(clock)


def test_next_query_collects_the_submitted_reply_first(opened, clock):
    session, instrument = opened(Fault(after=10 * MS))
    pending = session.submit(b"Q1\n")
    assert session.query(b"Q2\n").data == b"A2"
    assert pending.result().data == b"A1"
    assert asked(instrument) == ["Q1", "Q2"]
    assert session.openings == 1


@pytest.mark.parametrize("next_first", [False, True])
def test_failed_submitted_query_does_not_affect_the_next(opened, clock, next_first):
    session, _ = opened(Fault(after=TIMEOUT + late(clock)))
    pending = session.submit(b"Q1\n", TIMEOUT)
    if next_first:
        assert session.query(b"Q2\n").data == b"A2"
    for _ in range(2):
        with pytest.raises(NoReplyError, match="sent      Q1"):
            pending.result()
    assert session.query(b"Q3\n").data == b"A3"
    assert session.openings == 2


def test_close_ends_a_submitted_query(opened):
    session, _ = opened(Fault(after=MS))
    pending = session.submit(b"Q1\n", TIMEOUT)
    session.close()
    with pytest.raises(DisconnectedError, match="the connection was given up"):
        pending.result()
    assert session.query(b"Q2\n").data == b"A2"
