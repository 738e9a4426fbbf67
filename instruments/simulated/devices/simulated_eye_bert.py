"""Simulated Spectronix Eye-BERT MicroX on its USB serial line.

Text commands end with a line end; `r` is answered by 27 bytes. It crashes at an equals sign, as
the real one does, and is silent from then on. Guessed: the text after the version.
"""

import math
import re
import struct
from collections.abc import Mapping

from lightrig.instruments.simulated.protocols.commands import command
from lightrig.instruments.simulated.protocols.device_server import SessionFactory
from lightrig.instruments.simulated.protocols.framed_device import (
    FramedServerSession,
    FrameReply,
    TextCommands,
)
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.instruments.simulated.world.bit_receiver import ErrorDetector
from lightrig.testbeds import InstrumentSpec

PROCESSING = 2_000_000
"""Time of a command, in ns."""
PATTERNS = "0791523L86"
WAVELENGTH_NM = 1310.0
TEMPERATURE_C = 38.5

_LAUNCH_DBM = -2.0
_DARK_DBM = -40.0


class SimulatedEyeBert(TextCommands):
    """One tester with a transceiver in it: channel 1 sends and receives."""

    def __init__(self, context: DeviceContext) -> None:
        assert isinstance(context.spec, InstrumentSpec)
        self._context = context
        name = context.spec.name
        draws = context.chance.stream(f"{name}/errors")
        self._detector = ErrorDetector(
            name, 1, context.light, context.clock, draws, context.ambient, context.receiver
        )
        context.truth.note_counter(f"{name}.1", self._detector.true_ratio)
        self._launch_dbm = context.spec.launch_max_dbm
        if self._launch_dbm is None:
            self._launch_dbm = _LAUNCH_DBM
        self._pattern = "7"
        self._kbps = 10_312_500
        self._detector.rate = self._kbps * 1e3
        self._lit = False
        self._crashed = False
        self._emit(lit=True)

    def wires(self) -> Mapping[str, SessionFactory]:
        """Return the session factory of a serial line."""
        return {
            "serial": lambda connection, _: FramedServerSession(
                self, connection, self._context.clock, self._context.spec.name, PROCESSING
            )
        }

    def split_frame(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first line; carriage return and line feed end one."""
        end = re.search(rb"[\r\n]", buffer)
        return None if end is None else (buffer[: end.start()], end.end())

    def execute(self, frame: bytes) -> FrameReply:
        """Carry out one command, unless the tester has crashed."""
        self._crashed = self._crashed or b"=" in frame
        return FrameReply() if self._crashed else super().execute(frame)

    @command(r"\?")
    def _query_identity(self) -> FrameReply:
        return FrameReply(f"Eye-BERT MicroX 2.41: SN {self._context.serial}\r\n".encode())

    @command(f"setpat ([{PATTERNS}])")
    def _set_pattern(self, pattern: str) -> FrameReply:
        self._pattern = pattern
        return self._begin()

    @command(r"setrate (\d{1,8})")
    def _set_rate(self, kbps: str) -> FrameReply:
        self._kbps = int(kbps)
        reply = self._begin()
        self._detector.rate = self._kbps * 1e3
        return reply

    @command("reset")
    def _begin(self) -> FrameReply:
        self._detector.begin()
        return FrameReply()

    @command("tx ([01])")
    def _set_laser(self, on: str) -> FrameReply:
        self._emit(lit=on == "1")
        return FrameReply()

    def _emit(self, *, lit: bool) -> None:
        assert self._launch_dbm is not None
        self._lit = lit
        milliwatt = 10 ** (self._launch_dbm / 10) if lit else 0.0
        self._context.light.emit(1, milliwatt, self._context.clock.now())

    @command("r")
    def _query_record(self) -> FrameReply:
        assert self._launch_dbm is not None
        counted = self._detector.counted()
        received = max(self._detector.level_dbm, _DARK_DBM)
        sent = self._launch_dbm if self._lit else _DARK_DBM
        state = 2 if self._detector.has_sync else 3 if self._detector.has_clock else 1
        record = b"".join(
            (
                struct.pack(">I", self._kbps * 100),
                self._pattern.encode(),
                *(struct.pack(">H", 32768 - round(100 * dbm)) for dbm in (received, sent)),
                round(100 * WAVELENGTH_NM).to_bytes(3, "big"),
                struct.pack(">H", 32768 - round(100 * TEMPERATURE_C)),
                bytes([state | 0x40]),
                short_float(counted.bits),
                short_float(counted.errors),
                bytes([20, 64, 0, 0]),
            )
        )
        return FrameReply(record)


def short_float(count: int) -> bytes:
    """24 bits of mantissa and 8 of exponent: m * 2**(e - 24)."""
    exponent = max(math.frexp(count)[1], 0)
    mantissa = min(round(count / 2.0 ** (exponent - 24)), (1 << 24) - 1)
    return mantissa.to_bytes(3, "big") + bytes([exponent])
