"""Answers like a Spectronix Eye-BERT MicroX over its USB serial line; knows no driver.

Text commands end with a line end; `r` is answered by 27 bytes. It crashes at an equals sign, as
the real one does: from then on it is silent. Guessed: the words behind the version.
"""

import math
import re
import struct
from collections.abc import Mapping
from functools import partial

from instruments.simulated.bit_receiver import ErrorDetector
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings
from testbeds import InstrumentSpec

TAKES = 2_000_000
"""How long a command takes, in ns."""
PATTERNS = "0791523L86"
WAVELENGTH_NM = 1310.0
TEMPERATURE_C = 38.5

_LAUNCH_DBM = -2.0
_DARK_DBM = -40.0


class EyeBertPeer:
    """One tester with a transceiver in it: channel 1 sends and receives."""

    def __init__(self, around: Surroundings) -> None:
        assert isinstance(around.spec, InstrumentSpec)
        self._around = around
        name = around.spec.name
        draws = around.chance.stream(f"{name}/errors")
        self._detector = ErrorDetector(name, 1, around.light, around.clock, draws, around.ambient)
        self._launch_dbm = around.spec.launch_max_dbm
        if self._launch_dbm is None:
            self._launch_dbm = _LAUNCH_DBM
        self._pattern = "7"
        self._kbps = 10_312_500
        self._detector.rate = self._kbps * 1e3
        self._lit = False
        self._crashed = False
        self._emit(lit=True)

    def wires(self) -> Mapping[str, SessionFactory]:
        """Text and records on a serial line."""
        return {"serial": lambda connection, _: _Dialogue(self, connection, self._around)}

    def carry_out(self, command: str) -> bytes | None:
        """The answer to one command, or None where there is none."""
        self._crashed = self._crashed or "=" in command
        if self._crashed:
            return None
        word, _, argument = command.partition(" ")
        match word:
            case "?":
                return f"Eye-BERT MicroX 2.41: SN {self._around.serial}\r\n".encode()
            case "r":
                return self._record()
            case "setpat" if len(argument) == 1 and argument in PATTERNS:
                self._pattern = argument
                self._detector.begin()
            case "setrate" if re.fullmatch(r"\d{1,8}", argument):
                self._kbps = int(argument)
                self._detector.begin()
                self._detector.rate = self._kbps * 1e3
            case "reset":
                self._detector.begin()
            case "tx" if argument in {"0", "1"}:
                self._emit(lit=argument == "1")
        return None

    def _emit(self, *, lit: bool) -> None:
        assert self._launch_dbm is not None
        self._lit = lit
        milliwatt = 10 ** (self._launch_dbm / 10) if lit else 0.0
        self._around.light.emit(1, milliwatt, self._around.clock.now())

    def _record(self) -> bytes:
        assert self._launch_dbm is not None
        counted = self._detector.counted()
        received = max(self._detector.level_dbm, _DARK_DBM)
        sent = self._launch_dbm if self._lit else _DARK_DBM
        state = 2 if self._detector.has_sync else 3 if self._detector.has_clock else 1
        return b"".join(
            (
                struct.pack(">I", self._kbps * 100),
                self._pattern.encode(),
                *(struct.pack(">H", 32768 - round(100 * dbm)) for dbm in (received, sent)),
                round(100 * WAVELENGTH_NM).to_bytes(3, "big"),
                struct.pack(">H", 32768 - round(100 * TEMPERATURE_C)),
                bytes([state | 0x40]),
                _short_float(counted.bits),
                _short_float(counted.errors),
                bytes([20, 64, 0, 0]),
            )
        )


def _short_float(count: int) -> bytes:
    """24 bits of mantissa and 8 of exponent: m * 2**(e - 24)."""
    exponent = max(math.frexp(count)[1], 0)
    mantissa = min(round(count / 2.0 ** (exponent - 24)), (1 << 24) - 1)
    return mantissa.to_bytes(3, "big") + bytes([exponent])


class _Dialogue:
    """One client: commands one after the other."""

    def __init__(self, peer: EyeBertPeer, connection: PeerConnection, around: Surroundings) -> None:
        self._peer = peer
        self._connection = connection
        self._clock = around.clock
        self._owner = around.spec.name
        self._buffer = b""
        self._free_at = 0

    def received(self, data: bytes) -> None:
        """Take bytes; a line end ends a command."""
        *commands, self._buffer = re.split(rb"[\r\n]+", self._buffer + data)
        for command in filter(None, commands):
            self._free_at = max(self._free_at, self._clock.now()) + TAKES
            text = command.decode("ascii", "replace")
            self._clock.schedule(self._free_at, self._owner, partial(self._answer, text))

    def closed(self) -> None:
        """The line was cut."""

    def _answer(self, command: str) -> None:
        answer = self._peer.carry_out(command)
        if answer is not None:
            self._connection.send(answer)
