"""Commands, queries and the error queue of a SCPI session."""

import contextlib

import pytest
from faulty import MS
from real_time import slack

from instruments.clock import SystemClock
from instruments.errors import DeniedError, GarbledError, NoReplyError
from instruments.simulated.peer_server import PeerServer
from instruments.simulated.scpi_peer import ErrorQueue, Later, ScpiCommands, ScpiDialogue, ScpiError
from instruments.virtual_clock import VirtualClock
from instruments.way import AddressError, Way
from instruments.wire.scpi import scpi_session


class Rig:
    """One instrument, and sessions with it."""

    def __init__(self, clock, stack):
        self.clock = clock
        self.heard = []
        self.errors = ErrorQueue(5)
        self.commands = ScpiCommands("Maker,Meter,SIM-1,1.0", errors=self.errors)
        self.commands.add("SLOW", lambda _: Later(30 * MS))
        self.commands.add("SLOWER", lambda _: Later(300 * MS))
        self.commands.add("SLOW?", lambda _: Later(30 * MS, "slow"))
        self.commands.add("TWICE", self.fail_twice)
        self.commands.add("POWer?", lambda _: "-3.25")
        self.commands.add("LATE:ERRor", self.fail_late)
        self.server = PeerServer(clock)
        stack.callback(self.server.close)
        self.stack = stack

    def fail_twice(self, request):
        self.errors.put(-222, "Data out of range")
        raise ScpiError(-300, 'Device says "no"; really')

    def fail_late(self, request):
        later = self.clock.now() + 60 * MS
        self.clock.schedule(later, "meter", lambda: self.errors.put(-310, "System error"))

    def dialogue(self, connection, index):
        rig = self

        class Heard(ScpiDialogue):
            def received(self, data):
                rig.heard.append(data)
                super().received(data)

        return Heard(connection, self.clock, f"meter#{index}", self.commands)

    def session(self, wire="scpi", **options):
        if wire == "serial":
            way = Way("serial", resource=self.server.serial_line(self.dialogue))
        else:
            way = Way("scpi", *self.server.listen(self.dialogue))
        made = scpi_session("meter", way, self.clock, **options)
        self.stack.callback(made.close)
        return made


@pytest.fixture(params=["virtual", "real"])
def rig(request):
    clock = VirtualClock(patience=20) if request.param == "virtual" else SystemClock()
    with contextlib.ExitStack() as stack:
        stack.callback(clock.close)
        yield Rig(clock, stack)


def test_a_command_and_its_acknowledgement_go_out_in_one_write(rig):
    session = rig.session()
    session.do("SLOW")
    rig.heard.clear()
    before = rig.clock.now()
    done = session.do("SLOW")
    assert rig.heard == [b"SLOW\n:SYST:ERR?\n"]
    assert done.earliest == done.latest
    assert 30 * MS <= done.latest - before < 32 * MS + slack(rig.clock)


def test_an_objection_is_the_error_of_its_own_command(rig):
    meanings = {-222: ("the power is beyond the head", "range 30 dBm")}
    session = rig.session(meanings=meanings)
    with pytest.raises(DeniedError) as raised:
        session.do("TWICE")
    error = raised.value
    assert (error.code, error.text, error.command) == ("-222", "Data out of range", "TWICE")
    assert str(error).splitlines()[:5] == [
        "meter denied a command",
        "  sent      TWICE",
        "  answered  -222 Data out of range",
        "  meaning   the power is beyond the head",
        "  try       range 30 dBm",
    ]
    session.do("*CLS")
    assert session.errors() == []


def test_words_of_an_objection(rig):
    session = rig.session()
    with pytest.raises(DeniedError) as raised:
        session.do("NONSENSE 1")
    assert (raised.value.code, raised.value.text) == ("-113", "Undefined header")
    rig.errors.put(-300, 'Device says "no"; really')
    assert session.errors() == [(-300, 'Device says "no"; really')]


def test_what_stood_in_the_queue_before_is_nobodys(rig):
    rig.errors.put(-100, "from last night")
    session = rig.session()
    session.do("SLOW")
    texts = [piece.text for piece in session.trace.pieces()]
    assert "left from before: -100 from last night" in texts


@pytest.mark.parametrize("wire", ["scpi", "serial"])
def test_an_objection_that_came_after_a_failure_is_nobodys(rig, wire):
    session = rig.session(wire)
    session.do("*CLS")
    session.write("LATE:ERR")
    with pytest.raises(NoReplyError):
        session.do("SLOWER", 10 * MS)
    rig.clock.sleep(400 * MS)
    session.do("SLOW")
    assert session.errors() == []


def test_an_overflow_ends(rig):
    for number in range(20):
        rig.errors.put(-100 - number, "again")
    session = rig.session()
    assert [code for code, _ in session.errors()] == [-100, -101, -102, -103, -350]
    assert session.errors() == []


def test_no_queue(rig):
    session = rig.session(error_query=None)
    session.do("NONSENSE 1")
    assert session.query("POW?").text == "-3.25"
    assert session.errors() == []
    assert not any(b"ERR" in heard for heard in rig.heard)


@pytest.mark.parametrize("answer", ["-3.25", "no idea", ""])
def test_what_is_no_entry_of_a_queue(rig, answer):
    commands = ScpiCommands("Maker,Meter,SIM-1,1.0", error_query="OTHer:ERRor?")
    commands.add("SYSTem:ERRor?", lambda _: answer or "x")
    rig.commands = commands
    session = rig.session()
    with pytest.raises(GarbledError, match="no entry of an error queue") as raised:
        session.do("*CLS")
    assert raised.value.command == ":SYST:ERR?"


def test_what_is_no_block(rig):
    session = rig.session()
    with pytest.raises(
        GarbledError, match=r"no block of data\n  sent      POW\?\n  answered  b'-3"
    ):
        session.query_block("POW?")
    assert session.query("POW?").text == "-3.25"


def test_threads_do_not_take_each_others_errors(rig):
    session = rig.session()
    session.do("*CLS")

    def good():
        for _ in range(8):
            session.do("*CLS")
        return "good"

    def bad():
        for _ in range(8):
            with pytest.raises(DeniedError) as raised:
                session.do("TWICE")
            assert raised.value.code == "-222"
        return "bad"

    assert rig.clock.parallel(good, bad, good, bad) == ["good", "bad", "good", "bad"]


def test_a_wire_that_carries_no_scpi():
    with pytest.raises(AddressError, match="meter: SCPI is spoken over no tl1://"):
        scpi_session("meter", Way("tl1", "127.0.0.1", 1), SystemClock())


def test_other_line_ends(rig):
    session = rig.session(end="\r\n")
    session.do("SLOW")
    assert rig.heard[-1] == b"SLOW\r\n:SYST:ERR?\r\n"
    assert session.query("POW?").text == "-3.25"
