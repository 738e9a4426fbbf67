"""The NTP server of the virtual lab, by a client of RFC 5905's arithmetic."""

import socket
import struct

from .time_server import PACKET, clock, reply, serving, timestamp

SECOND = 1 << 32
CLIENT = 0b00_100_011  # version 4, mode 3


def request(sent: int) -> bytes:
    return struct.pack("!BBbb", CLIENT, 0, 4, -20) + bytes(36) + struct.pack("!Q", sent)


def test_the_first_day_of_1970_is_day_25567_of_the_era() -> None:
    assert timestamp(0) == 25_567 * 86_400 * SECOND
    assert timestamp(500_000_000) - timestamp(0) == SECOND // 2


def test_a_clock_that_is_fifty_ppm_fast_gains_fifty_milliseconds_in_a_thousand_seconds() -> None:
    at = [0]
    fast, slow = clock(50, lambda: at[0]), clock(-20, lambda: at[0])
    before = fast(), slow()
    at[0] = 1000 * 10**9
    assert fast() - before[0] - at[0] == 50_000_000
    assert slow() - before[1] - at[0] == -20_000_000


def test_a_client_computes_the_offset() -> None:
    """Equation of section 8: the server is ahead by ((T2 - T1) + (T3 - T4)) / 2."""
    sent = timestamp(100 * 10**9)
    answer = PACKET.unpack(reply(request(sent), 107 * 10**9, 108 * 10**9))
    got = timestamp(105 * 10**9)
    assert (answer[0] & 7, answer[0] >> 3 & 7, answer[1], answer[8]) == (4, 4, 1, sent)
    assert ((answer[9] - sent) + (answer[10] - got)) / 2 == 5 * SECOND


def test_it_answers_on_loopback_until_the_block_ends() -> None:
    with serving(0) as port, socket.socket(type=socket.SOCK_DGRAM) as client:
        client.settimeout(60)
        client.sendto(b"short", ("127.0.0.1", port))
        client.sendto(request(77), ("127.0.0.1", port))
        answer = PACKET.unpack(client.recv(512))
    assert answer[8] == 77
    assert answer[9] <= answer[10]
