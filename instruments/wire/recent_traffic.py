"""What was on the wires when a test failed: kept in memory while it runs, bounded, then written.

A replayed instrument is opened before it is asked what the test asked. So the first pieces, until
the bench is open, are kept for all tests, and then those of the test that runs.
"""

import contextlib
import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.transcript import Piece, about_line, first_line
from lightrig.instruments.wire.trace import described, record_with, stop_recording
from lightrig.testbeds.secret_masking import mask_secret_bytes, mask_secrets

MOST_OF_OPENING = 256_000
MOST_OF_TEST = 1_000_000
"""Bytes of one instrument that are kept: of its opening the first, of a test the last."""

MOST_OF_RUN = 128_000_000
"""Bytes of all files of a run."""

_OVERHEAD = 60
"""Bytes of a line beside its text."""


@dataclass
class _Traffic:
    """The pieces of one instrument."""

    opening: list[Piece] = field(default_factory=list)
    recent: deque[Piece] = field(default_factory=deque)
    opening_size: int = 0
    recent_size: int = 0
    left_out: int = 0


class RecentTraffic:
    """Keeps the traffic of the test that runs, and writes it into a folder when asked.

    Args:
        folder: created with the first file.
        most: bytes of all files that are written.

    Attributes:
        refused: tests whose traffic was not written, since `most` was reached.
    """

    def __init__(self, folder: Path, most: int = MOST_OF_RUN) -> None:
        self._folder = folder
        self._left = most
        self._lock = threading.Lock()
        self._traffic: dict[str, _Traffic] = {}
        self._sessions: dict[str, int] = {}
        self._suspended = False
        self._opened = False
        self._about: Mapping[str, Mapping[str, str]] = {}
        self._clocks: list[Clock] = []
        self.refused: list[str] = []

    def watch(self, clock: Clock) -> None:
        """Keep the traffic of the instruments on `clock` from now on, and none from before."""
        self._traffic.clear()
        self._clocks.append(clock)
        record_with(clock, self)

    def close(self) -> None:
        """Keep nothing more."""
        for clock in self._clocks:
            stop_recording(clock, self)

    def session(self, instrument: str) -> int:
        """Return the number of a new session with an instrument."""
        with self._lock:
            number = self._sessions[instrument] = self._sessions.get(instrument, 0) + 1
            return number

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Keep nothing meanwhile."""
        self._suspended = True
        try:
            yield
        finally:
            self._suspended = False

    def note(self, instrument: str, piece: Piece) -> None:
        """Keep one piece."""
        if self._suspended:
            return
        size = len(piece.data) + _OVERHEAD
        with self._lock:
            traffic = self._traffic.setdefault(instrument, _Traffic())
            if not self._opened:
                if traffic.opening_size + size <= MOST_OF_OPENING:
                    traffic.opening.append(piece)
                    traffic.opening_size += size
                else:
                    traffic.left_out += 1
                return
            traffic.recent.append(piece)
            traffic.recent_size += size
            while traffic.recent_size > MOST_OF_TEST:
                dropped = traffic.recent.popleft()
                traffic.recent_size -= len(dropped.data) + _OVERHEAD
                traffic.left_out += 1

    def opened(self, about: Mapping[str, Mapping[str, str]]) -> None:
        """The instruments are open: what follows belongs to tests.

        about: what recordings say of them, by name: `model`, `identity`, `wire`.
        """
        self._opened, self._about = True, about

    def begin(self) -> None:
        """Forget what earlier tests have exchanged."""
        with self._lock:
            for traffic in self._traffic.values():
                traffic.recent.clear()
                traffic.recent_size = traffic.left_out = 0

    def write(self, test: str) -> Path | None:
        """Write what was exchanged in a test, one recording an instrument, without secrets.

        test: its name. Returns the folder; None where nothing was exchanged, or there is no room
        for it. Raises `OSError`.
        """
        with self._lock:
            found = {
                name: ([*traffic.opening], [*traffic.recent], traffic.left_out)
                for name, traffic in self._traffic.items()
                if traffic.opening or traffic.recent
            }
        files = {name: self._text(name, test, *pieces) for name, pieces in found.items()}
        size = sum(map(len, files.values()))
        if not files:
            return None
        if size > self._left:
            self.refused.append(test)
            return None
        self._left -= size
        folder = self._new_folder(test)
        for name, text in files.items():
            (folder / f"{file_name(name)}.jsonl").write_bytes(text)
        return folder

    def _text(
        self,
        name: str,
        test: str,
        opening: list[Piece],
        recent: list[Piece],
        left_out: int,
    ) -> bytes:
        head = {**described(name, self._clocks[-1]), "test": test}
        lines = [f"{first_line(head)}\n".encode()]
        if about := self._about.get(name, {}):
            masked = {key: mask_secrets(value) for key, value in about.items()}
            lines.append(f"{about_line(masked)}\n".encode())
        lines += [_masked(piece).line() for piece in opening]
        if left_out:
            at = recent[0].at if recent else opening[-1].at
            why = f"{left_out} pieces before this one were left out".encode()
            lines.append(Piece(at, 0, "!", why).line())
        lines += [_masked(piece).line() for piece in recent]
        return b"".join(lines)

    def _new_folder(self, test: str) -> Path:
        name, number = file_name(test), 1
        while True:
            folder = self._folder / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir(parents=True)
            except FileExistsError:  # of an earlier attempt
                number += 1
            else:
                return folder


def file_name(name: str) -> str:
    """Return a name for a file or folder: the end of `name`, which says most of a test."""
    return re.sub(r"[^\w.-]+", "_", name)[-120:].lstrip(".") or "_"


def _masked(piece: Piece) -> Piece:
    data = mask_secret_bytes(piece.data)
    return piece if data == piece.data else replace(piece, data=data)
