"""Rows files are what was written before a native reader sees them.

A file with a digest is compared with it; one without is read in another process first. Each is
checked once in a process, and again when it has changed.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from lightrig.harness.record.digests import (
    checked_digests,
    digest_of,
    digest_of_bytes,
    without_digest,
)
from lightrig.harness.record.places import Place
from lightrig.harness.record.row import RecordError
from lightrig.harness.record.rows_files import MANIFEST, RowsFile
from lightrig.harness.record.run_folder import FACTS, RunFacts, parse_facts

INSPECTION = [sys.executable, "-m", "lightrig.harness.record.rows_inspection"]

_checked: set[tuple[object, ...]] = set()


def check_rows(place: Place, files: Iterable[RowsFile]) -> None:
    """Raise `RecordError` for a file of rows that is damaged, or cannot be read."""
    states = [(file, _state(place, file.name)) for file in files]
    new = [(file, state) for file, state in states if state not in _checked]
    if not new:
        return
    digests = _digests(place, {file.run for file, _ in new if file.runs is None})
    unknown = []
    for file, state in new:
        known = file.runs.digest if file.runs else digests.get(file.run, {}).get(file.testbed)
        if known:
            if _digest(place, file.name) != known:
                raise RecordError(_damaged(place, file, "its SHA-256 digest differs"))
            _checked.add(state)
        else:
            unknown.append((file, state))
    if unknown:
        facts = _facts(place, {run for file, _ in unknown for run in _runs(file)})
        with contextlib.closing(Inspector()) as inspector:
            for file, state in unknown:
                with _local(place, file.name) as path:
                    if problem := inspector.problem(path, file.run, headers_of(file, facts)):
                        raise RecordError(_damaged(place, file, problem))
                _checked.add(state)


def _state(place: Place, name: str) -> tuple[object, ...]:
    """Return what a file of this machine has anew when it is written again."""
    path = place.path(name)
    if place.folder is None:
        return place.name, path
    try:
        found = os.stat(path)
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error
    return path, found.st_ino, found.st_size, found.st_mtime_ns


def _facts(place: Place, runs: Collection[str]) -> dict[str, RunFacts]:
    """Return the facts of those of `runs` that have ended, by name."""
    found = {}
    for name, text in place.read_each("runs", FACTS, runs).items() if runs else ():
        # A damaged one has no digests, and is named among the damaged runs.
        with contextlib.suppress(RecordError):
            found[name.split("/")[1]] = parse_facts(name, text)
    return found


def _digests(place: Place, runs: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the digests of those of `runs` that have ended, by name.

    Reads nothing else of their `run.json`: a nights page needs those of thousands of runs.
    """
    found = {}
    for name, text in place.read_each("runs", FACTS, runs).items() if runs else ():
        # A damaged one has no digests, and is named among the damaged runs.
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            found[name.split("/")[1]] = checked_digests(without_digest(text).get("digests", {}))
    return found


def _runs(file: RowsFile) -> Collection[str]:
    return file.runs.names if file.runs is not None else {file.run}


def headers_of(file: RowsFile, facts: Mapping[str, RunFacts]) -> dict[str, Any]:
    """Return the header of each run of a file that has ended."""
    return {run: facts[run].header for run in _runs(file) if run in facts}


def _digest(place: Place, name: str) -> str:
    if place.folder is None:
        return digest_of_bytes(place.read([name])[name])
    try:
        return digest_of(Path(place.path(name)))
    except OSError as error:
        raise RecordError(f"{place.path(name)}: {error.strerror}") from error


@contextlib.contextmanager
def _local(place: Place, name: str) -> Iterator[Path]:
    """A path of a file on this machine."""
    if place.folder is not None:
        yield Path(place.path(name))
        return
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        file.write(place.read([name])[name])
        file.flush()
        yield Path(file.name)


class Inspector:
    """The process that reads files without a digest, started anew where one has ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def problem(self, path: Path, run: str, headers: Mapping[str, Any]) -> str:
        """Return what is wrong with the file at `path`, or an empty text.

        run: the run that it has; empty for a compacted one. headers: of its runs.
        """
        process = self._process = self._process or _start()
        asked, answered = _pipes(process)
        try:
            asked.write(json.dumps([str(path), run, headers]) + "\n")
            asked.flush()
            line = answered.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.close()
            return "reading it ends the reading process"
        return line.rstrip("\n")

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            for stream in _pipes(self._process):
                stream.close()
            self._process.kill()
            self._process.wait()
            self._process = None


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        INSPECTION,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    if process.stdin is None or process.stdout is None:
        raise RecordError("the process that reads rows has no pipes")
    return process.stdin, process.stdout


def _damaged(place: Place, file: RowsFile, problem: str) -> str:
    if file.runs is None:
        mend = (
            f"`lightrig results recover {file.run}` writes it again from the run's journal, or "
            "remove it and bring it back by `lightrig results pull` from a copy"
        )
    else:
        mend = f"bring it back from a copy of the results; {MANIFEST} names its runs"
    return f"{place.name}: {file.name} is damaged: {problem}; {mend}"
