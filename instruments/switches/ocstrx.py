"""Bundles of OCSTrx modules, transceivers that switch, over Lightrig's own register protocol."""

import binascii
import itertools
import struct
from collections.abc import Collection, Mapping

from instruments.capabilities import Identity, Operation, Telemetry
from instruments.clock import Clock, Span
from instruments.errors import CANNOT, DeniedError, GarbledError
from instruments.registry import Spec
from instruments.switches.selector import Moved
from instruments.way import Way
from instruments.wire.exchange import Answer, Exchange, Resync
from instruments.wire.framing import FramingError
from instruments.wire.stream import serial_stream
from testbeds import Circuit

_FRAME = 12
_READ, _WRITE = 1, 2
_BUNDLE = 0xFF
_NAMED, _SERIAL, _FIRMWARE, _MODULES, _SIMULATED = range(5)
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
    """Answers of twelve bytes with a check sum."""

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """The first frame."""
        if buffer[0] != 0x5A:
            raise FramingError("it does not begin with 5A")
        if len(buffer) < _FRAME:
            return None
        frame = buffer[:_FRAME]
        if binascii.crc_hqx(frame[:10], 0xFFFF) != int.from_bytes(frame[10:], "big"):
            raise FramingError("its check sum is wrong")
        return frame, _FRAME

    def show(self, data: bytes) -> str:
        """As hexadecimal bytes."""
        return data.hex(" ")


class OcsTrx:
    """A bundle of up to sixteen modules; each always leads its light onto one of three paths.

    Ingress 1..k are the modules' transmitters. Module m (from 1) leads to egress k + 3 (m - 1) + p
    on path p: 1 and 2 the external ones, 3 the cross-lane loopback. A change of any number of
    modules is one command.

    Source: docs/ocstrx-registers.md, a protocol of Lightrig's own; what modules of a vendor
    speak is not public.

    Args:
        name: the bundle's name in the testbed.
        device: path of its serial line (921600 8N1).
        clock: the bench's clock.
        modules: how many modules the bundle has.
    """

    schemes = ("serial",)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "OcsTrx":
        """The driver of the bundle that `spec` describes."""
        return cls(spec.name, way.resource, clock, modules=getattr(spec, "ingress_count", 1))

    def __init__(self, name: str, device: str, clock: Clock, *, modules: int) -> None:
        self.name = name
        self._clock = clock
        self.modules = modules
        self._numbers = itertools.cycle(range(256))
        self._exchange = Exchange(
            name,
            lambda: serial_stream(name, device, clock, baud=921_600),
            clock,
            _Frames(),
            resync=Resync(quiet=50_000_000),
        )

    def identity(self) -> Identity:
        """Model, serial number and firmware."""
        if self._read(_BUNDLE, _NAMED) != _OCST:
            raise self._exchange.failed(
                GarbledError, "does not call itself a bundle of OCSTrx modules", "read 0000"
            )
        firmware = self._read(_BUNDLE, _FIRMWARE)
        serial = str(self._read(_BUNDLE, _SERIAL))
        if self._read(_BUNDLE, _SIMULATED):
            serial = f"SIM-{serial}"
        count = self._read(_BUNDLE, _MODULES)
        return Identity(
            "OCSTrx", f"bundle of {count}", serial, f"{firmware >> 16}.{firmware & 0xFFFF}"
        )

    def circuits(self) -> frozenset[Circuit]:
        """The path of every module."""
        return frozenset(self._circuit(m, path) for m, path in enumerate(self._paths()))

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to lead modules onto other paths; raises `DeniedError` for what cannot be."""
        paths = self._paths()
        wanted = self._changed(paths, remove, add)
        if wanted == paths:
            at = self._clock.now()
            return Moved(Span(at, at), lambda: Span(at, at))
        return self._begin(_PATHS, _packed(wanted))

    def preload(self, circuits: Collection[Circuit]) -> None:
        """Have `circuits` ready to be taken at once; every module needs one."""
        wanted = self._changed([0] * self.modules, (), circuits)
        self._ask(_WRITE, _BUNDLE, _PRELOADED, _packed(wanted))

    def trigger(self) -> Operation:
        """Begin to take the preloaded paths; raises `DeniedError` where there are none."""
        return self._begin(_TRIGGER, 1)

    def telemetry(self, module: int) -> Telemetry:
        """Temperature and power of a module, numbered from 1."""
        celsius, core, total = (
            self._read(module - 1, register) for register in (_TEMPERATURE, _CORE, _TOTAL)
        )
        return Telemetry(celsius / 100, core / 1000, total / 1000)

    def wire(self) -> list[str]:
        """The last lines of its serial line."""
        return self._exchange.trace.tail(40)

    def close(self) -> None:
        """Close its serial line."""
        self._exchange.close()

    # --------------------------------------------------------------------------- paths

    def _circuit(self, module: int, path: int) -> Circuit:
        return Circuit(module + 1, self.modules + 3 * module + path)

    def _paths(self) -> list[int]:
        packed = self._read(_BUNDLE, _PATHS)
        paths = [(packed >> 2 * module) & 3 for module in range(self.modules)]
        if 0 in paths:
            raise self._exchange.failed(
                GarbledError, "has a module on no path", "read 0011", ("answered", f"{packed:#x}")
            )
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
        for circuits, made in ((remove, False), (add, True)):
            for circuit in circuits:
                if circuit not in known:
                    raise self._cannot(f"no module leads from {circuit}")
                module, path = known[circuit]
                if made:
                    wanted[module] = path
                elif wanted[module] == path:
                    wanted[module] = 0
        if 0 in wanted:
            raise self._cannot(f"module {wanted.index(0) + 1} would be on no path")
        return wanted

    def _cannot(self, text: str) -> DeniedError:
        return DeniedError(
            self.name, code=CANNOT, text=text, command="change", trace=self.wire()[-6:]
        )

    # ------------------------------------------------------------------------- the wire

    def _begin(self, register: int, value: int) -> Operation:
        frame = self._frame(_WRITE, _BUNDLE, register, value)
        begun = self._exchange.begin(frame)

        def finish() -> Span:
            answer = begun.result()
            self._value(frame, answer)
            return Span(begun.sent.latest, answer.received)

        return Moved(begun.sent, finish)

    def _read(self, module: int, register: int) -> int:
        return self._ask(_READ, module, register, 0)

    def _ask(self, operation: int, module: int, register: int, value: int) -> int:
        frame = self._frame(operation, module, register, value)
        return self._value(frame, self._exchange.ask(frame))

    def _frame(self, operation: int, module: int, register: int, value: int) -> bytes:
        number = next(self._numbers)
        body = struct.pack(">BBBBHI", 0xA5, number, operation, module, register, value & 0xFFFFFFFF)
        return body + struct.pack(">H", binascii.crc_hqx(body, 0xFFFF))

    def _value(self, frame: bytes, answer: Answer) -> int:
        """The value that answers `frame`; raises `DeniedError` or `GarbledError`."""
        _, number, status, module, register, value, _ = struct.unpack(">BBBBHiH", answer.data)
        if (number, module, register) != (frame[1], frame[3], int.from_bytes(frame[4:6], "big")):
            raise self._exchange.failed(
                GarbledError,
                "answered another question than was asked",
                frame.hex(" "),
                ("answered", answer.data.hex(" ")),
            )
        if status:
            raise DeniedError(
                self.name,
                code=str(status),
                text=_STATUS.get(status, "a status that is not documented"),
                command=frame.hex(" "),
                trace=self.wire()[-6:],
            )
        return int(value)


def _packed(paths: list[int]) -> int:
    return sum(path << 2 * module for module, path in enumerate(paths))
