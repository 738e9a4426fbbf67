"""What went over a wire, in both directions, with the time of each piece."""

from collections import deque
from collections.abc import Iterable
from typing import Literal, NamedTuple

from instruments.clock import Clock
from instruments.transcript import Kind, Piece
from instruments.wire.recording import Recorder, recorder_of

Direction = Literal[">", "<", "!"]
"""To the instrument, from the instrument, or a note of the wire layer's own."""


_CONTROL = {code: repr(chr(code))[1:-1] for code in (*range(32), 127)}
"""What would do something to a terminal, as Python writes it."""


class Traced(NamedTuple):
    """One piece of a trace; `at` in nanoseconds of the bench's clock."""

    at: int
    direction: Direction
    text: str

    def __str__(self) -> str:
        return f"{self.at / 1e9:14.6f} {self.direction} {self.text.translate(_CONTROL)}"


class Trace:
    """The last `keep` pieces that went over one wire; secrets never get in.

    A secret is a string that `mask` was told of; it is shown as `***`. Where the clock has a
    recorder and the trace the name of its instrument, all pieces are kept there as well, byte
    for byte but for the secrets.
    """

    def __init__(self, clock: Clock, instrument: str = "", keep: int = 1000) -> None:
        self._clock = clock
        self._instrument = instrument
        self._pieces: deque[tuple[int, Direction, str]] = deque(maxlen=keep)
        self._secrets: set[str] = set()
        self._recorder: Recorder | None = None
        self._session = 0

    @property
    def recorded(self) -> bool:
        """Whether somebody keeps all of it."""
        return self._recorder is not None

    def mask(self, secret: str) -> None:
        """Never show `secret` from now on."""
        if secret:
            self._secrets.add(secret)

    def masked(self, text: str) -> str:
        """`text` without the secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def opened(self, text: str, wire: str = "") -> None:
        """Note that the way was opened; `wire` is its address, if that is known here."""
        recorder = recorder_of(self._clock) if self._instrument else None
        if recorder is not self._recorder:
            self._recorder = recorder
            self._session = recorder.session(self._instrument) if recorder is not None else 0
        self._remark("open", text, wire)

    def sent(self, text: str, data: bytes | None = None) -> int:
        """Note what is about to be written: as it is shown and, if that differs, its bytes.

        Returns the time of the note, as `received` does.
        """
        at = self._clock.now()
        self._pieces.append((at, ">", self.masked(text) if self._secrets else text))
        if self._recorder is not None:
            self._record(at, ">", text, data)
        return at

    def received(self, text: str, data: bytes | None = None) -> int:
        """Note what was read: as it is shown and, if that differs, its bytes."""
        at = self._clock.now()
        self._pieces.append((at, "<", self.masked(text) if self._secrets else text))
        if self._recorder is not None:
            self._record(at, "<", text, data)
        return at

    def remarked(self, text: str) -> None:
        """Note something about the wire itself, such as a stale reply set aside."""
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
        """All that is kept, oldest first."""
        return tuple(map(Traced._make, self._pieces))

    def tail(self, count: int = 6) -> list[str]:
        """The last `count` pieces as lines for an error message, oldest first."""
        return [str(Traced(*piece)) for piece in list(self._pieces)[-count:]]
