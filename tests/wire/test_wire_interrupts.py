"""After Ctrl-C at any step, the next query of a session gets its reply."""

import signal
import threading

import pytest
from faulty import MS, Fault, Faulty, Lines

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.wire import framing
from lightrig.instruments.wire.scpi import scpi_session
from lightrig.instruments.wire.session import QuerySession, Resync
from lightrig.instruments.wire.stream import serial_stream, tcp_stream

pytestmark = pytest.mark.usefixtures("ctrl_c_raises")


def interrupted(step, after):
    """Call `step` with 0, 1, 2, ... until Ctrl-C comes; return the last number.

    It comes again if it was swallowed, as Python does where it hits a destructor.
    """
    main = threading.main_thread().ident
    over = threading.Event()

    def press():
        delay = after
        while not over.wait(delay):
            signal.pthread_kill(main, signal.SIGINT)
            delay = 5.0

    fingers = threading.Thread(target=press)
    number = 0
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come at any point
        fingers.start()
        while True:
            number += 1
            step(number)
    over.set()
    fingers.join()
    return number


def asker(wire, clock, server, instrument):
    if wire == "scpi":
        session = scpi_session("m", Endpoint("scpi", *server.listen(instrument.session)), clock)
        return lambda n: session.query(f"Q{n}?", 5_000 * MS).text, session.close
    if wire == "serial":
        device = server.serial_line(instrument.session)
        session = QuerySession(
            "m",
            lambda: serial_stream("m", device, clock, baud=9600),
            clock,
            framing.Lines(),
            resync=Resync(5 * MS, b"ID\n", b"IDENTITY".__eq__),
        )
    else:
        host, port = server.listen(instrument.session)
        session = QuerySession(
            "m", lambda: tcp_stream("m", host, port, clock), clock, framing.Lines()
        )
    return lambda n: session.query(b"Q%d\n" % n).data.decode(), session.close


@pytest.mark.parametrize("wire", ["tcp", "scpi", "serial"])
@pytest.mark.parametrize("kind", ["real", "virtual"])
def test_reply_after_ctrl_c_matches_its_query(wire, kind):
    for trial in range(12):
        clock = VirtualClock(stall_timeout=20) if kind == "virtual" else SystemClock()
        server = DeviceServer(clock)
        instrument = Faulty(clock, Lines(), iter(lambda: Fault(after=MS // 10), None))
        ask, close = asker(wire, clock, server, instrument)
        ask(0)
        last = interrupted(lambda n, ask=ask: ask(n), 0.003 + trial * 0.00037)
        for number in (last + 1000, last + 2000):
            assert ask(number) == f"A{number}"
        close()
        server.close()
        clock.close()
