"""Virtual time over real sockets: what is under way keeps it still, what is gone does not."""

import socket
import threading
import time

import pytest
from clock_peers import Client, timed_peers
from real_time import over_soon

from lightrig.instruments.clock.virtual import ClockStalledError, VirtualClock
from lightrig.instruments.core.errors import DisconnectedError, NoReplyError
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.wire import tcp
from lightrig.instruments.wire.tl1 import Tl1Session

MS = 1_000_000


def test_parallel_devices_take_as_long_as_the_slower_one():
    def run():
        clock = VirtualClock(stall_timeout=20)
        with timed_peers(clock, 2) as (quick, slow):

            def ask(client, duration):
                for number in range(5):
                    client.ask(f"answer {duration} {number}").wait()
                return clock.now()

            ends = clock.parallel(lambda: ask(quick, 40 * MS), lambda: ask(slow, 41 * MS))
            clock.close()
            return ends, clock.now(), quick.lines, slow.lines

    first = run()
    assert first[:2] == ([200 * MS, 205 * MS], 205 * MS)
    assert [at for at, _ in first[2]] == [40 * MS * number for number in range(1, 6)]
    for _ in range(19):
        assert run() == first


def test_stream_beside_a_request_has_correct_stamps():
    def run():
        clock = VirtualClock(stall_timeout=20)
        with timed_peers(clock, 1) as (client,):
            client.tell(f"stream {10 * MS} 8")
            assert client.ask(f"answer {35 * MS} here").wait()
            answered = clock.now()
            clock.sleep(100 * MS)
            clock.close()
            return answered, client.lines

    answered, lines = run()
    assert answered == 35 * MS
    assert lines == [
        (10 * MS, "~ 1"),
        (20 * MS, "~ 2"),
        (30 * MS, "~ 3"),
        (35 * MS, "= here"),
        (40 * MS, "~ 4"),
        (50 * MS, "~ 5"),
        (60 * MS, "~ 6"),
        (70 * MS, "~ 7"),
        (80 * MS, "~ 8"),
    ]
    for _ in range(9):
        assert run() == (answered, lines)


def test_streams_from_several_peers_keep_their_order_of_owners():
    def run():
        clock = VirtualClock(stall_timeout=20)
        order = []
        with timed_peers(clock, 3) as clients:
            for client in reversed(clients):
                client.tell("stream 1000 20")
            for step in range(1, 21):
                clock.sleep(1000)
                order.append([len(client.lines) for client in clients])
                assert order[-1] in ([step] * 3, [step - 1] * 3)
            clock.sleep(1)
        clock.close()
        return order, [client.lines for client in clients]

    first = run()
    assert all(lines == [(1000 * n, f"~ {n}") for n in range(1, 21)] for lines in first[1])
    for _ in range(4):
        assert run() == first


def test_silent_device_takes_exactly_the_timeout(clock):
    class Silent:
        def received(self, data):
            pass

        def closed(self):
            pass

    server = DeviceServer(clock)
    session = Tl1Session("ocs", *server.listen(lambda *_: Silent()), clock)
    with over_soon():
        for times in range(1, 4):
            with pytest.raises(NoReplyError, match="did not answer within 10 s"):
                session.command("RTRV-HDR", timeout=10_000 * MS)
            assert clock.now() == times * 10_000 * MS
    session.close()
    server.close()


@pytest.mark.parametrize("how", ["hang-up", "reset"])
def test_close_by_the_device_has_its_stamp(how):
    for _ in range(25):
        clock = VirtualClock(stall_timeout=20)
        with timed_peers(clock, 1) as (client,):
            client.tell(f"{how} {3 * MS}")
            assert client.end.wait(10_000 * MS)
            assert clock.now() == 3 * MS
            assert client.ended is not None
            at, reason = client.ended
            assert at == 3 * MS
            assert ("reset" in reason) is (how == "reset")
        clock.close()


def test_device_that_does_not_land_its_bytes_is_found():
    clock = VirtualClock(stall_timeout=0.2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        client = Client(clock, deaf.getsockname())
        client.tell("hello")
        with pytest.raises(ClockStalledError, match=r"no progress for 0\.2 s") as raised:
            clock.sleep(1)
        assert "6 bytes on frozenset" in str(raised.value)
    client.connection.close()
    clock.close()


def test_end_of_connection_releases_its_bytes(clock):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Client(clock, listener.getsockname())
        accepted, _ = listener.accept()

        def read_and_hang_up():
            accepted.recv(100)
            time.sleep(0.05)
            accepted.close()

        stranger = threading.Thread(target=read_and_hang_up)
        stranger.start()
        seen = time.monotonic()
        client.tell("hello")
        clock.sleep(5 * MS)
        assert time.monotonic() - seen > 0.04
        assert client.ended == (0, "the peer closed the connection")
        assert clock.now() == 5 * MS
        stranger.join()


def test_close_releases_its_bytes(clock, monkeypatch):
    monkeypatch.setattr(tcp, "CLOSE_TIMEOUT", 0.1)  # for the deaf one
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        client = Client(clock, deaf.getsockname())
        client.tell("hello")
        client.connection.close()
        clock.sleep(5)
        assert clock.now() == 5
        assert client.ended is None


def test_a_server_that_closes_ends_its_connections():
    class Silent:
        def received(self, data):
            pass

        def closed(self):
            ended.append(True)

    for _ in range(20):
        clock = VirtualClock(stall_timeout=20)
        server = DeviceServer(clock)
        ended: list[bool] = []
        clients = [Client(clock, server.listen(lambda *_: Silent())) for _ in range(3)]
        for client in clients:
            client.tell("hello")
        clock.sleep(1)
        server.close()
        for client in clients:
            assert client.end.wait(1000)
            assert client.ended == (1, "the peer closed the connection")
        assert ended == [True] * 3
        clock.close()


def test_a_close_waits_for_a_device_that_a_busy_machine_holds_up(clock):
    """Else the device would act later, at a time that depends on which of the two is faster."""
    ended = threading.Event()

    class HeldUp:
        def received(self, data):
            time.sleep(1.2)

        def closed(self):
            ended.set()

    server = DeviceServer(clock)
    client = Client(clock, server.listen(lambda *_: HeldUp()))
    client.tell("hello")
    client.connection.close()
    assert ended.is_set()
    server.close()


def test_two_workers_may_open_one_session_at_once(clock):
    class Polite:
        """Says done to everything, 1 ms later."""

        def __init__(self, connection, index):
            self._connection = connection

        def received(self, data):
            for command in data.decode().split(";")[:-1]:
                tag = command.split(":")[3]
                text = f"\r\n\n   s 00-01-01 00:00:00\r\nM  {tag} COMPLD\r\n;".encode()
                clock.schedule(clock.now() + MS, "s", lambda text=text: self._connection.send(text))

        def closed(self):
            pass

    server = DeviceServer(clock)
    session = Tl1Session("ocs", *server.listen(Polite), clock, ("user", "secret"))
    replies = clock.parallel(*[lambda: session.command("RTRV-HDR").received] * 4)
    assert replies == [2 * MS] * 4
    session.close()
    server.close()


def test_close_ends_the_waits_of_all_threads(clock):
    class Silent:
        def received(self, data):
            pass

        def closed(self):
            pass

    server = DeviceServer(clock)
    session = Tl1Session("ocs", *server.listen(lambda *_: Silent()), clock)

    def close():
        clock.sleep(5 * MS)
        session.close()

    with pytest.raises(DisconnectedError, match="session closed before it answered"):
        clock.parallel(lambda: session.command("RTRV-HDR"), close)
    assert clock.now() == 5 * MS
    server.close()
