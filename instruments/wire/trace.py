"""The traffic of one wire, in both directions, with the time of each piece, and its recording.

A trace looks for its clock's recorder each time its connection is opened. So a recording starts
before the first query, and no driver has to know of it.
"""

import contextlib
import re
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import Literal, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from lightrig.instruments.clock import Clock, wall_time
from lightrig.instruments.core.transcript import Kind, Piece, about_line, first_line
from lightrig.testbeds.escaping import escape_line
from lightrig.testbeds.secret_masking import mask_secrets

Direction = Literal[">", "<", "!"]
"""To the instrument, from the instrument, or a remark of the wire layer."""


MOST_BYTES = 24_000
"""Memory that the pieces of a trace take."""

LONGEST_PIECE = 5_000
"""Characters of a piece, of which the middle of a longer one is left out."""

_OVERHEAD = 144
"""Bytes that a piece takes beside its text: a tuple of three, a number and a place in the queue."""


class Traced(NamedTuple):
    """One piece of a trace; `at` in nanoseconds of the bench's clock."""

    at: int
    direction: Direction
    text: str

    def __str__(self) -> str:
        shown = escape_line(mask_secrets(self.text))
        return f"{self.at / 1e9:14.6f} {self.direction} {shown}"


class Trace:
    """The last pieces of one wire's traffic, without secrets: at most `length`, in `MOST_BYTES`.

    A service has sessions with thousands of switches for months. Strings given to `mask` appear as
    `***`. Where the clock has a recorder and the trace the name of its instrument, all pieces are
    recorded as well, byte for byte but for the secrets.
    """

    def __init__(self, clock: Clock, instrument: str = "", length: int = 1000) -> None:
        self._clock = clock
        self._instrument = instrument
        self._pieces: deque[tuple[int, Direction, str]] = deque()
        self._length, self._size, self._turn = length, 0, threading.Lock()
        self._secrets: set[str] = set()
        self._recorder: PieceRecorder | None = None
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
        self._add(at, ">", text)
        if self._recorder is not None:
            self._record(at, ">", text, data)
        return at

    def received(self, text: str, data: bytes | None = None) -> int:
        """Note a message that was read: its text and, if they differ, its bytes."""
        at = self._clock.now()
        self._add(at, "<", text)
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
        self._add(at, "!", text)
        if self._recorder is not None:
            self._record(at, kind, recorded, None)

    def _add(self, at: int, direction: Direction, text: str) -> None:
        shown = self.masked(text) if self._secrets else text
        if len(shown) > LONGEST_PIECE:
            half = LONGEST_PIECE // 2
            shown = f"{shown[:half]} [{len(shown) - 2 * half} characters] {shown[-half:]}"
        with self._turn:  # a thread that reads notes beside one that sends
            self._pieces.append((at, direction, shown))
            self._size += _size(shown)
            while self._size > MOST_BYTES or len(self._pieces) > self._length:
                self._size -= _size(self._pieces.popleft()[2])

    def _record(self, at: int, kind: Kind, text: str, data: bytes | None) -> None:
        assert self._recorder is not None
        data = text.encode() if data is None else data
        for secret in self._secrets:
            data = data.replace(secret.encode(), b"***")
        self._recorder.note(self._instrument, Piece(at, self._session, kind, data))

    def pieces(self) -> Iterable[Traced]:
        """Return all pieces, oldest first."""
        with self._turn:
            return tuple(map(Traced._make, self._pieces))

    def tail(self, count: int = 6) -> list[str]:
        """Return the last `count` pieces as lines for an error message, oldest first."""
        with self._turn:
            last = list(self._pieces)[-count:]
        return [str(Traced(*piece)) for piece in last]


def _size(text: str) -> int:
    return sys.getsizeof(text) + _OVERHEAD


class PieceRecorder(Protocol):
    """Takes every piece of the traffic of the instruments on a clock."""

    def session(self, instrument: str) -> int:
        """Return the number of a new session with an instrument."""

    def note(self, instrument: str, piece: Piece) -> None:
        """Take one piece."""

    def suspended(self) -> contextlib.AbstractContextManager[None]:
        """Take nothing meanwhile: what is read again and again for days would fill a disk."""


class Recorder:
    """Writes transcripts into a folder, line by line, so that a killed run leaves them too.

    Args:
        clock: the clock of the instruments that are recorded.
        folder: created with the first piece.
    """

    def __init__(self, clock: Clock, folder: Path) -> None:
        self._clock = clock
        self._folder = folder
        self._lock = threading.Lock()
        self._files: dict[str, FileIO] = {}
        self._suspended = False
        self._sessions: defaultdict[str, int] = defaultdict(int)

    def describe(self, instrument: str, **about: str) -> None:
        """Record facts about an instrument: its `model`, `identity`, `wire`."""
        self._write(instrument, f"{about_line(about)}\n".encode())

    def session(self, instrument: str) -> int:
        """Return the number of a new session with an instrument."""
        with self._lock:
            self._sessions[instrument] += 1
            return self._sessions[instrument]

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Record nothing meanwhile: what is read again and again for days would fill a disk."""
        self._suspended = True
        try:
            yield
        finally:
            self._suspended = False

    def note(self, instrument: str, piece: Piece) -> None:
        """Record one piece."""
        if self._suspended:
            return
        self._write(instrument, piece.line())

    def close(self) -> None:
        """Stop recording and close the files."""
        stop_recording(self._clock, self)
        with self._lock:
            for file in self._files.values():
                file.close()

    def _write(self, instrument: str, line: bytes) -> None:
        with self._lock:
            file = self._files.get(instrument)
            if file is None:
                file = self._files[instrument] = self._create(instrument)
            if not file.closed:
                while line:  # a full disk takes a part before it refuses the rest
                    line = line[file.write(line) :]

    def _create(self, instrument: str) -> FileIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^\w.-]", "_", instrument)
        number, path = 1, self._folder / f"{name}.jsonl"
        while True:
            try:
                file = path.open("xb", buffering=0)
                break
            except FileExistsError:
                number += 1
                path = self._folder / f"{name}-{number}.jsonl"
        file.write(f"{first_line(described(instrument, self._clock))}\n".encode())
        return file


def described(instrument: str, clock: Clock) -> dict[str, str]:
    """Return what the first line of a recording that begins now says."""
    return {
        "instrument": instrument,
        "when": f"{wall_time():%Y-%m-%dT%H:%M:%SZ}",
        "clock": "virtual" if clock.virtual else "system",
    }


_recorders: WeakKeyDictionary[Clock, PieceRecorder] = WeakKeyDictionary()


def record(clock: Clock, folder: Path) -> Recorder:
    """Start recording the traffic of the instruments on `clock` in `folder`."""
    recorder = Recorder(clock, folder)
    record_with(clock, recorder)
    return recorder


def record_with(clock: Clock, recorder: PieceRecorder) -> None:
    """Have the traffic of the sessions that are opened on `clock` from now on recorded."""
    _recorders[clock] = recorder


def stop_recording(clock: Clock, recorder: PieceRecorder) -> None:
    """Record with `recorder` no more, where it is the one of `clock`."""
    if recorder_of(clock) is recorder:
        del _recorders[clock]


def recorder_of(clock: Clock) -> PieceRecorder | None:
    """Return the recorder of the instruments on `clock`, if there is one."""
    return _recorders.get(clock)
