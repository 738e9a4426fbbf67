"""Spectronix Eye-BERT MicroX, a tester with one transceiver on a USB serial line."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import ErrorCount, Identity, PowerReading
from lightrig.instruments.core.error_gate import SIGNAL_OPTIONS, prbs
from lightrig.instruments.core.errors import NotDoneError
from lightrig.instruments.core.instrument import line_speed
from lightrig.instruments.core.query_instrument import QueryInstrument
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.instruments.wire.session import Resync

_PATTERNS = {7: "7", 9: "9", 11: "1", 15: "5", 23: "2", 31: "3"}
_RECORD = 27
_TEXT = frozenset(range(0x20, 0x7F)) | {0x0A, 0x0D}
_NO_SIGNAL, _LOCKED = 1, 2
_STATUSES = frozenset({0, _NO_SIGNAL, _LOCKED, 3})
_NOT_SYNCHRONIZED = (
    "no query is public; with another pattern or rate the record says that it is not synchronized"
)
_READING = 100_000_000
"""Largest age of the power in a reading, in ns."""


class TextOrRecord:
    """A line of text, or a record of 27 bytes, which ends with a zero byte."""

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first line without its end, or the first record, and its length."""
        if not _TEXT.issuperset(buffer[:_RECORD]):
            return (buffer[:_RECORD], _RECORD) if len(buffer) >= _RECORD else None
        at = buffer.find(b"\n")
        return None if at < 0 else (buffer[:at].strip(), at + 1)

    def show(self, data: bytes) -> str:
        """Return text as text, a record as hexadecimal bytes."""
        return data.decode() if _TEXT.issuperset(data) else data.hex(" ")


@dataclass(frozen=True, slots=True)
class _Record:
    """A reply to `r`; powers in dBm."""

    status: int
    received_dbm: float
    sent_dbm: float
    bits: int
    errors: int
    asked: int
    answered: int


class EyeBert(QueryInstrument):
    """A tester that counts all the time, since its last reset.

    A gate is a reset and a reading `duration` later; the time between the stamps of both is the
    width of its ends. Counts have 24 bits: beyond 16,777,216 they are rounded. Serial line at
    115200 8N1.

    Source: the layout that a public program for it documents. Where its reply to `?` has
    no serial number, that is "unknown".
    """

    schemes = ("serial",)
    wire_facts = (
        WireFact("record of 27 bytes", "allefr/eyebert"),
        WireFact("format of the reply to `?` behind the version"),
        WireFact("largest age of the power in a reading"),
    )
    shared_options = SIGNAL_OPTIONS
    unverified: ClassVar[Mapping[str, str]] = {
        "setrate *": _NOT_SYNCHRONIZED,
        "setpat *": _NOT_SYNCHRONIZED,
        "tx 1": "no query is public; without light the record says that there is no signal",
    }
    baud = line_speed(115_200)
    framing = TextOrRecord()
    resync = Resync(question=b"?\r\n", recognises=lambda message: message[:8] == b"Eye-BERT")

    def identity(self) -> Identity:
        """Return model, version and, where it is reported, the serial number."""
        text = self.query("?")
        fields = text.split()
        if len(fields) < 3:
            raise self.garbled("?", text, "identity")
        serial = fields[4] if len(fields) > 4 and fields[3] == "SN" else "unknown"
        return Identity("Spectronix", " ".join(fields[:2]), serial, fields[2].rstrip(":"))

    def prepare(self, channel: int, *, pattern: str, bits_per_second: float) -> None:
        """Send and expect a PRBS at a bit rate; switches the light on."""
        code = _PATTERNS[prbs(self.name, pattern, tuple(_PATTERNS))]
        for command in (f"setrate {bits_per_second / 1e3:.0f}", f"setpat {code}", "tx 1"):
            self._write(command)

    def align(self, channel: int) -> None:
        """Check that the tester, which aligns by itself, has done so; raises `NotDoneError`."""
        record = self._read()
        if record.status != _LOCKED:
            raise self.failed(
                NotDoneError,
                "is not synchronized with a pattern",
                "r",
                ("answered", f"status {record.status}, {record.received_dbm:.2f} dBm received"),
                ("try", "is there light at the receiver, does it loop back to the sender?"),
            )

    def count(self, channel: int, *, duration: int) -> "OpenGate":
        """Count from zero for `duration` ns."""
        before = self.clock.now()
        self._write("reset")
        answered = self._read().answered  # the reset was carried out before this reply
        return OpenGate(self, self.clock, Span(before, answered), duration)

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Return the received power that the transceiver, channel 1, reports, in dBm."""
        record = self._read()
        dbm = dict.fromkeys(ports, record.received_dbm)
        return PowerReading(record.asked, record.answered, _READING, dbm)

    def counted(self, began: Span) -> ErrorCount:
        """Return the counts since `began`."""
        record = self._read()
        return ErrorCount(
            began,
            Span(record.asked, record.answered),
            record.bits,
            record.errors,
            sync_lost=record.status != _LOCKED,
            clock_lost=record.status == _NO_SIGNAL,
        )

    def _write(self, command: str) -> None:
        self.session.write(f"{command}\r\n".encode())

    def _read(self) -> _Record:
        answer = self.session.query(b"r\r\n")
        data = answer.data
        if len(data) != _RECORD or data[-1] or data[14] & 0x3F not in _STATUSES:
            raise self.garbled("r", data.hex(" "), "record of counts")
        if not data[14] & 0x40:
            raise self.failed(NotDoneError, "has no transceiver in it", "r", ("try", "plug one in"))
        received, sent = ((32768 - raw) / 100 for raw in struct.unpack(">HH", data[5:9]))
        bits, errors = decode_count(data[15:19]), decode_count(data[19:23])
        if errors > bits:
            raise self.garbled("r", data.hex(" "), "record of counts")
        status = data[14] & 0x3F
        return _Record(status, received, sent, bits, errors, answer.sent.earliest, answer.received)


class OpenGate:
    """A count that is under way."""

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
        """Return the counts so far."""
        return self._tester.counted(self._began)

    def stop(self) -> ErrorCount:
        """Return the counts so far; the tester itself counts on."""
        return self._tester.counted(self._began)


def decode_count(data: bytes) -> int:
    """Decode 24 bits of mantissa and 8 of exponent: m * 2**(e - 24)."""
    return round(int.from_bytes(data[:3], "big") * 2.0 ** (data[3] - 24))
