"""Spectronix Eye-BERT MicroX, a tester with one transceiver on a USB serial line."""

import struct
from dataclasses import dataclass

from instruments.bit_error_testers.gates import prbs
from instruments.capabilities import ErrorCount, Identity, PowerReading
from instruments.clock import Clock, Span
from instruments.errors import GarbledError, NotDoneError
from instruments.registry import Spec
from instruments.way import Way
from instruments.wire.exchange import Exchange, Resync
from instruments.wire.stream import serial_stream

_PATTERNS = {7: "7", 9: "9", 11: "1", 15: "5", 23: "2", 31: "3"}
_RECORD = 27
_TEXT = frozenset(range(0x20, 0x7F)) | {0x0A, 0x0D}
_NO_SIGNAL, _LOCKED = 1, 2
_STATUSES = frozenset({0, _NO_SIGNAL, _LOCKED, 3})
_READING = 100_000_000
"""How long before a reading its power was taken at most, in ns (a guess)."""


class _TextOrRecord:
    """A line of text, or a record of 27 bytes, whose last is zero and no text."""

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """The first line without its end, or the first record."""
        if not _TEXT.issuperset(buffer[:_RECORD]):
            return (buffer[:_RECORD], _RECORD) if len(buffer) >= _RECORD else None
        at = buffer.find(b"\n")
        return None if at < 0 else (buffer[:at].strip(), at + 1)

    def show(self, data: bytes) -> str:
        """Text as text, a record as hexadecimal bytes."""
        return data.decode() if _TEXT.issuperset(data) else data.hex(" ")


@dataclass(frozen=True, slots=True)
class _Record:
    """One answer to `r`; powers in dBm."""

    status: int
    received_dbm: float
    sent_dbm: float
    bits: int
    errors: int
    asked: int
    answered: int


class EyeBert:
    """A tester that counts all the time, since its last reset.

    A gate is a reset and a reading `duration` later; what lies between the stamps of both is
    the width of its ends. Counts have 24 bits: beyond 16,777,216 they are rounded.

    Source: the layout that a public program for it documents. The words of its answer to `?`
    behind the version are a guess; without them the serial number is "unknown".

    Args:
        name: the tester's name in the testbed.
        device: path of its serial line.
        clock: the bench's clock.
    """

    schemes = ("serial",)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "EyeBert":
        """The driver of the tester that `spec` describes."""
        return cls(spec.name, way.resource, clock)

    def __init__(self, name: str, device: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        resync = Resync(question=b"?\r\n", recognises=lambda message: message[:8] == b"Eye-BERT")
        self._exchange = Exchange(
            name,
            lambda: serial_stream(name, device, clock, baud=115_200),
            clock,
            _TextOrRecord(),
            resync=resync,
        )

    def identity(self) -> Identity:
        """Model and version; the serial number where it is told."""
        text = self._exchange.ask(b"?\r\n").data.decode("ascii", "backslashreplace")
        words = text.split()
        if len(words) < 3:
            raise self._garbled("?", text)
        serial = words[4] if len(words) > 4 and words[3] == "SN" else "unknown"
        return Identity("Spectronix", " ".join(words[:2]), serial, words[2].rstrip(":"))

    def prepare(self, channel: int, *, pattern: str, bits_per_second: float) -> None:
        """Send and expect a PRBS at a bit rate; switches the light on."""
        code = _PATTERNS[prbs(self.name, pattern, tuple(_PATTERNS))]
        for command in (f"setrate {bits_per_second / 1e3:.0f}", f"setpat {code}", "tx 1"):
            self._tell(command)

    def align(self, channel: int) -> None:
        """It aligns itself; raises `NotDoneError` where it has not."""
        record = self._read()
        if record.status != _LOCKED:
            raise self._exchange.failed(
                NotDoneError,
                "follows no pattern",
                "r",
                ("answered", f"status {record.status}, {record.received_dbm:.2f} dBm received"),
                ("try", "is there light at the receiver, does it loop back to the sender?"),
            )

    def count(self, channel: int, *, duration: int) -> "OpenGate":
        """Count from zero for `duration` ns."""
        before = self._clock.now()
        self._tell("reset")
        answered = self._read().answered  # what comes after the reset was carried out
        return OpenGate(self, self._clock, Span(before, answered), duration)

    def power(self, ports: list[int]) -> PowerReading:
        """What its receiver, channel 1, says of the received power in dBm."""
        record = self._read()
        dbm = dict.fromkeys(ports, record.received_dbm)
        return PowerReading(record.asked, record.answered, _READING, dbm)

    def wire(self) -> list[str]:
        """The last lines of the session."""
        return self._exchange.trace.tail(40)

    def close(self) -> None:
        """End the session."""
        self._exchange.close()

    def counted(self, began: Span) -> ErrorCount:
        """The counts since `began`, as of now."""
        record = self._read()
        return ErrorCount(
            began,
            Span(record.asked, record.answered),
            record.bits,
            record.errors,
            sync_lost=record.status != _LOCKED,
            clock_lost=record.status == _NO_SIGNAL,
        )

    def _tell(self, command: str) -> None:
        self._exchange.tell(f"{command}\r\n".encode())

    def _read(self) -> _Record:
        answer = self._exchange.ask(b"r\r\n")
        data = answer.data
        if len(data) != _RECORD or data[-1] or data[14] & 0x3F not in _STATUSES:
            raise self._garbled("r", data.hex(" "))
        if not data[14] & 0x40:
            raise self._exchange.failed(
                NotDoneError, "has no transceiver in it", "r", ("try", "plug one in")
            )
        received, sent = ((32768 - raw) / 100 for raw in struct.unpack(">HH", data[5:9]))
        bits, errors = _long(data[15:19]), _long(data[19:23])
        if errors > bits:
            raise self._garbled("r", data.hex(" "))
        status = data[14] & 0x3F
        return _Record(status, received, sent, bits, errors, answer.sent.earliest, answer.received)

    def _garbled(self, command: str, answered: str) -> GarbledError:
        error = self._exchange.failed(
            GarbledError,
            "answered something that is no record of counts",
            command,
            ("answered", answered),
        )
        assert isinstance(error, GarbledError)
        return error


class OpenGate:
    """A count under way."""

    def __init__(self, tester: EyeBert, clock: Clock, began: Span, duration: int) -> None:
        self._tester = tester
        self._clock = clock
        self._began = began
        self._duration = duration

    def result(self) -> ErrorCount:
        """Wait until the time is over and read the counts."""
        self._clock.sleep(self._began.earliest + self._duration - self._clock.now())
        return self._tester.counted(self._began)

    def now(self) -> ErrorCount:
        """The counts so far."""
        return self._tester.counted(self._began)

    def stop(self) -> ErrorCount:
        """The counts so far; the tester itself never stops."""
        return self._tester.counted(self._began)


def _long(data: bytes) -> int:
    """24 bits of mantissa and 8 of exponent: m * 2**(e - 24)."""
    return round(int.from_bytes(data[:3], "big") * 2.0 ** (data[3] - 24))
