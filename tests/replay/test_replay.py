"""A session that was recorded can be had again: its answers, its delays and its faults."""

import contextlib
import json

import pytest

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    NoReplyError,
)
from lightrig.instruments.core.transcript import Piece, Transcript, TranscriptError, read
from lightrig.instruments.simulated.faults.replay_device import ReplayDevice
from lightrig.instruments.simulated.protocols.commands import command
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.listeners import serve
from lightrig.instruments.simulated.protocols.scpi_device import DelayedReply, ScpiDevice, block
from lightrig.instruments.simulated.protocols.scpi_values import Number
from lightrig.instruments.simulated.protocols.tl1_device import (
    Tl1Denial,
    Tl1Device,
    Tl1Reply,
    Tl1ServerSession,
)
from lightrig.instruments.wire.scpi import scpi_session
from lightrig.instruments.wire.tl1 import Tl1Session
from lightrig.instruments.wire.trace import record, recorder_of

MS = 1_000_000
PASSWORD = "hunter2-and-more"
DATA = bytes(range(256)) * 3


@pytest.fixture
def stage(clock, tmp_path):
    """Lets instruments be recorded, and recordings be asked."""
    return Stage(clock, tmp_path / "traces")


class Stage:
    def __init__(self, clock, folder):
        self.clock = clock
        self.folder = folder
        self.unknown = []

    @contextlib.contextmanager
    def recording(self, session):
        """Serve `session` and record what is asked of it."""
        server = DeviceServer(self.clock)
        recorder = record(self.clock, self.folder)
        yield server
        recorder.close()
        server.close()

    @contextlib.contextmanager
    def replaying(self, transcript=None):
        """A endpoint to the recorded instrument."""
        server = DeviceServer(self.clock)
        transcript = transcript or read(next(self.folder.iterdir()))
        peer = ReplayDevice(transcript, self.clock, self.unknown.append)
        service = serve(peer.name, peer, peer.scheme, server, ("", ""), resource=peer.resource)
        yield Endpoint(
            service.scheme, service.host, service.port or None, resource=service.resource
        )
        server.close()


class Laser(ScpiDevice):
    schemes = ("scpi", "serial")
    power = Number("POWer", default=0.0, minimum=-10, maximum=10)

    def __init__(self, clock):
        super().__init__("laser", clock, "Maker,Laser,SIM-1,1.0")

    def format_number(self, value):
        return f"{value:.3f}"

    @command("TRACe?")
    def trace(self):
        return block(DATA)

    @command("SLOW?")
    def slow(self):
        return DelayedReply(70 * MS, lambda: "slow")


def script(session):
    """Query as a driver does; return all replies."""
    learnt = [session.query("*IDN?").text, session.query("POW?").text]
    for power in (1.5, -3):
        session.do(f"POW {power}")
        reply = session.query("POW?")
        learnt += [reply.text, reply.received - reply.sent.earliest]
    learnt.append(session.query_block("TRAC?"))
    with pytest.raises(DeniedError) as raised:
        session.do("NONSENSE")
    learnt.append(raised.value.code)
    reply = session.query("SLOW?")
    return [*learnt, reply.text, reply.received - reply.sent.earliest]


@pytest.mark.parametrize("wire", ["scpi", "serial", "visa", "asrl"])
def test_the_same_questions_have_the_same_answers_after_the_same_time(stage, clock, wire):
    with stage.recording(None) as server:
        scheme = "visa" if wire == "asrl" else wire
        resource = "ASRL::INSTR" if wire == "asrl" else ""
        service = serve("laser", Laser(clock), scheme, server, ("", ""), resource=resource)
        endpoint = Endpoint(
            service.scheme, service.host, service.port or None, resource=service.resource
        )
        session = scpi_session("laser", endpoint, clock)
        before = script(session)
        session.close()
    transcript = read(stage.folder / "laser.jsonl")
    assert transcript.about["instrument"] == "laser"
    assert transcript.about["clock"] == "virtual"
    with stage.replaying() as endpoint:
        assert endpoint.scheme == scheme
        session = scpi_session("second", endpoint, clock)
        again = script(session)
        session.close()
    assert again == before
    assert stage.unknown == []


class Switch(Tl1Device):
    def __init__(self, clock):
        super().__init__("ocs", clock, ("bench", PASSWORD))
        self.circuits = {}

    def log_in(self, request):
        if request.blocks[1].strip('"') != PASSWORD:
            raise Tl1Denial("PICC", "Authentication failure")
        request.session.user = "bench"
        return Tl1Reply()

    @command("ENT-PATCH")
    def connect(self, request):
        self.circuits.update([request.aid.split(",")])
        return Tl1Reply((), 40 * MS)

    @command("RTRV-PATCH")
    def retrieve(self, request):
        return Tl1Reply([f"{i},{e}" for i, e in sorted(self.circuits.items())])

    @command("RTRV-HDR")
    def keep_alive(self, request):
        return Tl1Reply((), 10 * MS)


def move(session):
    found = [session.command("RTRV-PATCH").lines]
    for circuit in ("1,17", "2,18"):
        began = session.submit("ENT-PATCH", circuit)
        listed = session.submit("RTRV-PATCH")
        found += [began.result().received - began.sent.earliest, listed.result().lines]
    with pytest.raises(DeniedError) as raised:
        session.command("NONSENSE")
    return [*found, raised.value.code, raised.value.text, str(raised.value).splitlines()[2]]


def test_tl1_with_new_tags_and_without_the_password(stage, clock):
    with stage.recording(None) as server:
        address = server.listen(Switch(clock).session)
        session = Tl1Session("ocs", *address, clock, ("bench", PASSWORD))
        before = move(session)
        session.close()
    assert PASSWORD not in (stage.folder / "ocs.jsonl").read_text()
    assert "DENY IICM Invalid command" in before[-1]
    with stage.replaying() as endpoint:
        assert endpoint.scheme == "tl1"
        session = Tl1Session(
            "ocs", endpoint.host, endpoint.port, clock, ("bench", "another password")
        )
        for _ in range(3):
            with pytest.raises(DeniedError, match="Not in the recording"):
                session.command("RTRV-HDR")
        assert move(session) == before
        session.close()
    assert [question.split(b":")[0] for question in stage.unknown] == [b"RTRV-HDR"] * 3


def test_reports_are_sent_again(stage, clock):
    class Reporting(Tl1ServerSession):
        def received(self, data):
            super().received(data)
            clock.schedule(clock.now() + 3 * MS, "ocs", lambda: self.report("FAN-FAIL"))

    def session(connection, index):
        made = Reporting(Switch(clock), connection, "o")
        made.user = "bench"
        return made

    with stage.recording(None) as server:
        one_ = Tl1Session("ocs", *server.listen(session), clock)
        one_.command("RTRV-HDR")
        assert len(one_.reports) == 1
        one_.close()
    with stage.replaying() as endpoint:
        again = Tl1Session("ocs", endpoint.host, endpoint.port, clock)
        again.command("RTRV-HDR")
        assert ["FAN-FAIL" in report for report in again.reports] == [True]
        again.close()


# ------------------------------------------------------------------------------- faults


class Failing:
    """Answers *IDN?, and then fails as it is asked to."""

    def __init__(self, connection, clock):
        self.connection = connection
        self.clock = clock

    def received(self, data):
        self.clock.schedule(self.clock.now() + 5 * MS, "f", lambda: self.answer(data))

    def answer(self, data):
        say, end = self.connection.send, self.connection.close
        match data.strip():
            case b"*IDN?":
                say(b"Maker,Meter,SIM-1,1.0\n")
            case b"CLOSE?":
                say(b"-3.2")
                end()
            case b"RESET?":
                end(abruptly=True)
            case b"GARBAGE?":
                say(b"\xff\x00\xfe\n")
            case b"BAD:BLOCK?":
                say(b"#3abc\n")
            case b"LATE?":
                self.clock.schedule(self.clock.now() + 80 * MS, "f", lambda: say(b"late\n"))
            case b"ONCE?":
                say(b"once\n")

    def closed(self):
        pass


def fail(session, clock):
    reported = [session.query("*IDN?").text]
    for question, kind in (
        ("CLOSE?", DisconnectedError),
        ("RESET?", DisconnectedError),
        ("SILENT?", NoReplyError),
        ("BAD:BLOCK?", GarbledError),
        ("LATE?", NoReplyError),
    ):
        before = clock.now()
        with pytest.raises(kind) as raised:
            session.query(question, 50 * MS)
        reported += [str(raised.value).splitlines()[:3], clock.now() - before]
        reported.append(session.query("*IDN?").text)
    return [*reported, session.query("GARBAGE?").text]


@pytest.mark.parametrize("wire", ["scpi", "serial"])
def test_a_fault_that_was_recorded_comes_again(stage, clock, wire):
    def session(connection, _):
        return Failing(connection, clock)

    with stage.recording(None) as server:
        if wire == "scpi":
            endpoint = Endpoint("scpi", *server.listen(session))
        else:
            endpoint = Endpoint("serial", resource=server.serial_line(session))
        asker = scpi_session("meter", endpoint, clock)
        before = (fail if wire == "scpi" else fail_silently)(asker, clock)
        asker.close()
    with stage.replaying() as endpoint:
        asker = scpi_session("meter", endpoint, clock)
        assert (fail if wire == "scpi" else fail_silently)(asker, clock) == before
        asker.close()
    assert stage.unknown == []


def fail_silently(session, clock):
    """On a line that cannot hang up."""
    reported = []
    for question in ("SILENT?", "LATE?"):
        with pytest.raises(NoReplyError) as raised:
            session.query(question, 50 * MS)
        reported.append(str(raised.value).splitlines()[:3])
        reported.append(session.query("*IDN?").text)
    return reported


def test_instrument_that_closes_every_connection(stage, clock):
    class Door:
        def __init__(self, connection):
            clock.schedule(clock.now() + MS, "door", connection.close)

        def received(self, data):
            pass

        def closed(self):
            pass

    def knock(endpoint):
        session = scpi_session("meter", endpoint, clock)
        with pytest.raises(DisconnectedError):
            session.query("*IDN?")
        session.close()

    with stage.recording(None) as server:
        knock(Endpoint("scpi", *server.listen(lambda connection, _: Door(connection))))
    with stage.replaying() as endpoint:
        knock(endpoint)
        knock(endpoint)


# ------------------------------------------------------------------------- many questions


def transcript_of(*pieces, wire="scpi://127.0.0.1:1"):
    found = [Piece(0, 1, "open", wire.encode())]
    for at, (question, answer) in enumerate(pieces, 1):
        found.append(Piece(at * MS, 1, ">", question))
        if answer is not None:
            found.append(Piece(at * MS + 1000, 1, "<", answer))
    return Transcript({"instrument": "meter"}, tuple(found))


def test_answers_follow_the_order_of_the_recording(stage, clock):
    pieces = [(b"P?\n", b"1\n"), (b"SET 2\n", None), (b"P?\n", b"2\n"), (b"P?\n", b"3\n")]
    with stage.replaying(transcript_of(*pieces)) as endpoint:
        session = scpi_session("meter", endpoint, clock, error_query=None)
        assert session.query("P?").text == "1"
        session.write("SET 2")
        assert [session.query("P?").text for _ in range(4)] == ["2", "3", "3", "3"]
        session.close()


def test_a_question_that_is_part_of_another(stage, clock):
    pieces = [(b"A?\n", b"a\n"), (b"A?\nB?\n", b"ab\n"), (b"A?\nB?\nC?\n", b"abc\n")]
    with stage.replaying(transcript_of(*pieces)) as endpoint:
        session = scpi_session("meter", endpoint, clock, error_query=None)
        for question, answer in pieces[::-1]:
            assert session.query(question.decode().rstrip()).text == answer.decode().rstrip()
        session.close()


def test_unrecorded_query_is_reported_and_not_answered(stage, clock):
    with stage.replaying(transcript_of((b"P?\n", b"1\n"))) as endpoint:
        session = scpi_session("meter", endpoint, clock, error_query=None)
        session.write("SET 3")
        assert session.query("P?").text == "1"
        with pytest.raises(NoReplyError):
            session.query("Q?", 50 * MS)
        session.close()
    assert stage.unknown == [b"SET 3\n", b"Q?\n"]


def test_a_secret_may_be_any_word(stage, clock):
    pieces = [(b"LOGIN bench,***\n", b"OK\n"), (b"P?\n", b"1\n")]
    with stage.replaying(transcript_of(*pieces)) as endpoint:
        session = scpi_session("meter", endpoint, clock, error_query=None)
        assert session.query("LOGIN bench,swordfish").text == "OK"
        assert session.query("P?").text == "1"
        session.close()
    assert stage.unknown == []


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [
        ("LOGIN ***b***,***b", "LOGIN ab,bb,abb"),
        ("LOGIN ***:***b***", "LOGIN a:b"),
        ("LOGIN ***" + "a***" * 20 + "b", "LOGIN " + "a" * 120 + "b"),
    ],
)
def test_a_question_may_hide_several_secrets(stage, clock, recorded, asked):
    pieces = [(f"{recorded}\n".encode(), b"OK\n"), (b"P?\n", b"1\n")]
    with stage.replaying(transcript_of(*pieces)) as endpoint:
        session = scpi_session("meter", endpoint, clock, error_query=None)
        assert session.query(asked).text == "OK"
        assert session.query("P?").text == "1"
        session.close()
    assert stage.unknown == []


def test_a_question_that_matches_many_secrets_nearly_keeps_no_other_waiting(stage, clock):
    """Where every way to divide the question was tried, the process stood still for ever."""
    pieces = [(b"LOGIN ***" + b"a***" * 20 + b"b\n", b"OK\n"), (b"P?\n", b"1\n")]
    with stage.replaying(transcript_of(*pieces)) as endpoint:
        session = scpi_session("meter", endpoint, clock, error_query=None)
        session.write("LOGIN " + "a" * 120)
        assert session.query("P?").text == "1"
        session.close()
    assert stage.unknown == [b"LOGIN " + b"a" * 120 + b"\n"]


@pytest.mark.parametrize("wire", ["restconf://host", "netconf://host:830", ""])
def test_wires_that_cannot_be_replayed(clock, wire):
    with pytest.raises(
        TranscriptError, match="what can be replayed is tl1, scpi, serial, simserv, ssh, visa"
    ):
        ReplayDevice(transcript_of(wire=wire), clock)


# ----------------------------------------------------------------------------- recording


def test_a_recording_is_begun_and_ended(stage, clock, tmp_path):
    server = DeviceServer(clock)
    endpoint = Endpoint("scpi", *server.listen(Laser(clock).session))
    first = scpi_session("laser", endpoint, clock)
    first.query("*IDN?")  # before anybody recorded
    recorder = record(clock, stage.folder)
    assert recorder_of(clock) is recorder
    assert not stage.folder.exists()
    recorder.describe("laser", model="some-laser", identity="Maker Laser, serial 1")
    sessions = [scpi_session("laser", endpoint, clock) for _ in range(2)]
    for session in sessions:
        session.query("*IDN?")
    first.query("POW?")  # its endpoint was open already
    recorder.close()
    assert recorder_of(clock) is None
    sessions[0].query("POW?")
    for session in (first, *sessions):
        session.close()
    server.close()
    transcript = read(stage.folder / "laser.jsonl")
    assert transcript.about["model"] == "some-laser"
    assert [(piece.session, piece.kind) for piece in transcript.pieces] == [
        (1, "open"), (1, ">"), (1, "<"), (2, "open"), (2, ">"), (2, "<"),
    ]  # fmt: skip
    assert transcript.pieces[0].data.decode() == str(endpoint)


def test_a_second_recording_does_not_overwrite_the_first(clock, tmp_path):
    for _ in range(3):
        recorder = record(clock, tmp_path)
        recorder.describe("../ocs 1", model="polatis")
        recorder.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".._ocs_1-2.jsonl",
        ".._ocs_1-3.jsonl",
        ".._ocs_1.jsonl",
    ]


def test_a_recording_that_is_killed_is_there_line_by_line(stage, clock):
    server = DeviceServer(clock)
    recorder = record(clock, stage.folder)
    session = scpi_session("laser", Endpoint("scpi", *server.listen(Laser(clock).session)), clock)
    session.query("*IDN?")
    lines = (stage.folder / "laser.jsonl").read_text().splitlines()
    kinds = [json.loads(line).get("kind") for line in lines]
    assert kinds == [None, "open", ">", "<"]
    recorder.close()
    session.close()
    server.close()


def test_clocks_are_recorded_apart(clock, tmp_path):
    second = SystemClock()
    recorder = record(second, tmp_path)
    assert recorder_of(clock) is None
    assert recorder_of(second) is recorder
    recorder.close()
    second.close()
