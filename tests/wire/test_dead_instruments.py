"""The end of a connection during a query is noticed at once, and without busy waiting."""

import contextlib
import os
import threading
import time
import tty
from collections.abc import Callable

import pytest
from faulty import MS, Bracketed, Fault, Faulty, Lines, Tl1
from real_time import LONG, SOON

from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import DisconnectedError, UnreachableError
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.hislip_server import HislipServer, hislip_resource
from lightrig.instruments.wire import framing
from lightrig.instruments.wire.scpi import scpi_session
from lightrig.instruments.wire.session import QuerySession
from lightrig.instruments.wire.stream import tcp_stream
from lightrig.instruments.wire.tl1 import Tl1Session

AT_ONCE = SOON / 1e9
BUSY = 2.0
"""Of processor time, in s; who waits busily for LONG uses it many times over."""
LITTLE = 0.1
ATTEMPTS = 5
"""The best of these counts: the machine may be busy with something else, the code must not be."""

Ask = Callable[[int], object]


@pytest.fixture
def asking(system_clock):
    """Query an instrument that fails by plan, over any wire."""
    with contextlib.ExitStack() as stack:

        def make(wire: str, plan: list[Fault]) -> Ask:
            server = DeviceServer(system_clock)
            stack.callback(server.close)
            dialect = {"tl1": Tl1(), "bracketed": Bracketed()}.get(wire, Lines())
            instrument = Faulty(system_clock, dialect, plan)
            if wire == "hislip":
                resource = hislip_resource(*server.listen(HislipServer(instrument.session)))
                session = scpi_session("meter", Endpoint("visa", resource=resource), system_clock)
                stack.callback(session.close)
                return lambda number: session.query(f"Q{number}?", LONG)
            host, port = server.listen(instrument.session)
            if wire == "tl1":
                switch = Tl1Session("ocs", host, port, system_clock)
                stack.callback(switch.close)
                return lambda number: switch.command("RTRV-X", str(number), timeout=LONG)
            cut: framing.Framing = framing.Bracketed() if wire == "bracketed" else framing.Lines()
            question = b"<Q%d>" if wire == "bracketed" else b"Q%d\n"
            session = QuerySession(
                "m", lambda: tcp_stream("m", host, port, system_clock), system_clock, cut
            )
            stack.callback(session.close)
            return lambda number: session.query(question % number, LONG)

        yield make


def death(ask: Ask, number: int) -> tuple[float, float]:
    """Return the elapsed time and the CPU time, in s, until the end is noticed."""
    cpu, began = time.process_time(), time.monotonic()
    with pytest.raises(DisconnectedError):
        ask(number)
    return time.monotonic() - began, time.process_time() - cpu


@pytest.mark.parametrize("wire", ["lines", "bracketed", "tl1", "hislip"])
@pytest.mark.parametrize("how", ["before", "mid-reply", "reset"])
def test_end_of_connection_is_noticed_at_once(asking, wire, how):
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
    assert min(cpu for _, cpu in deaths) < BUSY


@pytest.mark.parametrize("wire", ["lines", "tl1"])
def test_waiting_uses_no_cpu_time(asking, wire):
    ask = asking(wire, [Fault(after=0), *[Fault(after=300 * MS)] * ATTEMPTS])
    ask(1)
    used = []
    for number in range(2, 2 + ATTEMPTS):
        cpu = time.process_time()
        ask(number)
        used.append(time.process_time() - cpu)
        if used[-1] < LITTLE:
            break
    assert min(used) < LITTLE


@pytest.mark.parametrize("scheme", ["serial", "visa"])
def test_cut_serial_line_is_noticed_at_once(system_clock, scheme, tmp_path):
    deaths = []
    for number in range(ATTEMPTS):
        master, slave = os.openpty()
        tty.setraw(slave)
        # Another test's terminal may have the number of this one once it is closed.
        device = tmp_path / f"tty{number}"
        device.symlink_to(os.ttyname(slave))

        def die(master=master, slave=slave, device=device):
            heard = b""
            while not heard.endswith(b"?\n"):
                heard += os.read(master, 100)
            os.write(master, b"A")
            time.sleep(0.005)
            device.unlink()
            os.close(slave)
            os.close(master)

        thread = threading.Thread(target=die)
        thread.start()
        resource = str(device) if scheme == "serial" else f"ASRL{device}::INSTR"
        session = scpi_session("meter", Endpoint(scheme, resource=resource), system_clock)
        deaths.append(death(lambda n, session=session: session.query(f"Q{n}?", LONG), number))
        thread.join()
        with pytest.raises(UnreachableError):
            session.query("Q2?", LONG)
        session.close()
    assert min(took for took, _ in deaths) < AT_ONCE
    assert min(cpu for _, cpu in deaths) < BUSY
