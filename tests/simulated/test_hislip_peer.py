"""A simulated instrument's HiSLIP, compared with IVI-6.1 byte by byte."""

import contextlib
import socket
import struct

import pytest

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.simulated.protocols.commands import command
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.hislip_server import HislipServer, hislip_resource
from lightrig.instruments.simulated.protocols.scpi_device import DelayedReply, ScpiDevice, block

MS = 1_000_000
HEADER = struct.Struct("!2sBBIQ")
INITIALIZE, INITIALIZED, FATAL, ERROR, LOCK, LOCKED, DATA, DATA_END = range(8)
CLEARED, CLEAR_ACKNOWLEDGED, INTERRUPTED, ASYNC_INTERRUPTED = 8, 9, 13, 14
SIZE, SIZED, ASYNC, ASYNC_INITIALIZED, CLEAR, STATUS, STATUS_IS = 15, 16, 17, 18, 19, 21, 22
CLEARING, LOCK_INFO, LOCK_INFO_IS, TRIGGER, REMOTE, REMOTE_DONE = 23, 24, 25, 12, 10, 11
FIRST_ID = 0xFFFF_FF00
DELIVERED = 1


def message(kind, control=0, parameter=0, payload=b"", prologue=b"HS"):
    return HEADER.pack(prologue, kind, control, parameter, len(payload)) + payload


class Channel:
    """One connection of a client that nobody wrote for us."""

    def __init__(self, address):
        self.line = socket.create_connection(address, 30)

    def say(self, *args, **options):
        self.line.sendall(message(*args, **options))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.line.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def hear(self):
        prologue, kind, control, parameter, length = HEADER.unpack(self.exactly(HEADER.size))
        assert prologue == b"HS"
        return kind, control, parameter, self.exactly(length)

    def ask(self, *args, **options):
        self.say(*args, **options)
        return self.hear()


class Client:
    """Both channels, opened in order."""

    def __init__(self, address):
        self.sync = Channel(address)
        kind, control, parameter, payload = self.sync.ask(
            INITIALIZE, 0, 0x0100 << 16 | 0x7878, b"hislip0"
        )
        assert (kind, control, parameter >> 16, payload) == (INITIALIZED, 0, 0x0100, b"")
        self.number = parameter & 0xFFFF
        self.side = Channel(address)
        assert self.side.ask(ASYNC, 0, self.number)[0] == ASYNC_INITIALIZED
        self.id = FIRST_ID

    def write(self, command, *, delivered=True):
        self.sync.say(DATA_END, DELIVERED * delivered, self.id, command)
        self.id += 2
        return self.id - 2

    def query(self, command):
        sent = self.write(command)
        kind, control, parameter, payload = self.sync.hear()
        assert (kind, control, parameter) == (DATA_END, 0, sent)
        return payload

    def close(self):
        self.sync.line.close()
        self.side.line.close()


class Laser(ScpiDevice):
    @command("SLOW?")
    def slow(self):
        return DelayedReply(500 * MS, lambda: "slow")

    @command("TRACe?")
    def trace(self):
        return block(bytes(2000))


@pytest.fixture
def address():
    clock = SystemClock()
    server = DeviceServer(clock)
    laser = Laser("laser", clock, "Maker,Laser,SIM-1,1.0")
    yield server.listen(HislipServer(laser.session))
    server.close()
    clock.close()


@pytest.fixture
def client(address):
    with contextlib.ExitStack() as stack:

        def make():
            made = Client(address)
            stack.callback(made.close)
            return made

        yield make


def test_queries_and_replies(client):
    one = client()
    assert one.query(b"*IDN?\n") == b"Maker,Laser,SIM-1,1.0\n"
    assert one.query(b"*OPC?") == b"1\n"  # END ends a command as well as a line feed does
    one.write(b"*CLS\n")
    assert one.query(b"*OPC?;*OPC?\n") == b"1;1\n"


def test_a_command_in_pieces(client):
    one = client()
    one.sync.say(DATA, DELIVERED, FIRST_ID, b"*ID")
    one.sync.say(DATA_END, DELIVERED, FIRST_ID + 2, b"N?\n")
    assert one.sync.hear() == (DATA_END, 0, FIRST_ID + 2, b"Maker,Laser,SIM-1,1.0\n")


def test_a_reply_in_pieces(client):
    one = client()
    kind, _, _, payload = one.side.ask(SIZE, payload=(500).to_bytes(8))
    assert kind == SIZED
    assert int.from_bytes(payload) >= 1 << 16
    sent, pieces = one.write(b"TRAC?\n"), []
    while not pieces or pieces[-1][0] == DATA:
        pieces.append(one.sync.hear())
    assert all(len(payload) <= 500 - HEADER.size for *_, payload in pieces)
    assert {parameter for _, _, parameter, _ in pieces} == {sent}
    assert b"".join(payload for *_, payload in pieces) == block(bytes(2000)) + b"\n"


def test_an_unread_reply_is_lost(client):
    one = client()
    first = one.write(b"*IDN?\n")
    assert one.sync.hear()[2] == first
    second = one.write(b"*OPC?\n", delivered=False)
    assert one.sync.hear() == (INTERRUPTED, 0, second, b"")
    assert one.side.hear() == (ASYNC_INTERRUPTED, 0, second, b"")
    assert one.sync.hear() == (DATA_END, 0, second, b"1\n")


def test_a_superseded_query_has_no_reply(client):
    one = client()
    one.write(b"SLOW?\n")
    second = one.write(b"*OPC?\n")
    assert one.sync.hear()[:3] == (INTERRUPTED, 0, second)
    assert one.sync.hear() == (DATA_END, 0, second, b"1\n")
    one.sync.line.settimeout(0.6)
    with pytest.raises(TimeoutError):
        one.sync.hear()


def test_a_device_clear(client):
    one = client()
    one.write(b"SLOW?\n")
    assert one.side.ask(CLEAR)[:2] == (CLEARING, 0)
    one.write(b"*IDN?\n")  # what comes before the end of the clear is thrown away
    assert one.sync.ask(CLEARED)[:2] == (CLEAR_ACKNOWLEDGED, 0)
    one.id = FIRST_ID
    assert one.query(b"*OPC?\n") == b"1\n"


def test_the_status_byte(client):
    one = client()
    assert one.side.ask(STATUS, DELIVERED, one.id)[:2] == (STATUS_IS, 0)
    one.write(b"*OPC?\n")
    assert one.sync.hear()[3] == b"1\n"
    assert one.side.ask(STATUS, 0, one.id)[:2] == (STATUS_IS, 16)
    assert one.side.ask(STATUS, DELIVERED, one.id)[:2] == (STATUS_IS, 0)


def test_locks(client):
    one, other = client(), client()
    assert one.side.ask(LOCK, 0)[1] == 3
    assert one.side.ask(LOCK, 1, 1000)[:2] == (LOCKED, 1)
    assert other.side.ask(LOCK, 1, 1000)[1] == 0
    assert other.side.ask(LOCK, 1, 1000, b"shared")[1] == 3
    assert other.side.ask(LOCK_INFO)[:3] == (LOCK_INFO_IS, 1, 1)
    assert one.side.ask(LOCK, 0)[1] == 1
    assert other.side.ask(LOCK_INFO)[:3] == (LOCK_INFO_IS, 0, 0)
    assert other.side.ask(LOCK, 1)[1] == 1
    other.close()
    assert one.query(b"*OPC?\n") == b"1\n"
    while one.side.ask(LOCK_INFO)[1]:
        pass
    assert one.side.ask(LOCK, 1)[1] == 1


def test_clients_get_only_their_replies(client):
    one, other = client(), client()
    assert one.number != other.number
    sent = [(each, each.write(b"*IDN?\n")) for each in (one, other, one, other)[:2]]
    for each, parameter in sent:
        assert each.sync.hear()[2] == parameter


def test_the_rest_of_the_protocol(client):
    one = client()
    one.sync.say(TRIGGER, 0, one.id)
    assert one.side.ask(REMOTE, 1)[0] == REMOTE_DONE
    assert one.sync.ask(99)[:2] == (ERROR, 1)
    assert one.side.ask(99)[:2] == (ERROR, 1)
    assert one.query(b"*OPC?\n") == b"1\n"


@pytest.mark.parametrize("which", ["sync", "side"])
def test_closing_one_channel_ends_the_client(client, which):
    one = client()
    getattr(one, which).line.close()
    rest = one.side if which == "sync" else one.sync
    with pytest.raises((EOFError, ConnectionResetError)):
        rest.hear()


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (message(DATA_END, payload=b"*IDN?\n"), 3),
        (message(ASYNC, 0, 77), 3),
        (message(INITIALIZE, payload=b"hislip7"), 3),
        (b"GET / HTTP/1.1\r\n\r\n", 1),
        (message(INITIALIZE, prologue=b"SH"), 1),
    ],
)
def test_a_connection_must_begin_with_initialize(address, first, code):
    channel = Channel(address)
    channel.line.sendall(first)
    assert channel.hear()[:2] == (FATAL, code)
    with pytest.raises((EOFError, ConnectionResetError)):
        channel.hear()
    channel.line.close()


def test_data_before_both_channels_are_open(address):
    channel = Channel(address)
    channel.ask(INITIALIZE, payload=b"HISLIP0")
    assert channel.ask(DATA_END, payload=b"*IDN?\n")[:2] == (FATAL, 2)
    channel.line.close()


def test_resource_name():
    assert hislip_resource("127.0.0.1", 4881) == "TCPIP::127.0.0.1::hislip0,4881::INSTR"
