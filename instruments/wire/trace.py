"""The traffic of one wire, in both directions, with the time of each piece."""

from collections import deque
from collections.abc import Iterable
from typing import Literal, NamedTuple

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.transcript import Kind, Piece
from lightrig.instruments.wire.recording import Recorder, recorder_of
from lightrig.testbeds.escaping import escape_line

Direction = Literal[">", "<", "!"]
"""To the instrument, from the instrument, or a remark of the wire layer."""


class Traced(NamedTuple):
    """One piece of a trace; `at` in nanoseconds of the bench's clock."""

    at: int
    direction: Direction
    text: str

    def __str__(self) -> str:
        return f"{self.at / 1e9:14.6f} {self.direction} {escape_line(self.text)}"


class Trace:
    """The last `length` pieces of one wire's traffic, without secrets.

    Strings given to `mask` appear as `***`. Where the clock has a recorder and the trace the name
    of its instrument, all pieces are recorded as well, byte for byte but for the secrets.
    """

    def __init__(self, clock: Clock, instrument: str = "", length: int = 1000) -> None:
        self._clock = clock
        self._instrument = instrument
        self._pieces: deque[tuple[int, Direction, str]] = deque(maxlen=length)
        self._secrets: set[str] = set()
        self._recorder: Recorder | None = None
        self._session = 0

    @property
    def recorded(self) -> bool:
        """Whether all pieces are recorded."""
        return self._recorder is not None

    def mask(self, secret: str) -> None:
        """Never show `secret` from now on."""
        if secret:
            self._secrets.add(secret)

    def masked(self, text: str) -> str:
        """Return `text` without the secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def opened(self, text: str, wire: str = "") -> None:
        """Note that the connection was opened; `wire` is its address, if that is known here."""
        recorder = recorder_of(self._clock) if self._instrument else None
        if recorder is not self._recorder:
            self._recorder = recorder
            self._session = recorder.session(self._instrument) if recorder is not None else 0
        self._remark("open", text, wire)

    def sent(self, text: str, data: bytes | None = None) -> int:
        """Note a write before it happens: its text and, if they differ, its bytes.

        Returns the time of the note, as `received` does.
        """
        at = self._clock.now()
        self._pieces.append((at, ">", self.masked(text) if self._secrets else text))
        if self._recorder is not None:
            self._record(at, ">", text, data)
        return at

    def received(self, text: str, data: bytes | None = None) -> int:
        """Note a message that was read: its text and, if they differ, its bytes."""
        at = self._clock.now()
        self._pieces.append((at, "<", self.masked(text) if self._secrets else text))
        if self._recorder is not None:
            self._record(at, "<", text, data)
        return at

    def remarked(self, text: str) -> None:
        """Note a remark of the wire layer, such as a discarded late reply."""
        self._remark("!", text, text)

    def ended(self, text: str) -> None:
        """Note that the instrument ended the connection."""
        self._remark("end", text, text)

    def _remark(self, kind: Kind, text: str, recorded: str) -> None:
        at = self._clock.now()
        self._pieces.append((at, "!", self.masked(text)))
        if self._recorder is not None:
            self._record(at, kind, recorded, None)

    def _record(self, at: int, kind: Kind, text: str, data: bytes | None) -> None:
        assert self._recorder is not None
        data = text.encode() if data is None else data
        for secret in self._secrets:
            data = data.replace(secret.encode(), b"***")
        self._recorder.note(self._instrument, Piece(at, self._session, kind, data))

    def pieces(self) -> Iterable[Traced]:
        """Return all pieces, oldest first."""
        return tuple(map(Traced._make, self._pieces))

    def tail(self, count: int = 6) -> list[str]:
        """Return the last `count` pieces as lines for an error message, oldest first."""
        return [str(Traced(*piece)) for piece in list(self._pieces)[-count:]]
