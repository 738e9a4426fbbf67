"""One testbed of a night on this host: pytest in a process of its own, then publication.

The run is recorded in a folder of this host first. Only a run that ended is published: an attempt
that was cut short leaves no row where results come together, so a second attempt adds none twice.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lightrig.harness.bench.aftermath import restore_after
from lightrig.harness.bench.saved_state import TIME
from lightrig.harness.night.outcomes import TestbedNight, run_name, store
from lightrig.harness.record import RecordError, publish
from lightrig.harness.record.recovery import JOURNAL
from lightrig.harness.record.run_folder import FACTS, RunFacts, is_published, parse_facts
from lightrig.instruments.clock import wall_time
from lightrig.instruments.temporary_folders import TemporaryFolder, remove_abandoned
from lightrig.testbeds import load
from lightrig.testbeds.lab_hosts import LabHosts
from lightrig.testbeds.timezones import ZoneError, common_zone

LOG = "pytest.log"
_EVENTS = "events.jsonl"
_POLL_S = 0.25
_LINES = 12

Progress = Callable[[int, int], None]
"""Called with the number of tests that have ended, and of all."""


@dataclass(frozen=True, slots=True)
class Task:
    """One testbed of a night, for a host: the file is that of `LabHosts`, as written there."""

    night: str
    testbed: str
    file: str


def tasks(lab: LabHosts, night: str) -> list[Task]:
    """Return the task of each testbed; raises `TestbedError` or `OSError` for a file."""
    return [Task(night, load(lab.resolve(file)).name, file) for file in lab.testbeds]


def lab_zone(lab: LabHosts) -> str | None:
    """Return the time zone whose date names a night: that of all testbeds, if they state one.

    None for this machine's: where they state none, or several.
    """
    try:
        testbeds = [load(lab.resolve(file)) for file in lab.testbeds]
        return common_zone((testbed.name, testbed.timezone) for testbed in testbeds)
    except ZoneError:
        return None


def measure(
    lab: LabHosts,
    task: Task,
    host: str,
    stopped: Callable[[], bool] = lambda: False,
    progress: Progress = lambda _done, _of: None,
) -> TestbedNight:
    """Measure a testbed on this host, publish its run and store its outcome.

    stopped: asked a few times a second; once true, pytest is terminated, which restores the lab,
    and nothing is published. What a pytest that was killed has left changed is restored here.
    What killed workers of this host have left is removed, but for runs that were not published.
    Raises `RecordError` if the results cannot be written.
    """
    if stopped():
        return TestbedNight(task.testbed, "not run", reason="the night was cancelled")
    name = run_name(task.night, task.testbed)
    remove_abandoned(_is_useless)
    made = TemporaryFolder(name, has_results=True)
    spool = Path(made.name)
    began = f"{wall_time():{TIME}}"
    with (spool / LOG).open("wb") as log:
        process = subprocess.Popen(
            _command(lab, task, name, spool), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            cancelled = _follow(process, spool, stopped, progress)
        finally:  # what follows may fail: nothing goes on measuring unattended
            if process.poll() is None:
                process.terminate()
                process.wait()
    folder = spool / "runs" / name
    status = process.returncode
    if cancelled or status < 0 or not (folder / FACTS).exists():
        file = lab.resolve(task.file)
        # A person waits for the end of a night that was cancelled.
        left = restore_after(file, began, **({"keep_trying": 0} if cancelled else {}))
        why = "the night was cancelled" if cancelled else _killed_or_ended(status)
        reason = "; ".join(filter(None, (why, left)))
        if (folder / JOURNAL).exists():
            reason += (
                f"; what was measured is on {host} in {folder}: `lightrig results recover "
                f"--results {spool}`"
            )
        if not cancelled:
            reason += f"\n{_tail(spool / LOG)}"
        if not (folder / JOURNAL).exists():
            made.cleanup()
        outcome = TestbedNight(task.testbed, "not run", host, exit=status, reason=reason)
        if cancelled:
            return replace(outcome, run=name)
        store(outcome, task.night, lab.results)
        return outcome
    shutil.copy(spool / LOG, folder / LOG)
    facts = parse_facts(str(folder / FACTS), (folder / FACTS).read_bytes())
    try:
        publish(folder, lab.results)
        outcome = _outcome(task, host, status, facts)
        store(outcome, task.night, lab.results)
    except RecordError as error:
        raise RecordError(f"{error}; the run is on {host} in {folder}") from error
    made.cleanup()
    return outcome


def _is_useless(spool: Path) -> bool:
    """Return whether a folder has no run, or all of its runs were published."""
    return all(is_published(journal.parent) for journal in spool.glob(f"runs/*/{JOURNAL}"))


def _command(lab: LabHosts, task: Task, name: str, spool: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "lightrig.harness.night.child", str(os.getpid())),
        *map(str, lab.suites),
        *("--testbed", str(lab.resolve(task.file))),
        *("--results", str(spool), "--run-name", name),
        *("--json", str(spool / _EVENTS), "-p", "no:cacheprovider"),
        *lab.options,
    ]


def _follow(
    process: "subprocess.Popen[bytes]",
    spool: Path,
    stopped: Callable[[], bool],
    progress: Progress,
) -> bool:
    """Wait for the end of pytest; return whether it was terminated before."""
    reports = _progress(spool / _EVENTS)
    while True:
        try:
            process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if found := next(reports):
                progress(*found)
            if stopped():
                process.terminate()
                process.wait()
                return True
        else:
            return False


def _progress(events: Path) -> Iterator[tuple[int, int] | None]:
    """Yield, as often as asked, the tests that have ended and all; None where nothing is new."""
    position = done = of = 0
    while True:
        before = done, of
        if events.exists():
            with events.open("rb") as file:
                file.seek(position)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    position += len(line)
                    event = json.loads(line)
                    of = event["tests"] if event["event"] == "tests_collected" else of
                    done += event["event"] == "test_finished"
        yield (done, of) if (done, of) != before else None


def _outcome(task: Task, host: str, status: int, facts: RunFacts) -> TestbedNight:
    summary = facts.summary or {}
    reasons = [str(summary.get("ended", "")), *map(str, summary.get("not_restored", ()))]
    return TestbedNight(
        task.testbed,
        "measured" if facts.state == "complete" else "interrupted",
        host,
        facts.run,
        status,
        facts.rows,
        facts.count("passed", "xfailed") or 0,
        facts.count("failed", "error", "xpassed") or 0,
        facts.count("inconclusive") or 0,
        facts.count("skipped") or 0,
        attempts=1,
        duration_s=facts.duration_s,
        reason="; ".join(filter(None, reasons)),
    )


def _killed_or_ended(status: int) -> str:
    return (
        f"pytest ended with {status}" if status >= 0 else f"pytest was killed by signal {-status}"
    )


def _tail(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-_LINES:])
