"""Simulated bench instruments on sockets, light on their channels, and lines to type at them."""

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.registry import DeviceContext, DeviceFactory, SimulatedDevice
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.light import Channels, LightField
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.testbeds import Fiber, Identity, InstrumentSpec, Port

MS = 1_000_000
LOGIN = ("bench", "hunter2-and-more")


@dataclass
class Rig:
    """One simulated instrument, the light at its channels, and what was opened to it."""

    clock: Clock
    name: str
    spec: InstrumentSpec
    field: LightField
    truth: GroundTruth
    peer: SimulatedDevice
    server: DeviceServer
    scheme: str
    host: str
    port: int
    closers: list[Callable[[], None]] = field(default_factory=list)

    @property
    def way(self) -> Endpoint:
        return Endpoint(self.scheme, self.host, self.port)

    def serial(self) -> Endpoint:
        return Endpoint("serial", resource=self.server.serial_line(self.peer.wires()["serial"]))

    def driver(self, kind: Any, way: Endpoint | None = None, **options: Any) -> Any:
        made = kind(self.name, way or self.way, self.clock, **options)
        self.closers.append(made.close)
        return made

    def line(self) -> "Line":
        made = Line(socket.create_connection((self.host, self.port), timeout=30))
        self.closers.append(made.close)
        return made

    def shine(self, channel: int, milliwatt: float) -> None:
        """From now on `milliwatt` come to a channel."""
        source = Port("sun", str(channel))
        self.field.emit(source, milliwatt, source, self.clock.now())

    def leaving(self, channel: int) -> float:
        """The power in mW that leaves a channel now."""
        return self.field.level(Port("wall", str(channel)))

    def polarization(self, channel: int) -> tuple[float, float, float] | None:
        """The Stokes parameters of the light that leaves a channel now."""
        return self.field.polarization(Port("wall", str(channel)))

    def left(self, channel: int, start: int, end: int) -> float:
        """Mean power in mW that left a channel between two times."""
        return self.field.arriving(Port("wall", str(channel)), start, end)


class Line:
    """Return the reply as a person with a terminal would see it."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = b""

    def write(self, text: str | bytes) -> None:
        self._socket.sendall(text if isinstance(text, bytes) else text.encode() + b"\n")

    def read(self) -> bytes:
        """The next answer: a line, or a block."""
        while True:
            if self._buffer.startswith(b"#") and len(self._buffer) > 2:
                digits = int(self._buffer[1:2])
                if len(self._buffer) >= 2 + digits:
                    end = 2 + digits + int(self._buffer[2 : 2 + digits])
                    if len(self._buffer) > end:
                        block, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
                        return block
            elif b"\n" in self._buffer:
                line, _, self._buffer = self._buffer.partition(b"\n")
                return line.rstrip(b"\r")
            data = self._socket.recv(1 << 16)
            assert data, "the instrument hung up"
            self._buffer += data

    def ask(self, text: str) -> str:
        self.write(text)
        return self.read().decode("ascii")

    def error(self) -> str:
        """The oldest entry of the error queue."""
        return self.ask(":SYST:ERR?")

    def try_out(self, text: str) -> str:
        """Return the instrument's errors after a command that has no reply."""
        self.write(text)
        return self.error()

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def simulated(
    factory: DeviceFactory,
    clock: Clock,
    *,
    kind: str,
    name: str = "meter",
    channels: int = 8,
    seed: int = 1,
    options: Mapping[str, Any] | None = None,
    **stated: Any,
) -> Iterator[Rig]:
    """An instrument that `sun.N` shines at, and whose light falls on `wall.N`."""
    spec = InstrumentSpec(
        name=name,
        kind=kind,
        model="",
        address="",
        login=None,
        channels=channels,
        launch_max_dbm=stated.get("launch_max_dbm"),
        damage_dbm=None,
        options=options or {},
        identity=Identity(),
        line=1,
        column=1,
    )
    numbers = [str(n) for n in range(1, channels + 1)]
    lit = LightField(
        [Fiber(Port("sun", n), Port(name, n), 0.0) for n in numbers]
        + [Fiber(Port(name, n), Port("wall", n), 0.0) for n in numbers]
    )
    server, truth = DeviceServer(clock), GroundTruth()
    context = DeviceContext(
        spec, clock, Chance(seed), truth, LOGIN, f"SIM-{name}", None, Channels(name, lit)
    )
    peer = factory(context)
    wires = peer.wires()
    scheme = "scpi" if "scpi" in wires else next(iter(wires))
    host, port = server.listen(wires[scheme])
    rig = Rig(clock, name, spec, lit, truth, peer, server, scheme, host, port)
    try:
        yield rig
    finally:
        for close in reversed(rig.closers):
            close()
        server.close()
