"""Simulated bundle of OCSTrx transceivers over Lightrig's register protocol.

The protocol is docs/appendix/ocstrx-registers.md. Switching times are those of the testbed's
simulation; power is chosen within the published bounds: core below 3.2 W at any temperature, total
below 12 W.
"""

import struct
from collections.abc import Mapping

from lightrig.instruments.simulated.protocols.device_server import SessionFactory
from lightrig.instruments.simulated.protocols.framed_device import FramedServerSession, FrameReply
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.instruments.simulated.world.ambient import ROOM_C
from lightrig.testbeds import Circuit, SwitchSpec

FRAME = 12
PROCESSING = 20_000
"""Time to read a frame, and to write its reply, in ns."""
PATHS = (1, 2, 3)

_REQUEST, _ANSWER = 0xA5, 0x5A
_READ, _WRITE = 1, 2
_DONE, _NO_OPERATION, _NO_REGISTER, _NO_VALUE, _NO_MODULE, _SWITCHING = range(6)
_BUNDLE = 0xFF
_CORE_MW, _REST_MW = 2_900, 8_500
_HEATER_MW_PER_K = 2
_SELF_HEATING_K = 19.2


class SimulatedOcstrx:
    """One bundle: ingress 1..k are the transceivers, egress k + 3 m + path their three paths."""

    def __init__(self, context: DeviceContext) -> None:
        assert isinstance(context.spec, SwitchSpec)
        assert context.matrix is not None
        self.context = context
        self.modules = context.spec.ingress_count
        self._matrix = context.matrix
        self._paths = [1] * self.modules
        self._preloaded = 0
        self._busy_until = 0
        self._switch([1] * self.modules, first=True)

    def wires(self) -> Mapping[str, SessionFactory]:
        """Return the session factory of a serial line."""
        return {
            "serial": lambda connection, _: FramedServerSession(
                self,
                connection,
                self.context.clock,
                self.context.spec.name,
                PROCESSING,
                overlapping=True,  # while it switches, it answers that it does
            )
        }

    def split_frame(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first frame: twelve bytes from A5 on with the right checksum."""
        at = 0
        while len(buffer) - at >= FRAME:
            start = buffer.find(_REQUEST, at)
            if start < 0:
                return b"", len(buffer)
            at = start
            frame = buffer[at : at + FRAME]
            if len(frame) == FRAME and crc16(frame[:10]) == int.from_bytes(frame[10:]):
                return frame, at + FRAME
            at += len(frame) == FRAME
            if len(frame) < FRAME:
                break
        return (b"", at) if at else None

    def execute(self, frame: bytes) -> FrameReply:
        """Carry out one frame."""
        _, _, operation, module, register, value, _ = struct.unpack(">BBBBHiH", frame)
        status, result, after = self._access(operation, module, register, value)
        body = struct.pack(">BBBBHi", _ANSWER, frame[1], status, module, register, result)
        return FrameReply(body + struct.pack(">H", crc16(body)), after + PROCESSING)

    def _access(self, operation: int, module: int, register: int, value: int) -> tuple[int, ...]:
        """Read or write a register; return status, value and delay in ns."""
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
        celsius = self.context.ambient.celsius
        core = _CORE_MW + 5 * module + round(_HEATER_MW_PER_K * (celsius - ROOM_C))
        readings = {
            0x0010: self._paths[module],
            0x0020: round(100 * (celsius + _SELF_HEATING_K)) + 10 * module,
            0x0021: core,
            0x0022: core + _REST_MW,
        }
        return (_DONE, readings[register], 0) if register in readings else (_NO_REGISTER, 0, 0)

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
        if self.context.clock.now() < self._busy_until:
            return _SWITCHING, 0, 0
        return _DONE, value, self._switch(paths)

    def _unpacked(self, value: int) -> list[int]:
        return [(value >> 2 * module) & 3 for module in range(self.modules)]

    def _switch(self, paths: list[int], *, first: bool = False) -> int:
        """Move the transceivers that differ; return the time to the acknowledgement, in ns."""
        moved = [m for m in range(self.modules) if first or paths[m] != self._paths[m]]
        self._paths = paths
        if not moved:
            return 0
        k = self.modules
        after = self._matrix.connect([Circuit(m + 1, k + 3 * m + paths[m]) for m in moved])
        self._busy_until = self.context.clock.now() + after
        self.context.acknowledge(after)
        return after


def _packed(paths: list[int]) -> int:
    return sum(path << 2 * module for module, path in enumerate(paths))


def _signed(value: int) -> int:
    return value - (1 << 32) if value & 0x80000000 else value


def crc16(data: bytes) -> int:
    """CRC-16/CCITT-FALSE: polynomial 1021, initial value FFFF."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc
