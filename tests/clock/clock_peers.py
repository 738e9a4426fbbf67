"""A peer on a real socket that answers, streams and hangs up at moments it is told."""

from collections.abc import Iterator
from contextlib import contextmanager

from lightrig.instruments.clock import Clock, Event
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection, DeviceServer
from lightrig.instruments.wire.tcp import TcpConnection, connect


class TimedSession:
    """Carries out lines: `answer NS TEXT`, `stream NS COUNT`, `hang-up NS`, `reset NS`."""

    def __init__(self, connection: DeviceConnection, clock: Clock, owner: str) -> None:
        self._connection = connection
        self._clock = clock
        self._owner = owner
        self._buffer = b""

    def received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._carry_out(*line.decode().split())

    def closed(self) -> None:
        pass

    def _carry_out(self, verb: str, delay: str = "0", argument: str = "") -> None:
        now, after = self._clock.now(), int(delay)
        match verb:
            case "answer":
                self._later(now + after, f"= {argument}\n")
            case "stream":
                for index in range(1, int(argument) + 1):
                    self._later(now + index * after, f"~ {index}\n")
            case "hang-up" | "reset":
                self._clock.schedule(
                    now + after,
                    self._owner,
                    lambda: self._connection.close(abruptly=verb == "reset"),
                )

    def _later(self, at: int, text: str) -> None:
        self._clock.schedule(at, self._owner, lambda: self._connection.send(text.encode()))


class Client:
    """Keeps what came and when; a line that starts with `=` answers the oldest question."""

    def __init__(self, clock: Clock, address: tuple[str, int]) -> None:
        self.clock = clock
        self.lines: list[tuple[int, str]] = []
        self.ended: tuple[int, str] | None = None
        self.end = clock.event()
        self._buffer = b""
        self._questions: list[Event] = []
        self.connection = TcpConnection(connect("peer", *address, 3.0, clock), self, clock)

    def ask(self, text: str) -> Event:
        answered = self.clock.event()
        self._questions.append(answered)
        self.tell(text)
        return answered

    def tell(self, text: str) -> None:
        self.connection.send(text.encode() + b"\n")

    def received(self, data: bytes, not_before: int) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self.lines.append((self.clock.now(), line.decode()))
            if line.startswith(b"="):
                self._questions.pop(0).set()

    def disconnected(self, reason: str) -> None:
        self.ended = (self.clock.now(), reason)
        self.end.set()


@contextmanager
def timed_peers(clock: Clock, count: int) -> Iterator[list[Client]]:
    """Clients of `count` peers, each connected."""
    server = DeviceServer(clock)
    clients = []
    try:
        for index in range(count):
            address = server.listen(
                lambda connection, _, name=f"peer{index}": TimedSession(connection, clock, name)
            )
            clients.append(Client(clock, address))
        yield clients
    finally:
        for client in clients:
            client.connection.close()
        server.close()
