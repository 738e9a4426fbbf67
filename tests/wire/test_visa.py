"""The PyVISA way: HiSLIP, VXI-11 and serial lines answer as a socket does, on every clock."""

import contextlib
import gc
import socket
import time

import pytest
from faulty import MS, Fault, Faulty, Lines
from real_time import LONG, over_soon, slack
from vxi11_instrument import CLEAR, CLOSE, DESTROY_LINK, HALF, vxi11_instrument

from instruments.clock import SystemClock
from instruments.errors import (
    DeniedError,
    DisconnectedError,
    NoReplyError,
    UnreachableError,
)
from instruments.simulated.hislip_peer import HislipPeer, hislip_resource
from instruments.simulated.peer_server import PeerServer
from instruments.simulated.scpi_peer import (
    Later,
    ScpiCommands,
    ScpiDialogue,
    block,
    number,
    one,
)
from instruments.virtual_clock import VirtualClock
from instruments.way import Way
from instruments.wire.scpi import scpi_session

DATA = bytes(range(256)) * 20
WIRES = ("scpi", "serial", "hislip", "asrl", "socket")


@pytest.fixture(params=["virtual", "real"])
def clock(request):
    made = VirtualClock(patience=20) if request.param == "virtual" else SystemClock()
    yield made
    made.close()


@pytest.fixture
def laser(clock):
    """A way to one laser over any wire."""
    server = PeerServer(clock)
    power = {"dBm": 0.0}
    commands = ScpiCommands("Maker,Laser,SIM-1,1.0")
    commands.add("SOURce:POWer", lambda request: power.update(dBm=number(one(request))))
    commands.add("SOURce:POWer?", lambda _: f"{power['dBm']:.3f}")
    commands.add("TRACe?", lambda _: block(DATA))
    commands.add("SLOW?", lambda _: Later(70 * MS, "slow"))
    commands.add("SLOWER?", lambda _: Later(300 * MS, "slower"))

    def session(connection, index):
        return ScpiDialogue(connection, clock, f"laser#{index}", commands)

    def way(wire):
        match wire:
            case "scpi":
                return Way("scpi", *server.listen(session))
            case "serial":
                return Way("serial", resource=server.serial_line(session))
            case "hislip":
                return Way("visa", resource=hislip_resource(*server.listen(HislipPeer(session))))
            case "asrl":
                return Way("visa", resource=f"ASRL{server.serial_line(session)}::INSTR")
            case _:
                return Way("visa", resource="TCPIP::{}::{}::SOCKET".format(*server.listen(session)))

    yield way
    server.close()


@pytest.fixture
def opened(clock):
    with contextlib.ExitStack() as stack:

        def make(way, name="laser"):
            session = scpi_session(name, way, clock)
            stack.callback(session.close)
            return session

        yield make


@pytest.mark.parametrize("wire", WIRES)
def test_every_wire_answers_the_same(laser, opened, wire):
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
def test_every_wire_takes_as_long_as_the_instrument(laser, opened, clock, wire):
    session = opened(laser(wire))
    reply = session.query("SLOW?")
    assert reply.text == "slow"
    took = reply.received - reply.sent.earliest
    assert 70 * MS <= took <= 71 * MS + slack(clock)


@pytest.mark.parametrize("wire", WIRES)
def test_after_a_timeout_the_next_answer_is_its_own(laser, opened, clock, wire):
    session = opened(laser(wire))
    for _ in range(2):
        before = clock.now()
        with pytest.raises(NoReplyError, match=r"laser did not answer within 0\.04 s"):
            session.query("SLOW?" if clock.virtual else "SLOWER?", 40 * MS)
        if wire != "asrl":  # which first finds out that there is nothing to regain
            assert clock.now() - before <= 50 * MS + slack(clock)
        assert session.query("SOUR:POW?").text == "0.000"


def test_one_seed_of_moments_over_hislip():
    def run():
        clock = VirtualClock(patience=20)
        server = PeerServer(clock)
        stamps = []

        def meter(number):
            commands = ScpiCommands("Maker,Meter,SIM-1,1.0")
            commands.add("POW?", lambda _: Later(number * MS, str(number)))

            def session(connection, index):
                return ScpiDialogue(connection, clock, f"meter{number}#{index}", commands)

            resource = hislip_resource(*server.listen(HislipPeer(session)))
            return scpi_session("meter", Way("visa", resource=resource), clock)

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
def test_where_nothing_answers(opened, resource, why):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with over_soon(), pytest.raises(UnreachableError, match=why):
        opened(Way("visa", resource=resource.format(port=port))).query("*IDN?")
    gc.collect()  # sockets that were left open would be warned of here


@pytest.mark.parametrize("how", ["slams the door", "babbles", "another sub-address"])
def test_what_is_no_hislip_server(opened, clock, how):
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

    server = PeerServer(SystemClock())
    if how == "another sub-address":
        peer = HislipPeer(Stranger)
        resource = hislip_resource(*server.listen(peer)).replace("hislip0", "hislip7")
    else:
        resource = hislip_resource(*server.listen(Stranger))
    with pytest.raises(UnreachableError):
        opened(Way("visa", resource=resource)).query("*IDN?")
    gc.collect()
    server.close()


def test_a_serial_line_is_nobody_elses(laser, opened):
    way = laser("asrl")
    first, second = opened(way), opened(way)
    assert first.query("*IDN?")
    with pytest.raises(UnreachableError, match="unavailable"):
        second.query("*IDN?")
    first.close()
    assert second.query("*IDN?")


def test_pyvisa_library_names_another_backend(laser, opened, monkeypatch):
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
        session = scpi_session("meter", Way("visa", resource=instrument.resource), clock)
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


def test_vxi11_silence(vxi11):
    session, instrument = vxi11
    with over_soon(), pytest.raises(NoReplyError, match=r"meter did not answer within 0\.1 s"):
        session.query("SILENT?", 100 * MS)
    assert session.query("POW?").text == "-3.25"
    assert instrument.heard[-2:] == [b"*IDN?\n", b"POW?\n"]
    assert instrument.calls.count(CLEAR) == 2


@pytest.mark.parametrize("how", ["CLOSE?", "HALF?"])
def test_vxi11_that_dies_is_known_at_once(vxi11, how, caplog):
    """The library alone would ask the dead connection again and again for 31 s."""
    session, _ = vxi11
    best = (9.0, 9.0)
    for _ in range(5):
        assert session.query("POW?").text == "-3.25"
        cpu, began = time.process_time(), time.monotonic()
        with pytest.raises(DisconnectedError):
            session.query(how, LONG)
        best = min(best, (time.monotonic() - began, time.process_time() - cpu))
    assert best[0] < 0.25
    assert best[1] < 0.1
    session.close()
    del session
    gc.collect()
    assert not caplog.records  # the library tries to close what it finds open once more


# ---------------------------------------------------------- a library that would be misled


def test_hislip_that_is_cut_in_a_message_that_is_passed_over():
    """The library throws a stray message away, and would read on for ever at its end."""
    clock, server = SystemClock(), PeerServer(SystemClock())
    instrument = Faulty(clock, Lines(), [Fault()] * 9)
    sent = []

    class Cutting(HislipPeer):
        def client(self, connection, flight):
            client = super().client(connection, flight)

            def answer(data):
                stray = b"HS" + bytes([7, 0]) + b"\0\0\0\7" + (100).to_bytes(8) + b"stray"
                sent.append(stray)
                connection.send(stray)
                connection.close()

            client.answer = answer
            return client

    resource = hislip_resource(*server.listen(Cutting(instrument.session)))
    session = scpi_session("meter", Way("visa", resource=resource), clock)
    cpu = time.process_time()
    with over_soon(), pytest.raises(DisconnectedError):
        session.query("Q1?", LONG)
    assert time.process_time() - cpu < 2
    assert sent
    session.close()
    server.close()
