"""Whole runs brought to another place: a folder, a shared one, an object store, or back.

A run is the header in its `run.json` and the digests of its rows there. Runs are only added: one of
the same name is either the same run, of which missing files are added and files copied in part are
completed by the digests that `run.json` states, or another, which is refused by its name. What has
no `run.json` has not come whole, and may be written again.

No link below the source is followed: a file reached by one is another's, and is named. A rows file
that its run does not state, or whose header is that of another place, is named and not brought.

Nothing that the source says removes a run's rows at the target. A compacted file comes with the
rows that the target lacks, written anew where it has some of them. Only in an object store, where
nothing can be compacted, it takes the place of the single files of the same runs.
"""

import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lightrig.harness.record.digests import digest_of_bytes
from lightrig.harness.record.journal import is_written
from lightrig.harness.record.notes import FOLDER as NOTES
from lightrig.harness.record.places import Place
from lightrig.harness.record.recovery import JOURNAL
from lightrig.harness.record.row import RecordError
from lightrig.harness.record.rows_check import MISPLACED, Inspector, check_rows, misplaced
from lightrig.harness.record.rows_files import (
    BY_HAND,
    MANIFEST,
    ROWS,
    Compacted,
    Manifest,
    RowsFile,
    plain_file,
    read_manifest,
    stored_rows,
)
from lightrig.harness.record.run_folder import FACTS, PUBLISHED, RunFacts, parse_facts

_UNSAFE = re.compile(r"(^|/)([.]{0,2})(/|$)|[\\\0]")


@dataclass(frozen=True, slots=True)
class Transfer:
    """Outcome of a transfer.

    Number of files that were brought, of those that were there already, and bytes brought.
    refused: a sentence for each run and file that was not brought, or not wholly, and stays as it
    is at the target.
    """

    files: int
    present: int
    size: int
    refused: tuple[str, ...]


def transfer(source: str, target: str, *, replace: bool = False) -> Transfer:
    """Copy all ended runs and their rows from `source` to `target`, both a path or URL.

    replace: remove a run of the same name that is another one, and bring ours. `run.json` of each
    run comes last, and a compacted file before the list that names it, so readers never see a run
    in part. Raises `RecordError` for what cannot be read or written, `QuestionError` for a place
    that cannot be one.
    """
    with closing(Inspector()) as inspector:
        return _Transfer(Place(source), Place(target), inspector, replace=replace).made()


class RefusedError(RecordError):
    """Raised for a run or file that is not brought."""


class _Transfer:
    """One transfer; the runs are judged before anything is written."""

    def __init__(self, here: Place, there: Place, inspector: Inspector, *, replace: bool) -> None:
        self._here, self._there, self._inspector = here, there, inspector
        self._refused: list[str] = []
        self._bad: set[str] = set()
        self._irregular: list[str] = []
        self._files = self._same = self._size = 0
        self._ours, self._theirs = self._listed(here), there.sizes()
        self._facts = self._read_facts()
        self._rows = [file for file in stored_rows(here, by_hand=True) if self._is_in_place(file)]
        common = {f"runs/{run}/{FACTS}" for run in self._facts} & set(self._theirs)
        self._earlier = there.read([*common])
        self._present = {
            (file.testbed, run): file
            for file in stored_rows(there, by_hand=True)
            for _, run in file.nights_and_runs()
        }
        self._files_there: dict[str, Mapping[str, str]] = {}
        self._ended = {run for run in self._facts if self._judged(run, replace=replace)}

    def made(self) -> Transfer:
        """Bring everything."""
        for file in self._rows:
            if file.runs is not None:
                self._attempt(file.name, partial(self._bring_compacted, file.runs))
            elif file.run not in self._facts and file.run not in self._bad:
                self._attempt(file.run, partial(self._bring_rows_alone, file))
        for run in sorted(self._facts):
            if run not in self._bad:
                self._attempt(run, partial(self._bring_run, run))
        for name in self._ours:
            if name.startswith(f"{NOTES}/"):
                self._bring_notes(name)
        return Transfer(self._files, self._same, self._size, tuple(self._refused))

    # ------------------------------------------------------------------------------- judging

    def _listed(self, place: Place) -> dict[str, int]:
        """Return sizes of the files of results; what can be none is refused with its run."""
        sizes = {}
        for name, size in place.sizes().items():
            if name.split("/")[0] not in ("runs", ROWS, BY_HAND, NOTES):
                continue
            if size >= 0 and not _UNSAFE.search(name):
                sizes[name] = size
                continue
            self._refused.append(
                f"{place.name}: {name!r} is no regular file; remove it there, since nothing of "
                "its run was copied"
            )
            self._irregular.append(name)
            if name.startswith("runs/"):
                self._bad.add(name.split("/")[1])
        return sizes

    def _read_facts(self) -> dict[str, RunFacts]:
        names = [n for n in self._ours if n.startswith("runs/") and n.split("/")[2:] == [FACTS]]
        found = {}
        for name, text in sorted(self._here.read(names).items()):
            run = name.split("/")[1]
            try:
                found[run] = parse_facts(f"{self._here.name}: {name}", text)
                if found[run].run != run:
                    raise RefusedError(f"{self._here.name}: {name} is of run {found[run].run!r}")
            except RecordError as error:
                self._refuse(run, str(error))
        for run, facts in found.items():
            rows = (
                plain_file(name, facts.night, run, by_hand=facts.by_hand)
                for name in _measured(facts)
            )
            if any(self._is_irregular(str(name)) for name in rows):
                self._bad.add(run)
        return {run: facts for run, facts in found.items() if run not in self._bad}

    def _is_irregular(self, name: str) -> bool:
        """Return whether a file, or a folder above it, has been refused as no regular one."""
        return any(name == one or name.startswith(f"{one}/") for one in self._irregular)

    def _is_in_place(self, file: RowsFile) -> bool:
        """Return whether rows are read from a file; one that its run does not state is refused."""
        if self._is_irregular(file.name):
            if file.runs is not None:
                self._bad |= file.runs.names
            return False
        facts = self._facts.get(file.run)
        if facts is None or file.runs is not None:
            return True
        if problem := misplaced(file, facts.night, _measured(facts), facts.by_hand):
            self._refused.append(f"{self._here.name}: {file.name} was not copied: {problem}")
        return not problem

    def _judged(self, run: str, *, replace: bool) -> bool:
        """Return whether `run` has ended at the target and is the same; refuse another."""
        try:
            return self._has_ended(run)
        except _DifferentRunError as error:
            if not replace:
                self._refuse(run, f"{error}; nothing of it was copied. --replace puts ours there")
                return False
        except RecordError as error:
            self._refuse(run, str(error))
            return False
        self._attempt(run, partial(self._remove, run))
        return False

    def _has_ended(self, run: str) -> bool:
        name, journal = f"runs/{run}/{FACTS}", f"runs/{run}/{JOURNAL}"
        if (text := self._earlier.get(name)) is not None:
            try:
                theirs = parse_facts(name, text)
            except RecordError as error:
                raise _DifferentRunError(f"{run}: {self._there.name}: {error}") from error
            if difference := _difference(self._facts[run], theirs):
                raise _DifferentRunError(
                    f"{run}: {self._there.name} has a run of this name with other {difference}"
                )
            self._files_there[run] = theirs.files
            return True
        if journal in self._theirs:
            if self._there.folder is not None and is_written(self._there.folder / journal):
                raise RefusedError(f"{run}: {self._there.name} records a run of this name now")
            ours = self._here.read([journal])[journal] if journal in self._ours else b""
            if not ours.startswith(self._there.read([journal])[journal]):
                raise _DifferentRunError(
                    f"{run}: {self._there.name} has another run of this name, which has not "
                    "ended; `lightrig results recover` ends it"
                )
        return False

    def _refuse(self, run: str, why: str) -> None:
        self._bad.add(run)
        self._refused.append(why)

    def _attempt(self, run: str, bring: Callable[[], None]) -> None:
        try:
            bring()
        except RefusedError as error:
            self._refuse(run, str(error))

    def _remove(self, run: str) -> None:
        """Remove a run at the target, `run.json` first: without it the run is none."""
        from lightrig.harness.record.compaction import drop  # noqa: PLC0415 - loads pyarrow

        compacted = {f.name for (_, r), f in self._present.items() if r == run and f.runs}
        if compacted and self._there.folder is None:
            raise RefusedError(
                f"{run}: {self._there.name} has it in {', '.join(sorted(compacted))}, which cannot "
                "be written anew there; pull the results into a folder, and replace it there"
            )
        plain = [f.name for (_, r), f in self._present.items() if r == run and not f.runs]
        first = f"runs/{run}/{FACTS}"
        rest = [n for n in self._theirs if n.startswith(f"runs/{run}/") and n != first]
        for name in (first, *plain, *rest):
            self._there.remove(name)
            self._theirs.pop(name, None)
        drop(self._there, frozenset((run,)))
        self._present = {key: f for key, f in self._present.items() if key[1] != run}

    # ------------------------------------------------------------------------------ bringing

    def _bring_run(self, run: str) -> None:
        """Bring the rows and the folder of a run; `run.json` comes last."""
        facts, ended = self._facts[run], run in self._ended
        if not ended:
            self._check_files(run)
        for file in self._rows:
            if file.runs is None and file.run == run:
                self._bring_rows(file, facts.digests.get(file.testbed, ""), ended=ended)
        first = f"runs/{run}/{FACTS}"
        left_out = (first, f"runs/{run}/{PUBLISHED}")
        for name in self._ours:
            if name.startswith(f"runs/{run}/") and name not in left_out:
                self._bring_file(name, run)
        if ended:
            self._same += 1
            return
        self._write(first, self._here.read([first])[first])
        if self._there.folder is not None and (location := facts.header.get("publish")):
            self._there.write(f"runs/{run}/{PUBLISHED}", f"{location}\n".encode())

    def _check_files(self, run: str) -> None:
        """Raise `RefusedError` for a run with a file that is not what its `run.json` states."""
        for name, digest in self._facts[run].files.items():
            path = f"runs/{run}/{name}"
            if path in self._ours and digest_of_bytes(self._here.read([path])[path]) != digest:
                raise RefusedError(
                    f"{self._here.name}: {path} is damaged: its SHA-256 digest is another than in "
                    "run.json; nothing of the run was copied"
                )

    def _bring_rows(self, file: RowsFile, digest: str, *, ended: bool) -> None:
        there = self._present.get((file.testbed, file.run))
        if there is not None and there.runs is not None:
            self._same += 1
            return
        size = self._theirs.get(file.name)
        if ended and size == self._ours[file.name]:
            self._same += 1
            return
        data = self._read_whole(file.name, digest)
        if size is not None and self._there.read([file.name])[file.name] == data:
            self._same += 1
            return
        if ended and size is not None and not digest:
            raise RefusedError(
                f"{file.run}: {self._there.name} has other rows of it in {file.name}, and no "
                "digest tells which are right; --replace puts ours there"
            )
        if not digest and (problem := self._problem(file, data)):
            raise RefusedError(problem)
        self._write(file.name, data)

    def _bring_rows_alone(self, file: RowsFile) -> None:
        """Bring rows of a run without `run.json`, as the first version left them."""
        if (file.testbed, file.run) in self._present:
            if self._theirs.get(file.name) not in (None, self._ours[file.name]):
                raise RefusedError(
                    f"{file.run}: {self._there.name} has other rows of it in {file.name}, and the "
                    "run has no run.json here; `lightrig results recover` writes it"
                )
            self._same += 1
            return
        data = self._read_whole(file.name, "")
        if problem := self._problem(file, data):
            self._refused.append(problem)  # which is no reason to leave out another file of the run
            return
        self._write(file.name, data)

    def _problem(self, file: RowsFile, data: bytes) -> str:
        """Return why rows without a digest would be damaged or stray at the target, or nothing."""
        known = {run: facts.header for run, facts in self._facts.items() if run == file.run}
        with tempfile.NamedTemporaryFile(suffix=".parquet") as copy:
            copy.write(data)
            copy.flush()
            problem = self._inspector.problem(Path(copy.name), file, known)
        if not problem:
            return ""
        return f"{self._here.name}: {file.name} was not copied: {problem.removeprefix(MISPLACED)}"

    def _bring_file(self, name: str, run: str) -> None:
        """Bring a file of a run's folder, if it is the one that the target, or ours, states.

        Of a run that has ended there, pages that were made anew stay as they are.
        """
        size, ended = self._theirs.get(name), run in self._ended
        files = self._files_there[run] if ended else self._facts[run].files
        stated = files.get(name.removeprefix(f"runs/{run}/"))
        theirs = None if size is None else self._there.read([name])[name]
        data = self._here.read([name])[name]
        is_stated = stated == digest_of_bytes(data)
        if theirs == data:
            self._same += 1
        elif files and not is_stated:
            place = self._there if ended else self._here
            why = f"its SHA-256 digest is another than in run.json of {place.name}"
            why = why if stated else f"run.json of {place.name} states no such file"
            self._refused.append(f"{self._here.name}: {name} was not copied: {why}")
        elif ended and theirs is not None and not (is_stated and data.startswith(theirs)):
            self._same += 1
        else:
            self._write(name, data)

    def _bring_notes(self, name: str) -> None:
        """Bring a file of notes, to which lines are only added: the longer one is the newer."""
        data = self._here.read([name])[name]
        theirs = self._there.read([name])[name] if name in self._theirs else b""
        if theirs and theirs.startswith(data):
            self._same += 1
        elif data.startswith(theirs):
            self._write(name, data)
        else:
            self._refused.append(
                f"{name} was not copied: {self._there.name} has other notes in a file of this name"
            )

    def _read_whole(self, name: str, digest: str) -> bytes:
        data = self._here.read([name])[name]
        if digest and digest_of_bytes(data) != digest:
            raise RefusedError(
                f"{self._here.name}: {name} is damaged: its SHA-256 digest differs; it was not "
                "copied. `lightrig results recover` writes rows again from the run's journal"
            )
        return data

    def _write(self, name: str, data: bytes) -> None:
        folder, _, last = name.rpartition("/")
        self._there.remove_drafts(folder, last)
        self._there.write(name, data)
        self._files, self._size = self._files + 1, self._size + len(data)

    # ----------------------------------------------------------------------------- compacted

    def _bring_compacted(self, file: Compacted) -> None:
        """Bring the rows of a compacted file that the target lacks."""
        there = {run: self._of_target(file.testbed, run) for run in file.names}
        present = {run: holder for run, holder in there.items() if holder is not None}
        missing = file.names - present.keys() - self._bad
        single = {f.name for f in present.values() if f.runs is None}
        compacted = {f.name: f.runs for f in present.values() if f.runs is not None}
        if file.name in compacted:
            self._same += 1
        elif missing == file.names:
            self._add_compacted(file, self._read_whole(file.name, file.digest))
        elif self._there.folder is None and single and self._replaces(file, compacted.values()):
            self._add_compacted(
                file, self._read_whole(file.name, file.digest), instead_of=compacted
            )
            for name in (*single, *compacted):
                self._there.remove(name)
        elif missing:
            self._add_compacted(*self._without(file, file.names - missing))
        else:
            self._same += 1

    def _replaces(self, file: Compacted, compacted: Iterable[Compacted]) -> bool:
        """Whether all runs of `file` are ours at the target, and it has all rows of each."""
        return all(each.names <= file.names for each in compacted) and all(
            run in self._ended
            and (stated := self._facts[run].testbeds.get(file.testbed)) is not None
            and stated.rows == sum(runs.get(run, 0) for runs in file.nights.values())
            for run in file.names
        )

    def _add_compacted(
        self, file: Compacted, data: bytes, instead_of: Collection[str] = ()
    ) -> None:
        """Bring a compacted file, and then the list of the target with its name."""
        from lightrig.harness.record.compaction import compacting  # noqa: PLC0415

        self._write(file.name, data)
        folder = self._there.folder
        with compacting(folder) if folder is not None else nullcontext():
            earlier = read_manifest(self._there).files
            staying = [f for f in earlier if f.name not in instead_of]
            if any(f.testbed == file.testbed and f.names & file.names for f in staying):
                raise RefusedError(
                    f"{self._there.name}: its runs were compacted meanwhile; do it again"
                )
            self._there.write(MANIFEST, Manifest((*staying, file)).text().encode())
        for run in file.names:
            self._present[file.testbed, run] = file.rows_file()

    def _of_target(self, testbed: str, run: str) -> RowsFile | None:
        """Return the file with the rows of a run at the target, if they are those of ours."""
        found = self._present.get((testbed, run))
        may_be_part = run in self._facts and run not in self._ended | self._bad
        if found is None or found.runs is not None or not may_be_part:
            return found
        digest = self._facts[run].digests.get(testbed)
        if digest == digest_of_bytes(self._there.read([found.name])[found.name]):
            return found
        self._there.remove(found.name)  # a part of a run that has no `run.json` there
        del self._present[testbed, run], self._theirs[found.name]
        return None

    def _without(self, file: Compacted, runs: frozenset[str]) -> tuple[Compacted, bytes]:
        """Return a compacted file written anew without the rows of `runs`."""
        from lightrig.harness.record.compacted_file import write_compacted  # noqa: PLC0415

        check_rows(self._here, [file.rows_file()])
        with tempfile.TemporaryDirectory() as name:
            Path(name, "whole.parquet").write_bytes(self._read_whole(file.name, file.digest))
            month = Path(file.name).name[:7]
            new = write_compacted(Path(name), file.testbed, month, [("whole.parquet", runs)])
            return new, Path(name, new.name).read_bytes()


class _DifferentRunError(RecordError):
    """Raised for a run at the target that has the name of another one of ours."""


def _measured(facts: RunFacts) -> list[str]:
    """Return the testbeds that a run has rows on."""
    return [name for name, found in facts.testbeds.items() if found]


def _difference(ours: RunFacts, theirs: RunFacts) -> str:
    """Return what differs between two runs of the same name; empty for the same run."""
    if ours.header != theirs.header:
        names = {*ours.header, *theirs.header}
        differing = sorted(n for n in names if ours.header.get(n) != theirs.header.get(n))
        return f"{', '.join(differing)} in its header"
    if ours.digests and theirs.digests:
        return "" if ours.digests == theirs.digests else "rows"
    return "" if ours.testbeds == theirs.testbeds else "numbers of rows"
