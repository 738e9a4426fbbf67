"""Blocks over one TCP connection, in the process of the test: stamps and bytes by hand."""

import socket
import struct
import threading
from typing import Any

import pytest
from program_lines import ProgramLines
from real_time import over_soon, until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.jobs.programs import stream_program
from lightrig.instruments.jobs.programs.stream_program import (
    Exchanges,
    StreamProgram,
    answer_of,
    block,
    open_socket,
)

BEGIN = 7_000_000_000


def test_blocks_differ_in_251_in_a_row() -> None:
    assert block(3, 12) == bytes([0, 0, 0, 0, 0, 0, 0, 3, 3, 4, 5, 6])
    assert block(250, 11) == bytes([0, 0, 0, 0, 0, 0, 0, 250, 250, 0, 1])
    assert block(252, 10) == bytes([0, 0, 0, 0, 0, 0, 0, 252, 1, 2])
    assert len(block(1000, 700)) == 700
    assert answer_of(bytes([0, 1, 200])) == bytes([255, 254, 55])


class Wire:
    """A connection whose answers come in parts of five bytes, each after `durations` ns."""

    def __init__(self, durations: list[int]) -> None:
        self.durations, self.at = durations, BEGIN
        self.sent: list[bytes] = []
        self.closed: list[object] = []
        self._answer = b""

    def now(self) -> int:
        return self.at

    def sendall(self, data: bytes) -> None:
        self.sent.append(data)
        self.at += 3
        if not self.durations:
            raise ConnectionResetError("reset")
        self._answer = answer_of(data)
        if len(self.sent) == 2:
            self._answer = self._answer[:-1] + b"?"

    def recv(self, size: int) -> bytes:
        part, self._answer = self._answer[: min(size, 5)], self._answer[5:]
        if not self._answer:
            self.at += self.durations.pop(0) - 3
        return part

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option, size) == (socket.IPPROTO_TCP, 11, 104)
        # struct tcp_info of linux/tcp.h: state, ca_state, retransmits, probes, backoff ...; rto.
        return struct.pack("=8BI", 1, 0, 3, 9, 2, 8, 7, 6, 204_000)

    def shutdown(self, how: int) -> None:
        self.closed.append(how)

    def close(self) -> None:
        self.closed.append("close")


def test_exchanges_of_a_millisecond_and_more_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    wire: Any = Wire([999_999, 1_000_000, 20, 3_000_000, 2_000_000])
    monkeypatch.setattr(stream_program, "now", wire.now)
    running = Exchanges(wire, 12, most_slow=2)
    until(lambda: running.error, SystemClock())
    assert wire.sent == [block(number, 12) for number in range(6)]
    second, fourth, last = BEGIN + 999_999, BEGIN + 2_000_019, BEGIN + 7_000_019
    known = {"retransmits": 3, "backoff": 2, "rto_us": 204_000}
    assert running.stop() == {
        "exchanges": 5,
        "wrong": 1,
        "slow": [[second, second + 1_000_000], [fourth, fourth + 3_000_000]],
        "began": last,
        "error": "ConnectionResetError: reset",
        "failed": last + 3,
        **known,
    }
    assert wire.closed == [socket.SHUT_RDWR, "close"]


def test_the_state_of_a_closed_connection_lacks_what_the_kernel_knows() -> None:
    near, far = socket.socketpair()
    with far:
        running = Exchanges(near, 9)
        far.close()
        until(lambda: running.error, SystemClock())
        near.close()
        state = running.state()
        assert (state["retransmits"], state["backoff"], state["rto_us"]) == (None, None, None)


def test_stopping_ends_an_exchange_that_waits_for_its_answer() -> None:
    near, far = socket.socketpair()
    others = set(threading.enumerate())
    with far:
        running = Exchanges(near, 16)
        assert far.recv(16, socket.MSG_WAITALL) == block(0, 16)
        with over_soon():
            state = running.stop()
        assert (state["exchanges"], running.error, running.failed) == (0, None, None)
        assert far.recv(1) == b""
        assert set(threading.enumerate()) <= others


class Made:
    """A socket that notes what it is asked; `refuses`: its connection is refused.

    Its connection ends as soon as something is received over it.
    """

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.asked: list[tuple[object, ...]] = []

    def connect(self, address: tuple[str, int]) -> None:
        self.asked.append(("connect", address))
        if self.refuses:
            raise ConnectionRefusedError("nobody listens")

    def recv(self, size: int) -> bytes:
        return b""

    def getsockopt(self, *given: int) -> bytes:
        raise OSError("not connected")

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.asked.append((name, *given))


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize(("timeout_ns", "milliseconds"), [(0, []), (2_500_000_000, [2500])])
def test_a_connection_has_the_user_timeout_in_milliseconds(
    refuses: bool, timeout_ns: int, milliseconds: list[int]
) -> None:
    made, devices = Made(refuses=refuses), list[str]()

    def opened(netdev: str) -> Any:
        devices.append(netdev)
        return made

    program = ProgramLines(lambda out: StreamProgram(out, opened))
    asked: list[tuple[object, ...]] = [
        ("setsockopt", socket.IPPROTO_TCP, 18, each) for each in milliseconds
    ]
    if milliseconds:  # keepalive queries after a second, and each second: linux/tcp.h
        asked += [("setsockopt", socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
        asked += [("setsockopt", socket.IPPROTO_TCP, option, 1) for option in (4, 5)]
    asked += [("settimeout", 10.0), ("connect", ("10.0.0.9", 81))]
    given = {"address": "10.0.0.9", "port": 81, "netdev": "p1", "size": 40}
    if refuses:
        error = program.error("exchange", **given, user_timeout_ns=timeout_ns)
        assert error == {"kind": "ConnectionRefusedError", "text": "nobody listens"}
        assert made.asked == [*asked, ("close",)]
    else:
        assert program.ask("exchange", **given, user_timeout_ns=timeout_ns) == {}
        until(lambda: program.ask("state")["error"], SystemClock())
        assert made.asked == [*asked, ("settimeout", None), ("sendall", block(0, 40))]
        program.ask("stop")
    assert devices == ["p1"]
    program.close()


def test_sockets_are_bound_to_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    monkeypatch.setattr(stream_program.socket, "socket", lambda *_: made)
    open_socket("p1")
    assert made.asked == [
        ("setsockopt", socket.SOL_SOCKET, 25, b"p1\0"),
        ("setsockopt", socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    ]


def test_requests_are_served_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener ends the one before; what cannot be done is an error, and the next is done."""
    devices: list[str] = []

    def opened(netdev: str) -> socket.socket:
        devices.append(netdev)
        return socket.socket()

    monkeypatch.setattr(stream_program, "boot_id", lambda: "of today")
    program = ProgramLines(lambda out: StreamProgram(out, opened))
    assert program.error("state")["text"] == "there is no state here now"
    first, second = (
        program.ask("listen", address="127.0.0.1", netdev=name)["port"] for name in ("p1", "p2")
    )
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", first), 20)
    where = {"address": "127.0.0.1", "port": second, "netdev": "p3"}
    assert program.ask("exchange", **where, size=40, user_timeout_ns=0) == {}
    until(lambda: program.ask("state")["exchanges"] > 2, SystemClock())
    # One connection is answered.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", second), 20)
    end = program.ask("stop")
    assert (end["wrong"], end["error"]) == (0, None)
    assert program.error("hum")["text"] == "there is no hum here now"
    assert program.error("listen")["text"] == "'address'"
    assert program.ask("hello") == {"boot": "of today"}
    assert devices == ["p1", "p2", "p3"]
    program.close()


def test_blocks_are_answered_by_their_complement() -> None:
    program = ProgramLines(lambda out: StreamProgram(out, lambda _: socket.socket()))
    port = program.ask("listen", address="127.0.0.1", netdev="p1")["port"]
    with socket.create_connection(("127.0.0.1", port), 20) as near:
        near.sendall(b"\x00\x01\xc8")
        assert near.recv(3, socket.MSG_WAITALL) == b"\xff\xfe\x37"
    program.close()
