"""HiSLIP, VXI-11 and serial lines through PyVISA behave like a socket, on every clock."""

import contextlib
import gc
import os
import threading
import time

import pytest
from faulty import MS, Fault, Faulty, Lines
from real_time import LONG, over_soon, slack
from unused_ports import unused_ports
from vxi11_instrument import CLEAR, CLOSE, DESTROY_LINK, HALF, vxi11_instrument

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    NoReplyError,
    UnreachableError,
)
from lightrig.instruments.simulated.protocols.commands import command
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.hislip_server import HislipServer, hislip_resource
from lightrig.instruments.simulated.protocols.scpi_device import DelayedReply, ScpiDevice, block
from lightrig.instruments.simulated.protocols.scpi_values import Number
from lightrig.instruments.wire.scpi import scpi_session

DATA = bytes(range(256)) * 20
WIRES = ("scpi", "serial", "hislip", "asrl", "socket")


class Laser(ScpiDevice):
    power = Number("SOURce:POWer", default=0.0, minimum=-10, maximum=10)

    def format_number(self, value):
        return f"{value:.3f}"

    @command("TRACe?")
    def trace(self):
        return block(DATA)

    @command("SLOW?")
    def slow(self):
        return DelayedReply(70 * MS, lambda: "slow")

    @command("SLOWER?")
    def slower(self):
        return DelayedReply(300 * MS, lambda: "slower")


@pytest.fixture(autouse=True)
def _only_new_garbage():
    """Let `gc.collect` look at what a test has made, and not at all tests and libraries."""
    gc.freeze()


@pytest.fixture
def laser(clock):
    """Sessions with one laser over any wire."""
    server = DeviceServer(clock)
    session = Laser("laser", clock, "Maker,Laser,SIM-1,1.0").session

    def endpoint(wire):
        match wire:
            case "scpi":
                return Endpoint("scpi", *server.listen(session))
            case "serial":
                return Endpoint("serial", resource=server.serial_line(session))
            case "hislip":
                return Endpoint(
                    "visa", resource=hislip_resource(*server.listen(HislipServer(session)))
                )
            case "asrl":
                return Endpoint("visa", resource=f"ASRL{server.serial_line(session)}::INSTR")
            case _:
                return Endpoint(
                    "visa", resource="TCPIP::{}::{}::SOCKET".format(*server.listen(session))
                )

    yield endpoint
    server.close()


@pytest.fixture
def opened(clock):
    with contextlib.ExitStack() as stack:

        def make(endpoint, name="laser"):
            session = scpi_session(name, endpoint, clock)
            stack.callback(session.close)
            return session

        yield make


@pytest.mark.parametrize("wire", WIRES)
def test_all_wires_return_equal_replies(laser, opened, wire):
    session = opened(laser(wire))
    assert session.query("*IDN?").text == "Maker,Laser,SIM-1,1.0"
    session.do("SOUR:POW -3.25")
    assert session.query("SOUR:POW?").text == "-3.250"
    session.write(":SOURCE:POWER 1")
    assert session.query("SOUR:POW?;:SOUR:POW?").text == "1.000;1.000"
    assert session.query_block("TRAC?") == DATA
    with pytest.raises(DeniedError) as raised:
        session.do("SOUR:POW much")
    assert raised.value.code == "-121"
    assert session.errors() == []


@pytest.mark.parametrize("wire", WIRES)
def test_all_wires_show_the_instruments_delay(laser, opened, clock, wire):
    session = opened(laser(wire))
    reply = session.query("SLOW?")
    assert reply.text == "slow"
    took = reply.received - reply.sent.earliest
    assert 70 * MS <= took <= 71 * MS + slack(clock)


@pytest.mark.parametrize("wire", WIRES)
def test_reply_after_a_timeout_matches_its_query(laser, opened, clock, wire):
    session = opened(laser(wire))
    for _ in range(2):
        before = clock.now()
        with pytest.raises(NoReplyError, match=r"laser did not answer within 0\.04 s"):
            session.query("SLOW?" if clock.virtual else "SLOWER?", 40 * MS)
        if wire != "asrl":  # which first finds out that there is nothing to regain
            assert clock.now() - before <= 50 * MS + slack(clock)
        assert session.query("SOUR:POW?").text == "0.000"


def test_hislip_stamps_are_reproducible():
    def run():
        clock = VirtualClock(stall_timeout=20)
        server = DeviceServer(clock)
        stamps = []

        def meter(number):
            class Meter(ScpiDevice):
                @command("POW?")
                def power(self):
                    return DelayedReply(number * MS, lambda: str(number))

            made = Meter(f"meter{number}", clock, "Maker,Meter,SIM-1,1.0")
            resource = hislip_resource(*server.listen(HislipServer(made.session)))
            return scpi_session("meter", Endpoint("visa", resource=resource), clock)

        meters = [meter(number) for number in (3, 5, 7)]
        for _ in range(5):
            replies = clock.parallel(*[lambda m=m: m.query("POW?") for m in meters])
            stamps += [(reply.text, reply.sent, reply.received) for reply in replies]
        for each in meters:
            each.close()
        server.close()
        clock.close()
        return stamps

    first = run()
    assert {run() == first for _ in range(4)} == {True}


# ------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("resource", "why"),
    [
        ("TCPIP::127.0.0.1::hislip0,{port}::INSTR", "refused"),
        ("TCPIP::127.0.0.1,{port}::inst0::INSTR", "did not answer"),
        ("TCPIP::127.0.0.1::{port}::SOCKET", "refused"),
        ("ASRL/dev/lightrig-none::INSTR", "No such file"),
        ("TCPIP::meter.invalid::INSTR", "placeholders"),
        ("TCPIP::meter.invalid::hislip0::INSTR", "placeholders"),
        ("what is this", "name as `pyvisa-shell` lists them"),
        ("GPIB0::7::INSTR", "did not answer at GPIB0::7::INSTR"),
    ],
)
def test_missing_instrument_is_unreachable(opened, resource, why):
    (port,) = unused_ports()
    with over_soon(), pytest.raises(UnreachableError, match=why):
        opened(Endpoint("visa", resource=resource.format(port=port))).query("*IDN?")
    gc.collect()  # sockets that were left open would be warned of here


@pytest.mark.parametrize("how", ["slams the door", "babbles", "another sub-address"])
def test_non_hislip_server_is_unreachable(opened, clock, how):
    class Stranger:
        def __init__(self, connection, index):
            self.connection = connection

        def received(self, data):
            if how == "slams the door":
                self.connection.close()
            else:
                self.connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        def closed(self):
            pass

    server = DeviceServer(SystemClock())
    if how == "another sub-address":
        peer = HislipServer(Stranger)
        resource = hislip_resource(*server.listen(peer)).replace("hislip0", "hislip7")
    else:
        resource = hislip_resource(*server.listen(Stranger))
    with pytest.raises(UnreachableError):
        opened(Endpoint("visa", resource=resource)).query("*IDN?")
    gc.collect()
    server.close()


def test_serial_line_is_exclusive(laser, opened):
    endpoint = laser("asrl")
    first, second = opened(endpoint), opened(endpoint)
    assert first.query("*IDN?")
    with pytest.raises(UnreachableError, match="unavailable"):
        second.query("*IDN?")
    first.close()
    assert second.query("*IDN?")


def test_pyvisa_library_selects_the_backend(laser, opened, monkeypatch):
    monkeypatch.setenv("PYVISA_LIBRARY", "/nowhere/libvisa.so")
    with pytest.raises(UnreachableError, match="nowhere"):
        opened(laser("hislip")).query("*IDN?")


# --------------------------------------------------------------------------------- VXI-11


def answers(command):
    text = command.decode().strip()
    if text.endswith("*IDN?"):
        return b"0;" * text.count("*ESE?") + b"Maker,Meter,SIM-1,1.0\n"
    return {
        "POW?": b"-3.25\n",
        "BARE?": b"-3.25",
        "TRAC?": block(DATA) + b"\n",
        "BARE:TRAC?": block(DATA[:200]),
        "CLOSE?": CLOSE,
        "HALF?": HALF,
    }.get(text)


@pytest.fixture
def vxi11():
    clock = SystemClock()
    with vxi11_instrument(answers) as instrument:
        session = scpi_session("meter", Endpoint("visa", resource=instrument.resource), clock)
        yield session, instrument
        session.close()
    clock.close()


def test_vxi11(vxi11):
    session, instrument = vxi11
    assert session.query("POW?").text == "-3.25"
    assert session.query("BARE?").text == "-3.25"
    assert session.query_block("TRAC?") == DATA
    assert session.query_block("BARE:TRAC?") == DATA[:200]
    session.write("POW:UNIT DBM")
    assert instrument.heard[-1] == b"POW:UNIT DBM\n"
    assert instrument.calls.count(CLEAR) == 1  # what an earlier session left is gone
    session.close()
    assert instrument.calls[-1] == DESTROY_LINK


def test_vxi11_timeout(vxi11):
    session, instrument = vxi11
    with over_soon(), pytest.raises(NoReplyError, match=r"meter did not answer within 0\.1 s"):
        session.query("SILENT?", 100 * MS)
    assert session.query("POW?").text == "-3.25"
    assert instrument.heard[-2:] == [b"*IDN?\n", b"POW?\n"]
    assert instrument.calls.count(CLEAR) == 2


@pytest.mark.parametrize("whole", [65535, 65536, 65537, 131072, 196608])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_vxi11_reply_of_whole_chunks(whole, end):
    """pyvisa-py 608: the end of a reply is overlooked where it fills a read."""
    head = len(str(whole)) + 2
    data = bytes(i % 251 for i in range(whole - head - len(end)))
    reply = b"#%d%0*d" % (head - 2, head - 2, len(data)) + data + end
    assert len(reply) == whole
    clock = SystemClock()
    with vxi11_instrument(
        lambda command: reply if b"TRAC" in command else answers(command)
    ) as instrument:
        session = scpi_session("meter", Endpoint("visa", resource=instrument.resource), clock)
        with over_soon():
            assert session.query_block("TRAC?", LONG) == data
        assert session.query("POW?").text == "-3.25"
        session.close()
    clock.close()


@pytest.mark.parametrize("how", ["CLOSE?", "HALF?"])
def test_vxi11_close_is_noticed_at_once(vxi11, how, caplog):
    """PyVISA alone would read from the closed connection again and again for 31 s."""
    session, _ = vxi11
    for _ in range(5):
        assert session.query("POW?").text == "-3.25"
        cpu = time.process_time()
        with over_soon(), pytest.raises(DisconnectedError):
            session.query(how, LONG)
        assert time.process_time() - cpu < 2
    session.close()
    del session
    gc.collect()
    assert not caplog.records  # the library tries to close what it finds open once more


# ---------------------------------------------------------- a library that would be misled


def test_hislip_cut_within_a_stray_message():
    """PyVISA discards a stray message, and would read for ever at its end."""
    clock, server = SystemClock(), DeviceServer(SystemClock())
    instrument = Faulty(clock, Lines(), [Fault()] * 9)
    sent = []

    class Cutting(HislipServer):
        def client(self, connection, flight):
            client = super().client(connection, flight)

            def answer(data):
                stray = b"HS" + bytes([7, 0]) + b"\0\0\0\7" + (100).to_bytes(8) + b"stray"
                sent.append(stray)
                connection.send(stray)
                connection.close()

            client.send = answer
            return client

    resource = hislip_resource(*server.listen(Cutting(instrument.session)))
    session = scpi_session("meter", Endpoint("visa", resource=resource), clock)
    cpu = time.process_time()
    with over_soon(), pytest.raises(DisconnectedError):
        session.query("Q1?", LONG)
    assert time.process_time() - cpu < 2
    assert sent
    session.close()
    server.close()


_SESSIONS = 12
"""Each would leave one; the server's end of the first may still be open when counting begins."""


def _most_more(before, now):
    return max(after - first for first, after in zip(before, now, strict=True))


@pytest.mark.parametrize("wire", WIRES)
def test_closed_session_leaves_no_descriptor_and_no_thread(laser, clock, wire):
    endpoint = laser(wire)

    def opened():
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    def query():
        session = scpi_session("laser", endpoint, clock)
        assert session.query("SOUR:POW?").text == "0.000"
        session.close()

    query()  # the library keeps what its first session has opened
    before = opened()
    for _ in range(_SESSIONS):
        query()
    # The server of this process closes its ends later than the session has closed its own.
    until = time.monotonic() + 30
    while _most_more(before, opened()) >= _SESSIONS and time.monotonic() < until:
        time.sleep(0.01)
    assert _most_more(before, opened()) < _SESSIONS
