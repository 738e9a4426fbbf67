"""The files of campaigns, and the page that is made of them: `python -m tests.campaigns --page`.

A campaign runs for hours, is ended at will, and goes on behind its last line when it is started
again. Its file `NAME.jsonl` stands in the folder `CAMPAIGNS` (default `.campaigns`), one line per
kill, race or plan. The page has, for each file that there is, the command, how many of how many
were done, from when to when, and the campaign's table.
"""

import datetime
import fcntl
import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

NAMES = (
    "suite_kills",
    "kills",
    "night_kills",
    "process_kills",
    "lease_races",
    "faulty_suites",
    "fault_plans",
    "mutations",
    "labs",
    "mornings",
    "healthy_switches",
    "wire_sequences",
    "fault_trace",
    "service_replays",
)
"""Modules that write such a file, and offer `table(done)`: its lines, and whether all is well."""


def folder() -> Path:
    """Return the folder of the campaigns' files, which exists then."""
    path = Path(os.environ.get("CAMPAIGNS", ".campaigns")).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


def read(name: str) -> list[dict[str, Any]]:
    """Return what was done; a line that a kill has cut off was not."""
    try:
        lines = (folder() / f"{name}.jsonl").read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("\n")]


class Log:
    """The file of one campaign.

    Attributes:
        done: each line so far.
    """

    def __init__(self, name: str) -> None:
        path = folder() / f"{name}.jsonl"
        self._file = path.open("a")
        with path.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # lanes open it side by side
            text = file.read()
            file.truncate(text.rfind(b"\n") + 1)
            self.done = read(name)

    def add(self, found: dict[str, Any]) -> None:
        """Append a line, with the time."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.done.append({**found, "at": now})
        line = json.dumps(self.done[-1], sort_keys=True) + "\n"
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._file.write(line)
        self._file.flush()
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def faults_by_outcome(
    done: Sequence[Mapping[str, Any]], count: str, outcomes: Sequence[str], bad: Sequence[str]
) -> list[str]:
    """Return the table of fault by outcome; a run counts under each of its faults.

    count: the heading of how many runs there are. bad: outcomes that break a promise.
    """
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in done:
        for kind in {*each["faults"], "~all"}:
            rows[kind][count] += 1
            rows[kind].update(each["found"])
    columns = [count, *outcomes, *(bad or ["BROKEN"])]
    printed = [f"{'fault':<22}" + "".join(f"{name:>25}" for name in columns)]
    for kind in sorted(rows):
        cells = "".join(f"{rows[kind][name]:>25,}" for name in columns)
        printed.append(f"{kind.removeprefix('~'):<22}{cells}")
    return printed


def total_of(done: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Return the sum of what was found in all runs."""
    total: Counter[str] = Counter()
    for each in done:
        total.update(each["found"])
    return total


def reported(printed: Iterable[str], good: bool, report: Callable[[str], object]) -> bool:
    """Report the lines of a table, and return whether all is well, as it says."""
    for line in printed:
        report(line)
    return good


@contextmanager
def journals() -> Iterator[Path]:
    """Give a folder for journals, in memory where it can be: virtual time waits for no disk."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="lightrig-journals-", dir=memory) as name:
        yield Path(name)


@contextmanager
def log(name: str) -> Iterator[Log]:
    """Open the file of a campaign."""
    opened = Log(name)
    try:
        yield opened
    finally:
        opened.close()


def print_page(report: Callable[[str], object] = print) -> bool:
    """Print the page as Markdown; returns whether every campaign kept its promise."""
    good = True
    for name in NAMES:
        done = read(name)
        if not done:
            continue
        printed, well = import_module(f"tests.campaigns.{name}").table(done)
        good &= well
        report(f"## {name}: {'kept' if well else 'BROKEN'}\n")
        times = sorted(each["at"] for each in done)
        report(f"`python -m tests.campaigns {name}`, {times[0]} to {times[-1]}\n")
        report("```")
        reported(printed, well, report)
        report("```\n")
    return good
