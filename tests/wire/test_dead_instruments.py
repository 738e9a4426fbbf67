"""An instrument that dies over a question is known at once, and without a busy processor."""

import contextlib
import os
import threading
import time
import tty
from collections.abc import Callable, Iterator

import pytest
from faulty import MS, Bracketed, Fault, Faulty, Lines, Tl1
from real_time import LONG

from instruments.clock import SystemClock
from instruments.errors import DisconnectedError, UnreachableError
from instruments.simulated.hislip_peer import HislipPeer, hislip_resource
from instruments.simulated.peer_server import PeerServer
from instruments.way import Way
from instruments.wire import framing
from instruments.wire.exchange import Exchange
from instruments.wire.scpi import scpi_session
from instruments.wire.stream import tcp_stream
from instruments.wire.tl1 import Tl1Session

AT_ONCE = 0.25
LITTLE = 0.1
ATTEMPTS = 5
"""The best of these counts: the machine may be busy with something else, the code must not be."""

Ask = Callable[[int], object]


@pytest.fixture
def clock() -> Iterator[SystemClock]:
    made = SystemClock()
    yield made
    made.close()


@pytest.fixture
def asking(clock):
    """Asks an instrument that fails by a plan, over any wire."""
    with contextlib.ExitStack() as stack:

        def make(wire: str, plan: list[Fault]) -> Ask:
            server = PeerServer(clock)
            stack.callback(server.close)
            words = {"tl1": Tl1(), "bracketed": Bracketed()}.get(wire, Lines())
            instrument = Faulty(clock, words, plan)
            if wire == "hislip":
                resource = hislip_resource(*server.listen(HislipPeer(instrument.session)))
                session = scpi_session("meter", Way("visa", resource=resource), clock)
                stack.callback(session.close)
                return lambda number: session.query(f"Q{number}?", LONG)
            host, port = server.listen(instrument.session)
            if wire == "tl1":
                switch = Tl1Session("ocs", host, port, clock)
                stack.callback(switch.close)
                return lambda number: switch.command("RTRV-X", str(number), timeout=LONG)
            cut: framing.Framing = framing.Bracketed() if wire == "bracketed" else framing.Lines()
            question = b"<Q%d>" if wire == "bracketed" else b"Q%d\n"
            exchange = Exchange("m", lambda: tcp_stream("m", host, port, clock), clock, cut)
            stack.callback(exchange.close)
            return lambda number: exchange.ask(question % number, LONG)

        yield make


def death(ask: Ask, number: int) -> tuple[float, float]:
    """How long, in seconds, and at how much of processor time, until it is known."""
    cpu, began = time.process_time(), time.monotonic()
    with pytest.raises(DisconnectedError):
        ask(number)
    return time.monotonic() - began, time.process_time() - cpu


@pytest.mark.parametrize("wire", ["lines", "bracketed", "tl1", "hislip"])
@pytest.mark.parametrize("how", ["before", "mid-reply", "reset"])
def test_a_connection_that_ends(asking, wire, how):
    last = Fault("resets" if how == "reset" else "closes", after=0, at=2 if how != "before" else 0)
    plan = [Fault(after=0), last] * ATTEMPTS
    if wire == "hislip":  # which asks for an identity first, once it has failed
        plan = [Fault(after=0), last, *[Fault(after=0), Fault(after=0), last] * ATTEMPTS]
    ask = asking(wire, plan)
    deaths = []
    for number in range(ATTEMPTS):
        ask(2 * number)
        deaths.append(death(ask, 2 * number + 1))
    assert min(took for took, _ in deaths) < AT_ONCE
    assert min(cpu for _, cpu in deaths) < LITTLE


@pytest.mark.parametrize("wire", ["lines", "tl1"])
def test_waiting_costs_nothing(asking, wire):
    ask = asking(wire, [Fault(after=0), Fault(after=300 * MS)])
    ask(1)
    cpu = time.process_time()
    ask(2)
    assert time.process_time() - cpu < LITTLE


@pytest.mark.parametrize("scheme", ["serial", "visa"])
def test_a_serial_line_that_is_pulled(clock, scheme):
    deaths = []
    for number in range(ATTEMPTS):
        own, other = os.openpty()
        tty.setraw(other)
        device = os.ttyname(other)

        def die(own=own, other=other):
            heard = b""
            while not heard.endswith(b"?\n"):
                heard += os.read(own, 100)
            os.write(own, b"A")
            time.sleep(0.005)
            os.close(other)
            os.close(own)

        thread = threading.Thread(target=die)
        thread.start()
        resource = device if scheme == "serial" else f"ASRL{device}::INSTR"
        session = scpi_session("meter", Way(scheme, resource=resource), clock)
        deaths.append(death(lambda n, session=session: session.query(f"Q{n}?", LONG), number))
        thread.join()
        with pytest.raises(UnreachableError):
            session.query("Q2?", LONG)
        session.close()
    assert min(took for took, _ in deaths) < AT_ONCE
    assert min(cpu for _, cpu in deaths) < LITTLE
