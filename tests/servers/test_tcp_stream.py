"""The program that exchanges blocks over TCP, against ends that this file writes."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from program_host import Here
from real_time import until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.jobs.traffic.tcp_stream import STREAM, StreamEnd, TcpStream
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.host.offset import ClockMap
from lightrig.instruments.servers.host.program import ProgramRun
from lightrig.instruments.wire.trace import Trace

SIZE = 700
CLOCK = SystemClock()
Answer = Callable[[int, bytes, bytes], bytes]
"""The answer to a block: of its place, the block, and the one before."""


def complement(text: bytes) -> bytes:
    return bytes(0xFF ^ value for value in text)


@pytest.fixture
def stream() -> Iterator[TcpStream]:
    servers = {name: LinuxServer(name, Here(), CLOCK, {}) for name in ("a", "b")}
    ends = [StreamEnd(name, "lo", "127.0.0.1") for name in servers]
    made = TcpStream(servers, CLOCK, *ends, size=SIZE)
    yield made
    made.close()


@pytest.fixture
def program() -> Iterator[ProgramRun]:
    run = LinuxServer("a", Here(), CLOCK, {}).start(STREAM, Trace(CLOCK), ClockMap(name="a"))
    yield run
    run.close()


@pytest.fixture
def answering(program: ProgramRun) -> Iterator[Callable[[Answer], ProgramRun]]:
    """Start exchanges with an end that answers as it is told, until told to end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(answer: Answer) -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as blocks:
                before = bytes(SIZE)
                for place in range(5):
                    block = blocks.read(SIZE)
                    connection.sendall(answer(place, block, before))
                    before = block
                connection.shutdown(socket.SHUT_WR)
                blocks.read(SIZE)  # unread data would make the end a reset

        def start(answer: Answer) -> ProgramRun:
            threading.Thread(target=serve, args=(answer,), daemon=True).start()
            port = listener.getsockname()[1]
            given = {"address": "127.0.0.1", "netdev": "lo", "size": SIZE, "user_timeout_ns": 0}
            program.submit("exchange", {**given, "port": port}).result()
            until(lambda: program.submit("state", {}).result()["error"] is not None, CLOCK)
            return program

        yield start


def test_blocks_are_exchanged_until_stopped(stream: TcpStream) -> None:
    until(lambda: stream.state().exchanges >= 300, CLOCK)
    state = stream.stop()
    assert (state.wrong, state.error, state.failed) == (0, "", None)
    # The least retransmission timeout of Linux is 200 ms (TCP_RTO_MIN in net/tcp.h).
    assert state.rto is not None
    assert 200_000_000 <= state.rto < 300_000_000


def test_right_answers_are_no_wrong_ones(answering: Callable[[Answer], ProgramRun]) -> None:
    program = answering(lambda _place, block, _before: complement(block))
    state = program.submit("state", {}).result()
    assert (state["exchanges"], state["wrong"]) == (5, 0)
    assert state["error"].startswith("ConnectionError: the other end has closed")
    assert state["failed"] >= state["began"]


def test_one_flipped_bit_is_a_wrong_answer(answering: Callable[[Answer], ProgramRun]) -> None:
    def flipped(place: int, block: bytes, _before: bytes) -> bytes:
        answer = bytearray(complement(block))
        answer[SIZE - 3] ^= (place == 3) << 4
        return bytes(answer)

    state = answering(flipped).submit("state", {}).result()
    assert (state["exchanges"], state["wrong"]) == (5, 1)


def test_the_answer_to_the_block_before_is_wrong(
    answering: Callable[[Answer], ProgramRun],
) -> None:
    def stale(place: int, block: bytes, before: bytes) -> bytes:
        return complement(before if place in (2, 4) else block)

    state = answering(stale).submit("state", {}).result()
    assert (state["exchanges"], state["wrong"]) == (5, 2)


def test_even_without_its_number_the_block_before_is_another(
    answering: Callable[[Answer], ProgramRun],
) -> None:
    def stale_body(place: int, block: bytes, before: bytes) -> bytes:
        return complement(block[:8] + before[8:] if place == 1 else block)

    assert answering(stale_body).submit("state", {}).result()["wrong"] == 1


def test_a_port_without_a_listener_is_named(program: ProgramRun) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    given = {"address": "127.0.0.1", "netdev": "lo", "size": SIZE, "user_timeout_ns": 0}
    with pytest.raises(InstrumentError, match="Connection refused"):
        program.submit("exchange", {**given, "port": port}).result()
    with pytest.raises(InstrumentError, match="there is no state here now"):
        program.submit("state", {}).result()
