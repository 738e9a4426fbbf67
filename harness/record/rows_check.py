"""Rows files are what was written before a native reader sees them.

A file with a digest is compared with it; one without is read in another process first. Each is
checked once in a process, and again when it has changed.

A stray file, whose run has no rows of that testbed and night, is left out and named: whoever can
add a file must not make the rows of all runs unreadable by it, nor have rows counted twice.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
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
from lightrig.testbeds.regular_files import LinkError, open_regular

INSPECTION = [sys.executable, "-m", "lightrig.harness.record.rows_inspection"]
MISPLACED = "MisplacedError: "
"""How the inspection's answer begins where a file belongs to another run, testbed or night."""

_MOVE = "move it out of the results"

_checked: set[tuple[object, ...]] = set()


class StrayRowsWarning(UserWarning):
    """A rows file is left out.

    It is a link, not where the rows of its run belong, or not for this account to read.
    """


def check_rows(place: Place, files: Iterable[RowsFile]) -> list[RowsFile]:
    """Return `files` without stray ones, each of which is a `StrayRowsWarning`.

    Raises `RecordError` for a file of rows that is damaged, or cannot be read.
    """
    found, new = list(files), []
    strays: dict[str, str] = {}
    for file in found:
        try:
            state = _state(place, file.name)
        except LinkError as error:
            if file.runs is not None:
                raise RecordError(f"{error.filename}: {error.strerror}") from error
            strays[file.name] = f"{error.filename} {error.strerror}; {_MOVE}"
            continue
        except PermissionError as error:
            strays[file.name] = f"{error.strerror}; try `chmod g+r` as its owner"
            continue
        if state not in _checked:
            new.append((file, state))
    stated = _stated(place, {file.run for file, _ in new if file.runs is None})
    unknown = []
    for file, state in new:
        of_run = stated.get(file.run) if file.runs is None else None
        if of_run is not None and (problem := misplaced(file, *of_run.place)):
            strays[file.name] = f"{problem}; {_MOVE}"
            continue
        known = file.runs.digest if file.runs else of_run and of_run.digests.get(file.testbed)
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
                    problem = inspector.problem(path, file, headers_of(file, facts))
                if problem.startswith(MISPLACED):
                    strays[file.name] = f"{problem.removeprefix(MISPLACED)}; {_MOVE}"
                elif problem:
                    raise RecordError(_damaged(place, file, problem))
                else:
                    _checked.add(state)
    for name, problem in strays.items():
        warnings.warn(
            f"{place.name}: {name} is left out: {problem}", StrayRowsWarning, stacklevel=2
        )
    return [file for file in found if file.name not in strays]


def misplaced(file: RowsFile, night: str, testbeds: Collection[str], by_hand: bool) -> str:
    """Return why a file is none of a run of that `night` with rows on `testbeds`, or nothing."""
    if file.by_hand != by_hand:
        return f"its run {file.run} is {'' if by_hand else 'not '}one by hand"
    if file.night != night:
        return f"its run {file.run} is of the night {night}"
    if file.testbed not in testbeds:
        known = ", ".join(sorted(testbeds)) or "no testbed"
        return f"its run {file.run} has rows on {known}, not on {file.testbed}"
    return ""


def _state(place: Place, name: str) -> tuple[object, ...]:
    """Return what a file of this machine has anew when it is written again.

    Raises `LinkError` for a link, `PermissionError`, and `RecordError` for what cannot be opened.
    """
    path = place.path(name)
    if place.folder is None:
        return place.name, path
    try:
        with open_regular(name, below=place.folder) as file:
            found = os.fstat(file.fileno())
    except (LinkError, PermissionError):
        raise
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


@dataclass(frozen=True, slots=True)
class _Stated:
    """Night of a run, the testbeds that it has rows on, and digests of its rows by testbed."""

    night: str
    testbeds: Collection[str]
    by_hand: bool
    digests: Mapping[str, str]

    @property
    def place(self) -> tuple[str, Collection[str], bool]:
        """What tells where its rows lie."""
        return self.night, self.testbeds, self.by_hand


def _stated(place: Place, runs: Collection[str]) -> dict[str, _Stated]:
    """Return what those of `runs` that have ended state of their rows, by name.

    Reads nothing else of their `run.json`: a nights page needs those of thousands of runs.
    """
    found = {}
    for name, text in place.read_each("runs", FACTS, runs).items() if runs else ():
        # A damaged one has no digests, and is named among the damaged runs.
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            document = without_digest(text)
            found[name.split("/")[1]] = _Stated(
                str(document["header"]["night"]),
                {name for name, measured in document["testbeds"].items() if measured},
                bool(document["header"].get("by_hand")),
                checked_digests(document.get("digests", {})),
            )
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
        return digest_of(name, below=place.folder)
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

    def problem(self, path: Path, file: RowsFile, headers: Mapping[str, Any]) -> str:
        """Return what is wrong with `file`, a copy of which is at `path`, or an empty text.

        headers: of its runs. What is wrong begins with `MISPLACED` for a file of another run,
        testbed or night.
        """
        process = self._process = self._process or _start()
        asked, answered = _pipes(process)
        try:
            asked.write(json.dumps([str(path), file.run, headers, file.testbed, file.night]) + "\n")
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
