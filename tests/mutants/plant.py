"""Plant bugs one at a time in a copy of the tree, and report which of them the tests notice.

`make mutants` runs it; `python tests/mutants/plant.py --only closure --jobs 3` a part of it. The
bugs stand in mutants.yaml beside this file. The tests of each bug run on the sound tree first: a
test that fails there is reported, and its bugs are not tried. With `--outcomes FILE` each outcome
is added to a file, and a bug is not tried again whose outcome is there of the same code and tests:
so a run that was interrupted goes on. Exit 0 where every bug without a reason to survive is
noticed, and every bug with one survives; else 1.
"""

import argparse
import hashlib
import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # where this file is run as a program

from mutants.trees import SOUND_SECONDS, TestRun, edited, limit_s, pool_of_trees, run_tests  # noqa: E402

MUTANTS = Path(__file__).with_name("mutants.yaml")


@dataclass(frozen=True)
class Edit:
    """One edit of a bug. old, new: text that `file` has once, and what takes its place."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Bug:
    """One bug that is planted.

    edits: made together, such as one in a driver and one in its simulated device. tests: files that
    are to notice it. survives: why no test can, or None.
    """

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    survives: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """Files that the bug changes, each once."""
        return tuple(dict.fromkeys(edit.file for edit in self.edits))

    def mutate(self, root: Path) -> dict[str, str]:
        """Return the texts of the files under `root` with the bug.

        Raises `ValueError` where a file is not there or has an edit's `old` not exactly once.
        """
        texts: dict[str, str] = {}
        for edit in self.edits:
            path = root / edit.file
            if not path.is_file():
                raise ValueError(
                    f"{self.name}: no file {edit.file}: name the file that has the code now"
                )
            text = texts.get(edit.file) or path.read_text()
            if text.count(edit.old) != 1:
                raise ValueError(
                    f"{self.name}: found {edit.old!r} {text.count(edit.old)} times in {edit.file}, "
                    "expected it once: the code has changed, so plant the bug anew"
                )
            texts[edit.file] = text.replace(edit.old, edit.new)
        return texts

    def version(self, root: Path = ROOT) -> str:
        """Return what tells this bug in this code, with these tests, from all others."""
        digest = hashlib.sha256(repr((self.name, self.edits, self.tests)).encode())
        for name in (*self.files, *(test.partition("::")[0] for test in self.tests)):
            path = root / name
            for each in [path] if path.is_file() else sorted(path.glob("*.py")):
                digest.update(each.read_bytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Outcome:
    """Outcome of a bug.

    state: "killed", by a test that failed; "hung", "survived"; "uncollected", where pytest could
    not load the tests; "broken", where they fail on the sound tree, or there is none.
    """

    bug: Bug
    state: str
    seconds: float
    output: str

    @property
    def noticed(self) -> bool:
        """Whether a test has failed, or has not ended."""
        return self.state in {"killed", "hung"}

    @property
    def expected(self) -> bool:
        """Whether the bug's entry says so."""
        return self.noticed if self.bug.survives is None else self.state == "survived"


def bugs(path: Path = MUTANTS) -> list[Bug]:
    """Return the bugs of the list, each name once."""

    def read(name: str, body: dict[str, Any]) -> Bug:
        edits = tuple(
            Edit(edit["file"], edit["old"], edit["new"]) for edit in body.get("edits", [body])
        )
        return Bug(name, edits, tuple(body["tests"]), body.get("survives"))

    return [read(name, body) for name, body in YAML(typ="safe").load(path.read_text()).items()]


def try_bug(bug: Bug, tree: Path, sound_s: float = 0.0) -> Outcome:
    """Run the bug's tests on `tree` with the bug in it, and take it out again.

    sound_s: seconds that the tests take on the sound tree.
    """
    with edited(tree, bug.mutate(tree)):
        run = run_tests(bug.tests, tree, limit_s(sound_s))
    state = {"passed": "survived", "failed": "killed", "empty": "broken"}.get(run.state, run.state)
    return Outcome(bug, state, run.seconds, run.output)


def try_sound(test: str, tree: Path) -> TestRun:
    """Run the tests of a file on the sound tree, to the end."""
    return run_tests([test], tree, SOUND_SECONDS, options=())


def broken(bug: Bug, sound: dict[str, TestRun]) -> Outcome | None:
    """Return the outcome of a bug whose tests do not pass on the sound tree, or None."""
    for test in bug.tests:
        run = sound[test]
        if run.state != "passed":
            failed = ", ".join(run.failed) or f"{test} ({run.state})"
            text = f"on the sound tree: {failed}\n{run.output}"
            return Outcome(bug, "broken", run.seconds, text)
    return None


def try_all(chosen: Sequence[Bug], jobs: int) -> Iterator[Outcome]:
    """Try all bugs, `jobs` at a time, each in a copy of the tree, after their tests without one."""
    shown = threading.Lock()

    def show(state: str, seconds: float, name: str) -> None:
        with shown:
            print(f"{state:12}{seconds:6.0f} s  {name}", flush=True)

    with pool_of_trees(jobs) as mapped:
        tests = list(dict.fromkeys(test for bug in chosen for test in bug.tests))
        sound = dict(zip(tests, mapped(try_sound, tests), strict=True))
        for test, run in sound.items():
            if run.state != "passed":
                show(f"sound: {run.state}", run.seconds, test)

        def tried(bug: Bug, tree: Path) -> Outcome:
            outcome = broken(bug, sound)
            if outcome is None:
                outcome = try_bug(bug, tree, sum(sound[test].seconds for test in bug.tests))
            show(outcome.state, outcome.seconds, bug.name)
            return outcome

        yield from mapped(tried, chosen)


def remembered(chosen: Iterable[Bug], path: Path | None) -> dict[str, Outcome]:
    """Return the outcomes of `chosen` in a file, by name, that hold for the present code."""
    if path is None or not path.exists():
        return {}
    stored = [json.loads(line) for line in path.read_text().splitlines()]
    known = {one["version"]: one for one in stored if one["state"] != "broken"}
    found = {bug.name: (bug, known.get(bug.version())) for bug in chosen}
    return {
        name: Outcome(bug, one["state"], one["seconds"], "")
        for name, (bug, one) in found.items()
        if one is not None
    }


def remember(outcome: Outcome, path: Path | None) -> None:
    """Add an outcome to a file."""
    if path is not None:
        stored = {"version": outcome.bug.version(), "name": outcome.bug.name}
        stored |= {"state": outcome.state, "seconds": round(outcome.seconds, 1)}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(stored) + "\n")


def report(outcomes: Sequence[Outcome]) -> str:
    """Return numbers, and a sentence on each bug that did not end as its entry says."""
    noticed = sum(one.noticed for one in outcomes)
    lines = [f"{noticed} of {len(outcomes)} bugs noticed"]
    for state in ("hung", "uncollected", "broken"):
        if number := sum(one.state == state for one in outcomes):
            lines[0] += f"; {state}: {number}"
    for one in outcomes:
        if one.state == "survived" and one.bug.survives:
            lines.append(f"survived, as expected: {one.bug.name}: {one.bug.survives}")
        elif not one.expected:
            files = ", ".join(one.bug.files)
            lines.append(f"{one.state}, and was not to be: {one.bug.name} in {files}")
        if one.state == "broken":
            lines.append(one.output.partition("\n")[0])
        if one.state in {"broken", "uncollected"}:
            lines += one.output.splitlines()[-15:]
    return "\n".join(lines)


def main() -> int:
    """Try the bugs that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="bugs whose name contains this")
    parser.add_argument("--jobs", type=int, default=max((os.cpu_count() or 2) // 2, 1))
    parser.add_argument("--outcomes", type=Path, help="file of outcomes, to go on with")
    asked = parser.parse_args()
    chosen = [bug for bug in bugs() if asked.only in bug.name]
    outcomes = remembered(chosen, asked.outcomes)
    for outcome in try_all([bug for bug in chosen if bug.name not in outcomes], asked.jobs):
        remember(outcome, asked.outcomes)
        outcomes[outcome.bug.name] = outcome
    outcomes = {bug.name: outcomes[bug.name] for bug in chosen}
    print(report(list(outcomes.values())))
    return 0 if all(one.expected for one in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
