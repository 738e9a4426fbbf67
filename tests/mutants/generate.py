"""Make mistakes that people make, one at a time, and report which of them the tests notice.

`make mistakes` makes them on the lines that have changed since the commit SINCE;

    python tests/mutants/generate.py harness/record harness/cli --most 40 --seed 7

draws 40 a folder. Tests are chosen by the lines that they run, which are stored in .mistakes. Each
outcome is printed as it falls, and added to the file of `--outcomes`, of which a later run goes on.
The page, a table of the share that is noticed by folder and a list of what is not, is printed at
the end. Exit 0 unless tests fail on the sound tree.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # where this file is run as a program

import scipy  # noqa: E402
from mutants import reach  # noqa: E402
from mutants.mistakes import Mistake, compiles, mistakes  # noqa: E402
from mutants.trees import edited, limit_s, pool_of_trees, run_tests  # noqa: E402

PRODUCT = ("harness", "instruments", "suites", "testbeds")


@dataclass(frozen=True)
class Place:
    """A mistake in a file."""

    file: str
    mistake: Mistake

    @property
    def folder(self) -> str:
        """Folder under which it is counted: two parts of its path, three below a system's."""
        parts = Path(self.file).parent.parts
        return "/".join(parts[: 3 if parts[:2] == ("harness", "systems") else 2])

    def __str__(self) -> str:
        text = (ROOT / self.file).read_text().encode()
        start, end = self.mistake.start, self.mistake.end
        line = text[:start].count(b"\n") + 1
        old = " ".join(text[start:end].decode().split())
        new = " ".join(self.mistake.new.split())
        return f"{self.file}:{line}  {self.mistake.kind}: {old} -> {new}"


@dataclass(frozen=True)
class Tried:
    """Outcome of a mistake.

    state: "noticed"; "survived"; "unreached", where no test runs its line; "uncollected", where
    tests could not be loaded. by: the test that failed, or what hung. tests, left: number of test
    files that ran, and of those that reach the line and would have taken too long.
    """

    folder: str
    place: str
    kind: str
    state: str
    by: str
    tests: int
    left: int


def changed_lines(since: str) -> dict[str, set[int]]:
    """Return the lines of each file of the product that were changed since a commit."""
    command = ["git", "diff", "--unified=0", "--no-color", since, "--", *PRODUCT]
    diff = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return lines_of_diff(diff)


def lines_of_diff(diff: str) -> dict[str, set[int]]:
    """Return the new lines of each Python file of a diff without context."""
    found: dict[str, set[int]] = {}
    file = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif file.endswith(".py") and (match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line)):
            first, count = int(match[1]), int(match[2] or 1)
            found.setdefault(file, set()).update(range(first, first + count))
    return {file: lines for file, lines in found.items() if lines}


def places(file: str, lines: set[int] | None = None) -> list[Place]:
    """Return the mistakes of a file, or those of statements that have one of `lines`."""
    found = mistakes((ROOT / file).read_text())
    return [
        Place(file, one)
        for one in found
        if lines is None or not lines.isdisjoint(range(one.lines[0], one.lines[1] + 1))
    ]


def can_be_made(place: Place) -> bool:
    """Whether the file compiles with the mistake, which is found out only of those drawn."""
    return compiles(place.mistake.made((ROOT / place.file).read_text()))


def drawn(
    found: Sequence[Place],
    most: int,
    seed: int,
    is_wanted: Callable[[Place], bool] = can_be_made,
) -> list[Place]:
    """Draw at most `most` wanted ones a folder, each as likely as any other of its folder."""
    by_folder: dict[str, list[Place]] = {}
    for place in found:
        by_folder.setdefault(place.folder, []).append(place)
    return [
        place
        for folder, here in sorted(by_folder.items())
        for place in islice(
            filter(is_wanted, random.Random(f"{seed} {folder}").sample(here, len(here))), most
        )
    ]


def tried(place: Place, tree: Path, reaches: Sequence[reach.Reach], most_s: float) -> Tried:
    """Make a mistake in `tree` and run the tests that reach it, until one notices it."""
    chosen, left = reach.reaching(reaches, place.file, place.mistake.lines, most_s)
    state, by, ran = ("survived" if chosen else "unreached"), "", 0
    text = (tree / place.file).read_text()
    with edited(tree, {place.file: place.mistake.made(text)}):
        for one in chosen:
            ran += 1
            run = run_tests([one.test], tree, limit_s(one.seconds))
            if run.state != "passed":
                state = {"failed": "noticed", "hung": "noticed"}.get(run.state, "uncollected")
                by = next(iter(run.failed), f"{one.test} ({run.state})")
                break
    kind = place.mistake.kind
    return Tried(place.folder, str(place), kind, state, by, ran, left)


def page(outcomes: Sequence[Tried]) -> str:
    """Return the share that is noticed by folder, with its interval, and what is not."""
    lines = [
        "| folder | mistakes | noticed | not noticed | no test runs the line | not collected |"
    ]
    lines[0] += " share noticed (95 % interval) |"
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for folder in sorted({one.folder for one in outcomes}):
        states = Counter(one.state for one in outcomes if one.folder == folder)
        counted = states.total() - states["uncollected"]
        numbers = (states.total(), states["noticed"], states["survived"], states["unreached"])
        share = "no mistake"
        if counted:
            ends = scipy.stats.binomtest(states["noticed"], counted).proportion_ci(0.95, "exact")
            share = f"{states['noticed'] / counted:.0%} ({ends.low:.0%} … {ends.high:.0%})"
        cells = (folder, *map(str, numbers), str(states["uncollected"]), share)
        lines.append(f"| {' | '.join(cells)} |")
    unnoticed = [one for one in outcomes if one.state in {"survived", "unreached"}]
    lines += ["", f"Not noticed: {len(unnoticed)}"]
    for one in unnoticed:
        left = f", {one.left} more reach it" if one.left else ""
        tests = f"{one.tests} test files ran{left}" if one.tests else "no test runs the line"
        lines.append(f"- `{one.place}` ({tests})")
    return "\n".join(lines)


def outcomes_of(
    chosen: Sequence[Place], jobs: int, under: Sequence[str], most_s: float
) -> Iterator[Tried]:
    """Try all mistakes of `chosen`; raises `SystemExit` where no test passes."""
    files = sorted({place.file for place in chosen})
    with pool_of_trees(jobs) as mapped:
        reaches = reach.refreshed(reach.files_of_tests(under), files, mapped)
        for line in reach.broken(reaches):
            print(f"not used, since it does not pass without a mistake: {line}", flush=True)
        yield from mapped(lambda place, tree: tried(place, tree, reaches, most_s), chosen)


def main() -> int:
    """Make the mistakes that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("under", nargs="*", default=[], help="files or folders of the product")
    parser.add_argument("--since", help="only lines that have changed since this commit")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="folders or files of tests")
    parser.add_argument("--most", type=int, default=40, help="mistakes a folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests a mistake")
    parser.add_argument("--jobs", type=int, default=max((os.cpu_count() or 2) // 2, 1))
    parser.add_argument("--outcomes", type=Path, help="file of outcomes, to go on with")
    asked = parser.parse_args()
    under = tuple(asked.under) or PRODUCT
    if asked.since:
        wanted = {
            file: lines
            for file, lines in changed_lines(asked.since).items()
            if any(Path(file).is_relative_to(each) for each in under)
        }
        found = [place for file, lines in wanted.items() for place in places(file, lines)]
    else:
        names = {path for each in under for path in (ROOT / each).rglob("*.py")}
        names |= {ROOT / each for each in under if each.endswith(".py")}
        found = [each for path in sorted(names) for each in places(str(path.relative_to(ROOT)))]
    chosen = drawn(found, asked.most, asked.seed)
    file = asked.outcomes
    lines = file.read_text().splitlines() if file is not None and file.exists() else []
    known = {one["place"]: Tried(**one) for one in map(json.loads, lines)}
    new = [place for place in chosen if str(place) not in known]
    print(
        f"{len(chosen)} mistakes of {len(found)}, {len(chosen) - len(new)} tried before", flush=True
    )
    for one in outcomes_of(new, asked.jobs, asked.tests, asked.seconds) if new else ():
        print(f"{one.state:12}{one.place}  {one.by}", flush=True)
        known[one.place] = one
        if file is not None:
            with file.open("a", encoding="utf-8") as output:
                output.write(json.dumps(asdict(one)) + "\n")
    print(page([known[str(place)] for place in chosen]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
