"""Commands, queries and the error queue of a SCPI session."""

import contextlib

import pytest
from faulty import MS
from real_time import slack

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.endpoint import AddressError, Endpoint
from lightrig.instruments.core.errors import DeniedError, GarbledError, NoReplyError
from lightrig.instruments.simulated.protocols.commands import command
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.scpi_device import (
    DelayedReply,
    ScpiDevice,
    ScpiServerSession,
)
from lightrig.instruments.simulated.protocols.scpi_values import ScpiError
from lightrig.instruments.wire.scpi import scpi_session


class Meter(ScpiDevice):
    error_queue_depth = 5

    def __init__(self, clock):
        super().__init__("meter", clock, "Maker,Meter,SIM-1,1.0")

    @command("SLOW")
    def slow(self):
        return DelayedReply(30 * MS)

    @command("SLOWER")
    def slower(self):
        return DelayedReply(300 * MS)

    @command("SLOW?")
    def query_slow(self):
        return DelayedReply(30 * MS, lambda: "slow")

    @command("TWICE")
    def fail_twice(self):
        self.errors.put(-222, "Data out of range")
        raise ScpiError(-300, 'Device says "no"; really')

    @command("POWer?")
    def power(self):
        return "-3.25"

    @command("LATE:ERRor")
    def fail_late(self):
        later = self.clock.now() + 60 * MS
        self.clock.schedule(later, "meter", lambda: self.errors.put(-310, "System error"))


class Rig:
    """One instrument, and sessions with it."""

    def __init__(self, clock, stack):
        self.clock = clock
        self.heard = []
        self.meter = Meter(clock)
        self.server = DeviceServer(clock)
        stack.callback(self.server.close)
        self.stack = stack

    def dialogue(self, connection, index):
        rig = self

        class Heard(ScpiServerSession):
            def received(self, data):
                rig.heard.append(data)
                super().received(data)

        return Heard(self.meter, connection, f"meter#{index}")

    def session(self, wire="scpi", **options):
        if wire == "serial":
            endpoint = Endpoint("serial", resource=self.server.serial_line(self.dialogue))
        else:
            endpoint = Endpoint("scpi", *self.server.listen(self.dialogue))
        made = scpi_session("meter", endpoint, self.clock, **options)
        self.stack.callback(made.close)
        return made


@pytest.fixture(params=["virtual", "real"])
def rig(request):
    clock = VirtualClock(stall_timeout=20) if request.param == "virtual" else SystemClock()
    with contextlib.ExitStack() as stack:
        stack.callback(clock.close)
        yield Rig(clock, stack)


def test_command_and_error_query_are_one_write(rig):
    session = rig.session()
    session.do("SLOW")
    rig.heard.clear()
    before = rig.clock.now()
    done = session.do("SLOW")
    assert rig.heard == [b"SLOW\n:SYST:ERR?\n"]
    assert done.earliest == done.latest
    assert 30 * MS <= done.latest - before < 32 * MS + slack(rig.clock)


def test_error_queue_entry_is_the_error_of_its_command(rig):
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


def test_error_text_and_meaning(rig):
    session = rig.session()
    with pytest.raises(DeniedError) as raised:
        session.do("NONSENSE 1")
    assert (raised.value.code, raised.value.text) == ("-113", "Undefined header")
    rig.meter.errors.put(-300, 'Device says "no"; really')
    assert session.errors() == [(-300, 'Device says "no"; really')]


def test_old_queue_entries_are_discarded_at_opening(rig):
    rig.meter.errors.put(-100, "from last night")
    session = rig.session()
    session.do("SLOW")
    texts = [piece.text for piece in session.trace.pieces()]
    assert "left from before: -100 from last night" in texts


@pytest.mark.parametrize("wire", ["scpi", "serial"])
def test_queue_entries_after_a_failure_are_discarded(rig, wire):
    session = rig.session(wire)
    session.do("*CLS")
    session.write("LATE:ERR")
    with pytest.raises(NoReplyError):
        session.do("SLOWER", 10 * MS)
    rig.clock.sleep(400 * MS)
    session.do("SLOW")
    assert session.errors() == []


def test_endless_error_queue_is_left_after_a_bound(rig):
    for number in range(20):
        rig.meter.errors.put(-100 - number, "again")
    session = rig.session()
    assert [code for code, _ in session.errors()] == [-100, -101, -102, -103, -350]
    assert session.errors() == []


def test_instrument_without_error_queue(rig):
    session = rig.session(error_query=None)
    session.do("NONSENSE 1")
    assert session.query("POW?").text == "-3.25"
    assert session.errors() == []
    assert not any(b"ERR" in heard for heard in rig.heard)


@pytest.mark.parametrize("answer", ["-3.25", "no idea", ""])
def test_malformed_queue_entry_raises_garbled_error(rig, answer):
    rig.meter.next_error = lambda: answer or "x"
    session = rig.session()
    with pytest.raises(GarbledError, match="no entry of an error queue") as raised:
        session.do("*CLS")
    assert raised.value.command == ":SYST:ERR?"


def test_malformed_block_raises_garbled_error(rig):
    session = rig.session()
    with pytest.raises(
        GarbledError, match=r"no block of data\n  sent      POW\?\n  answered  b'-3"
    ):
        session.query_block("POW?")
    assert session.query("POW?").text == "-3.25"


def test_concurrent_threads_get_the_errors_of_their_commands(rig):
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


def test_unsupported_scheme_raises_address_error():
    with pytest.raises(AddressError, match="meter: SCPI is spoken over no tl1://"):
        scpi_session("meter", Endpoint("tl1", "127.0.0.1", 1), SystemClock())


def test_configurable_terminator(rig):
    session = rig.session(end="\r\n")
    session.do("SLOW")
    assert rig.heard[-1] == b"SLOW\r\n:SYST:ERR?\r\n"
    assert session.query("POW?").text == "-3.25"
