"""Blocks over one TCP connection, in the process of the test: stamps and bytes by hand."""

import json
import socket
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from real_time import over_soon, until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.jobs.programs import stream_program
from lightrig.instruments.jobs.programs.stream_program import Exchanges, answer_of, block

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
    monkeypatch.setattr(stream_program, "_MOST_SLOW", 2)
    running = Exchanges(wire, 12)
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
    with far:
        running = Exchanges(near, 16)
        assert far.recv(16, socket.MSG_WAITALL) == block(0, 16)
        with over_soon():
            state = running.stop()
        assert (state["exchanges"], running.error, running.failed) == (0, None, None)
        assert far.recv(1) == b""
        assert not running._thread.is_alive()


class Made:
    """A socket that notes what it is asked; `refuse`: its connection is refused."""

    def __init__(self, refuse: bool) -> None:
        self.refuse = refuse
        self.asked: list[tuple[object, ...]] = []

    def connect(self, address: tuple[str, int]) -> None:
        self.asked.append(("connect", address))
        if self.refuse:
            raise ConnectionRefusedError("nobody listens")

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.asked.append((name, *given))


@pytest.mark.parametrize("refuse", [False, True])
@pytest.mark.parametrize(("timeout_ns", "milliseconds"), [(0, []), (2_500_000_000, [2500])])
def test_a_connection_has_the_user_timeout_in_milliseconds(
    monkeypatch: pytest.MonkeyPatch, refuse: bool, timeout_ns: int, milliseconds: list[int]
) -> None:
    made, devices = Made(refuse), list[str]()
    monkeypatch.setattr(stream_program, "_socket", lambda name: devices.append(name) or made)
    monkeypatch.setattr(stream_program, "Exchanges", lambda *given: given)
    given = {"address": "10.0.0.9", "port": 81, "netdev": "p1", "size": 40}
    asked: list[tuple[object, ...]] = [
        ("setsockopt", socket.IPPROTO_TCP, 18, each) for each in milliseconds
    ]
    if milliseconds:  # keepalive queries after a second, and each second: linux/tcp.h
        asked += [("setsockopt", socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
        asked += [("setsockopt", socket.IPPROTO_TCP, option, 1) for option in (4, 5)]
    asked += [("settimeout", 10.0), ("connect", ("10.0.0.9", 81))]
    if refuse:
        with pytest.raises(ConnectionRefusedError):
            stream_program._exchange({**given, "user_timeout_ns": timeout_ns})
        assert made.asked == [*asked, ("close",)]
    else:
        running = stream_program._exchange({**given, "user_timeout_ns": timeout_ns})
        assert running == (made, 40)
        assert made.asked == [*asked, ("settimeout", None)]
    assert devices == ["p1"]


def test_a_listener_answers_blocks_of_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(netdev: str) -> socket.socket:
        assert netdev == "p1"
        return socket.socket()

    monkeypatch.setattr(stream_program, "_socket", plain)
    listener = stream_program._Listener("127.0.0.1", "p1")
    with socket.create_connection(("127.0.0.1", listener.port), 20) as near:
        near.sendall(b"\x00\x01")
        assert near.recv(2, socket.MSG_WAITALL) == b"\xff\xfe"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", listener.port), 20)


def test_sockets_are_bound_to_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(refuse=False)
    monkeypatch.setattr(stream_program.socket, "socket", lambda *_: made)
    stream_program._socket("p1")
    assert made.asked == [
        ("setsockopt", socket.SOL_SOCKET, 25, b"p1\0"),
        ("setsockopt", socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    ]


def test_requests_are_served_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener ends the one before; what cannot be done is an error, and the next is done."""
    requests = [
        {"id": 1, "do": "state"},
        {"id": 2, "do": "listen", "address": "10.0.0.1", "netdev": "p1"},
        {"id": 3, "do": "listen", "address": "10.0.0.2", "netdev": "p2"},
        {"id": 4, "do": "exchange", "size": 40},
        {"id": 5, "do": "state"},
        {"id": 6, "do": "stop"},
        {"id": 7, "do": "hum"},
        {"id": 8, "do": "listen"},
        {"id": 9, "do": "hello"},
    ]
    lines = [json.dumps(each) for each in requests]
    monkeypatch.setattr(stream_program, "sys", SimpleNamespace(stdin=lines))
    monkeypatch.setattr(stream_program, "boot_id", lambda: "of today")
    ports = {("10.0.0.1", "p1"): 81, ("10.0.0.2", "p2"): 82}
    closed: list[int] = []

    def listener(*where: str) -> Any:
        port = ports[where]  # type: ignore[index]
        return SimpleNamespace(port=port, close=lambda: closed.append(port))

    running = SimpleNamespace(state=lambda: {"now": 1}, stop=lambda: {"end": 2})
    monkeypatch.setattr(stream_program, "_Listener", listener)
    monkeypatch.setattr(stream_program, "_exchange", lambda given: given["size"] == 40 and running)
    answers: dict[int, Any] = {}
    numbered: Any = SimpleNamespace(
        reply=lambda number, _, content: answers.update({number: content}),
        fail=lambda number, _, error: answers.update({number: str(error)}),
    )
    stream_program._serve(numbered)
    assert answers == {
        1: "there is no state here now", 2: {"port": 81}, 3: {"port": 82}, 4: {},
        5: {"now": 1}, 6: {"end": 2}, 7: "there is no hum here now", 8: "'address'",
        9: {"boot": "of today"},
    }  # fmt: skip
    assert closed == [81, 82]
