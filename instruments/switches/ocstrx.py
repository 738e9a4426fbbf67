"""Bundles of OCSTrx modules, transceivers that switch, over Lightrig's own register protocol."""

import binascii
import itertools
import struct
from collections.abc import Collection, Mapping
from typing import Any

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import Identity, Operation, Telemetry
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.instrument import Option, line_speed
from lightrig.instruments.core.position_switch import PendingMove
from lightrig.instruments.core.query_instrument import QueryInstrument
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.instruments.wire.framing import FramingError
from lightrig.instruments.wire.session import Answer, Resync
from lightrig.testbeds import Circuit

_FRAME = 12
_READ, _WRITE = 1, 2
_BUNDLE = 0xFF
_FAMILY, _SERIAL, _FIRMWARE, _MODULES, _SIMULATED = range(5)
_PATHS, _PRELOADED, _TRIGGER = 0x11, 0x12, 0x13
_TEMPERATURE, _CORE, _TOTAL = 0x20, 0x21, 0x22
_OCST = 0x4F435354
_STATUS = {
    1: "no such operation",
    2: "no such register, or not one that can be written",
    3: "no such value",
    4: "no such module",
    5: "still switching",
}


class _Frames:
    """Replies of twelve bytes with a check sum."""

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first frame and its length."""
        if buffer[0] != 0x5A:
            raise FramingError("it does not begin with 5A")
        if len(buffer) < _FRAME:
            return None
        frame = buffer[:_FRAME]
        if binascii.crc_hqx(frame[:10], 0xFFFF) != int.from_bytes(frame[10:], "big"):
            raise FramingError("its check sum is wrong")
        return frame, _FRAME

    def show(self, data: bytes) -> str:
        """Return `data` as hexadecimal bytes."""
        return data.hex(" ")


class Ocstrx(QueryInstrument):
    """A bundle of up to sixteen modules; each always leads its light onto one of three paths.

    Ingress 1..k are the modules' transmitters. Module m (from 1) leads to egress k + 3 (m - 1) + p
    on path p: 1 and 2 the external ones, 3 the cross-lane loopback. A change of any number of
    modules is one command. Serial line at 921600 8N1.

    Source: docs/appendix/ocstrx-registers.md, a protocol defined by Lightrig; that of a vendor's
    modules is not public.
    """

    schemes = ("serial",)
    wire_facts = (
        WireFact("registers", "docs/appendix/ocstrx-registers.md, defined by Lightrig"),
        WireFact("registers of a vendor's modules; they are not public"),
    )
    baud = line_speed(921_600)
    framing = _Frames()
    resync = Resync(quiet=50_000_000)
    modules = Option(int, 1, "number of modules", attribute="ingress_count")

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self._numbers = itertools.cycle(range(256))

    def identity(self) -> Identity:
        """Return model, serial number and firmware."""
        if self._read(_BUNDLE, _FAMILY) != _OCST:
            raise self.garbled("read 0000", "another family", "bundle of OCSTrx modules")
        firmware = self._read(_BUNDLE, _FIRMWARE)
        serial = str(self._read(_BUNDLE, _SERIAL))
        if self._read(_BUNDLE, _SIMULATED):
            serial = f"SIM-{serial}"
        count = self._read(_BUNDLE, _MODULES)
        return Identity(
            "OCSTrx", f"bundle of {count}", serial, f"{firmware >> 16}.{firmware & 0xFFFF}"
        )

    def circuits(self) -> frozenset[Circuit]:
        """Return the circuit of every module."""
        return frozenset(self._circuit(m, path) for m, path in enumerate(self._paths()))

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to lead modules onto other paths; raises `DeniedError` for what cannot be."""
        paths = self._paths()
        wanted = self._changed(paths, remove, add)
        if wanted == paths:
            return PendingMove.nothing(self.clock)
        return self._begin(_PATHS, _packed(wanted))

    def preload(self, circuits: Collection[Circuit]) -> None:
        """Preload `circuits`, one for each module, for `trigger`."""
        wanted = self._changed([0] * self.modules, (), circuits)
        self._command(_WRITE, _BUNDLE, _PRELOADED, _packed(wanted))

    def trigger(self) -> Operation:
        """Begin to switch to the preloaded paths; raises `DeniedError` where there are none."""
        return self._begin(_TRIGGER, 1)

    def telemetry(self, module: int) -> Telemetry:
        """Return temperature and power of a module, numbered from 1."""
        celsius, core, total = (
            self._read(module - 1, register) for register in (_TEMPERATURE, _CORE, _TOTAL)
        )
        return Telemetry(celsius / 100, core / 1000, total / 1000)

    # --------------------------------------------------------------------------- paths

    def _circuit(self, module: int, path: int) -> Circuit:
        return Circuit(module + 1, self.modules + 3 * module + path)

    def _paths(self) -> list[int]:
        packed = self._read(_BUNDLE, _PATHS)
        paths = [(packed >> 2 * module) & 3 for module in range(self.modules)]
        if 0 in paths:
            raise self.garbled("read 0011", f"{packed:#x}", "path of every module")
        return paths

    def _changed(
        self, paths: list[int], remove: Collection[Circuit], add: Collection[Circuit]
    ) -> list[int]:
        known: Mapping[Circuit, tuple[int, int]] = {
            self._circuit(module, path): (module, path)
            for module in range(self.modules)
            for path in (1, 2, 3)
        }
        wanted = list(paths)
        for circuits, adding in ((remove, False), (add, True)):
            for circuit in circuits:
                if circuit not in known:
                    raise self.refused(f"no module leads from {circuit}", command="change")
                module, path = known[circuit]
                if adding:
                    wanted[module] = path
                elif wanted[module] == path:
                    wanted[module] = 0
        if 0 in wanted:
            raise self.refused(
                f"module {wanted.index(0) + 1} would be on no path", command="change"
            )
        return wanted

    # ------------------------------------------------------------------------- the wire

    def _begin(self, register: int, value: int) -> Operation:
        frame = self._frame(_WRITE, _BUNDLE, register, value)
        pending = self.session.submit(frame)

        def finish() -> Span:
            reply = pending.result()
            self._value(frame, reply)
            return Span(pending.sent.earliest, reply.received)

        return PendingMove(pending.sent, finish)

    def _read(self, module: int, register: int) -> int:
        return self._command(_READ, module, register, 0)

    def _command(self, operation: int, module: int, register: int, value: int) -> int:
        frame = self._frame(operation, module, register, value)
        return self._value(frame, self.session.query(frame))

    def _frame(self, operation: int, module: int, register: int, value: int) -> bytes:
        number = next(self._numbers)
        body = struct.pack(">BBBBHI", 0xA5, number, operation, module, register, value & 0xFFFFFFFF)
        return body + struct.pack(">H", binascii.crc_hqx(body, 0xFFFF))

    def _value(self, frame: bytes, reply: Answer) -> int:
        """Return the value in the reply to `frame`; raises `DeniedError` or `GarbledError`."""
        _, number, status, module, register, value, _ = struct.unpack(">BBBBHiH", reply.data)
        if (number, module, register) != (frame[1], frame[3], int.from_bytes(frame[4:6], "big")):
            raise self.garbled(frame.hex(" "), reply.data.hex(" "), "reply to this command")
        if status:
            text = _STATUS.get(status, "a status that is not documented")
            raise self.denied(frame.hex(" "), str(status), text)
        return int(value)


def _packed(paths: list[int]) -> int:
    return sum(path << 2 * module for module, path in enumerate(paths))
