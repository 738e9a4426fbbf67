"""Answers like a bundle of OCSTrx modules over Lightrig's own register protocol; no driver known.

The protocol is docs/ocstrx-registers.md. Switching takes what the testbed's truth says; power
is chosen within what is published: core below 3.2 W at any temperature, total below 12 W.
"""

import struct
from collections.abc import Mapping

from instruments.clock import Span
from instruments.simulated.ambient import ROOM_C
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings
from testbeds import Circuit, SwitchSpec

FRAME = 12
TAKES = 20_000
"""How long the bundle takes to read a frame and to word an answer, in ns."""
PATHS = (1, 2, 3)

_REQUEST, _ANSWER = 0xA5, 0x5A
_READ, _WRITE = 1, 2
_DONE, _NO_OPERATION, _NO_REGISTER, _NO_VALUE, _NO_MODULE, _SWITCHING = range(6)
_BUNDLE = 0xFF
_CORE_MW, _REST_MW = 2_900, 8_500
_HEATER_MW_PER_K = 2
_OWN_HEAT_K = 19.2


class OcsTrxPeer:
    """One bundle: ingress 1..k are the modules, egress k + 3 m + path their three ways out."""

    def __init__(self, around: Surroundings) -> None:
        assert isinstance(around.spec, SwitchSpec)
        assert around.matrix is not None
        self.around = around
        self.modules = around.spec.ingress_count
        self._matrix = around.matrix
        self._paths = [1] * self.modules
        self._preloaded = 0
        self._busy_until = 0
        self._switch([1] * self.modules, first=True)

    def wires(self) -> Mapping[str, SessionFactory]:
        """A serial line."""
        return {"serial": lambda connection, _: _Dialogue(self, connection)}

    def carry_out(self, operation: int, module: int, register: int, value: int) -> tuple[int, ...]:
        """Status, value and after how many ns the answer comes."""
        if module != _BUNDLE and module >= self.modules:
            return _NO_MODULE, 0, 0
        if operation == _READ:
            return self._read(module, register)
        if operation == _WRITE:
            return self._write(module, register, value)
        return _NO_OPERATION, 0, 0

    def _read(self, module: int, register: int) -> tuple[int, ...]:
        bundle = {
            0x0000: 0x4F435354,
            0x0001: 1,
            0x0002: (1 << 16) | 4,
            0x0003: self.modules,
            0x0004: 1,
            0x0011: _packed(self._paths),
            0x0012: self._preloaded,
        }
        if module == _BUNDLE:
            if register not in bundle:
                return _NO_REGISTER, 0, 0
            return _DONE, _signed(bundle[register]), 0
        celsius = self.around.ambient.celsius
        core = _CORE_MW + 5 * module + round(_HEATER_MW_PER_K * (celsius - ROOM_C))
        own = {
            0x0010: self._paths[module],
            0x0020: round(100 * (celsius + _OWN_HEAT_K)) + 10 * module,
            0x0021: core,
            0x0022: core + _REST_MW,
        }
        return (_DONE, own[register], 0) if register in own else (_NO_REGISTER, 0, 0)

    def _write(self, module: int, register: int, value: int) -> tuple[int, ...]:
        paths = list(self._paths)
        if module != _BUNDLE:
            if register != 0x0010:
                return _NO_REGISTER, 0, 0
            paths[module] = value
        elif register == 0x0012:
            self._preloaded = value & 0xFFFFFFFF
            return _DONE, value, 0
        elif register == 0x0011:
            paths = self._unpacked(value)
        elif register == 0x0013:
            if value != 1 or not self._preloaded:
                return _NO_VALUE, 0, 0
            paths = self._unpacked(self._preloaded)
        else:
            return _NO_REGISTER, 0, 0
        if any(path not in PATHS for path in paths):
            return _NO_VALUE, 0, 0
        if self.around.clock.now() < self._busy_until:
            return _SWITCHING, 0, 0
        return _DONE, value, self._switch(paths)

    def _unpacked(self, value: int) -> list[int]:
        return [(value >> 2 * module) & 3 for module in range(self.modules)]

    def _switch(self, paths: list[int], *, first: bool = False) -> int:
        """Move what differs; in how many ns that is acknowledged."""
        moved = [m for m in range(self.modules) if first or paths[m] != self._paths[m]]
        self._paths = paths
        if not moved:
            return 0
        k = self.modules
        after = self._matrix.connect([Circuit(m + 1, k + 3 * m + paths[m]) for m in moved])
        now = self.around.clock.now()
        self._busy_until = now + after
        at = Span(now + after, now + after)
        self.around.truth.note(self.around.spec.name, "acknowledged", up=True, at=at)
        return after


def _packed(paths: list[int]) -> int:
    return sum(path << 2 * module for module, path in enumerate(paths))


def _signed(value: int) -> int:
    return value - (1 << 32) if value & 0x80000000 else value


class _Dialogue:
    def __init__(self, peer: OcsTrxPeer, connection: PeerConnection) -> None:
        self._peer = peer
        self._connection = connection
        self._clock = peer.around.clock
        self._owner = peer.around.spec.name
        self._buffer = b""

    def received(self, data: bytes) -> None:
        """Take bytes; frames begin with A5 and are twelve bytes long."""
        self._buffer += data
        while len(self._buffer) >= FRAME:
            start = self._buffer.find(_REQUEST)
            if start:
                self._buffer = self._buffer[start:] if start > 0 else b""
                continue
            frame = self._buffer[:FRAME]
            (crc,) = struct.unpack(">H", frame[10:])
            if crc16(frame[:10]) != crc:
                self._buffer = self._buffer[1:]
                continue
            self._buffer = self._buffer[FRAME:]
            self._carry_out(frame)

    def closed(self) -> None:
        """The line was cut."""

    def _carry_out(self, frame: bytes) -> None:
        _, number, operation, module, register, value, _ = struct.unpack(">BBBBHiH", frame)
        arrived = self._clock.now() + TAKES

        def act() -> None:
            status, result, after = self._peer.carry_out(operation, module, register, value)
            body = struct.pack(">BBBBHi", _ANSWER, number, status, module, register, result)
            answer = body + struct.pack(">H", crc16(body))
            self._clock.schedule(
                self._clock.now() + after + TAKES,
                self._owner,
                lambda: self._connection.send(answer),
            )

        self._clock.schedule(arrived, self._owner, act)


def crc16(data: bytes) -> int:
    """CRC-16/CCITT-FALSE: polynomial 1021, initial value FFFF."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc
