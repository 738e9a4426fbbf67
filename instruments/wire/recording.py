"""Recording of the traffic of a bench's instruments, one file per instrument.

A trace looks for its clock's recorder each time its connection is opened. So a recording starts
before the first query, and no driver has to know of it.
"""

import re
import threading
from collections import defaultdict
from io import FileIO
from pathlib import Path
from weakref import WeakKeyDictionary

from lightrig.instruments.clock import Clock, wall_time
from lightrig.instruments.core.transcript import Piece, about_line, first_line


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
        self._sessions: defaultdict[str, int] = defaultdict(int)

    def describe(self, instrument: str, **about: str) -> None:
        """Record facts about an instrument: its `model`, `identity`, `wire`."""
        self._write(instrument, f"{about_line(about)}\n".encode())

    def session(self, instrument: str) -> int:
        """Return the number of a new session with an instrument."""
        with self._lock:
            self._sessions[instrument] += 1
            return self._sessions[instrument]

    def note(self, instrument: str, piece: Piece) -> None:
        """Record one piece."""
        self._write(instrument, piece.line())

    def close(self) -> None:
        """Stop recording and close the files."""
        if recorder_of(self._clock) is self:
            del _recorders[self._clock]
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
        about = {
            "instrument": instrument,
            "when": f"{wall_time():%Y-%m-%dT%H:%M:%SZ}",
            "clock": "virtual" if self._clock.virtual else "system",
        }
        file.write(f"{first_line(about)}\n".encode())
        return file


_recorders: WeakKeyDictionary[Clock, Recorder] = WeakKeyDictionary()


def record(clock: Clock, folder: Path) -> Recorder:
    """Start recording the traffic of the instruments on `clock` in `folder`."""
    recorder = _recorders[clock] = Recorder(clock, folder)
    return recorder


def recorder_of(clock: Clock) -> Recorder | None:
    """Return the recorder of the instruments on `clock`, if there is one."""
    return _recorders.get(clock)
