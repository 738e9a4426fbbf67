"""Recorders at the same work, until somebody kills them: ours, and four that people use.

A program for any Python that has the recorder: `python recorders.py NAME`. For each line on
stdin, a JSON object with `folder` and `pace`, it forks a process that records a measurement
every `pace` seconds (0: as fast as it can), says after each one how many are recorded by now in
the file `acknowledged`, and prints its process id. A line with `count` prints how much of it is
found in that folder afterwards, by the recorder's own means.
"""

# What the methods do is said of the recorders; only the one asked for is imported, since the
# others may not be there.
# ruff: noqa: D102

import contextlib
import html
import json
import logging
import mmap
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TESTS = 20_000
TEST_FILE = """
import time, pytest
@pytest.mark.parametrize("number", range(TESTS))
def test_measures(number):
    time.sleep(PACE)
"""
ROOT = Path(__file__).parents[1]


class Work:
    """Measurements, one after the other, each acknowledged once the recorder has it."""

    def __init__(self, folder: Path, pace: float) -> None:
        self.folder, self.pace = folder, pace
        self._done = 0
        file = os.open(folder / "acknowledged", os.O_RDWR | os.O_CREAT)
        os.ftruncate(file, 8)
        self._shared = memoryview(mmap.mmap(file, 8)).cast("Q")

    def acknowledge(self) -> None:
        # The kernel keeps a shared page when its process is killed. This is one store of eight
        # bytes; `struct` would write zeros first, and a kill may come in between.
        self._done += 1
        self._shared[0] = self._done

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """Number, value and its bounds; what came before is recorded when the next is taken."""
        number = 0
        while True:
            if self.pace:
                time.sleep(self.pace)
            yield number, 40_000_000 + number, 39_000_000, 90_000_000
            self.acknowledge()
            number += 1


class Lightrig:
    """Rows by the journal, as in a run."""

    def __init__(self) -> None:
        from lightrig.harness.record import Context, Journal, Row, read_journal, store_descriptions

        self.parts = Context, Journal, Row, store_descriptions, read_journal

    def record(self, work: Work) -> None:
        context_of, journal_of, row_of, keep, _ = self.parts
        run = work.folder / "runs" / "r"
        opus = {"opus": str(ROOT / "testbeds" / "opus.yaml")}
        header = {"run": "r", "night": "2026-03-14", "descriptions": keep(opus, run)}
        journal = journal_of(run / "journal.jsonl", header)
        context = context_of("opus", "test_survival", ("ocs: none",), True)
        for number, value, lower, upper in work.rows():
            quantity, event = "reconfiguration.signal_recovered", {"event": number}
            journal.append(context, row_of("ocs", quantity, value, lower, upper, "ns", 0, event))

    def count(self, folder: Path) -> int:
        return sum(1 for _ in self.parts[-1](folder / "runs" / "r" / "journal.jsonl").rows())


class Qcodes:
    """QCoDeS: a measurement's data saver, into its SQLite database."""

    write_period: float | None = None

    def __init__(self) -> None:
        import qcodes
        from qcodes import dataset

        qcodes.config["logger"]["start_logging_on_import"] = "never"
        logging.disable()
        self.dataset = dataset

    def _open(self, folder: Path) -> Any:
        self.dataset.initialise_or_create_database_at(folder / "runs.db")
        return self.dataset.load_or_create_experiment("survival", "opus")

    def record(self, work: Work) -> None:
        measurement = self.dataset.Measurement(exp=self._open(work.folder))
        measurement.register_custom_parameter("event")
        for name in ("value", "lower", "upper"):
            measurement.register_custom_parameter(name, setpoints=("event",))
        if self.write_period is not None:
            measurement.write_period = self.write_period
        with measurement.run() as saver:
            for number, value, lower, upper in work.rows():
                saver.add_result(
                    ("event", number), ("value", value), ("lower", lower), ("upper", upper)
                )

    def count(self, folder: Path) -> int:
        try:
            self._open(folder)
            found = self.dataset.load_by_id(1)
            return int(found.number_of_results) // 3
        except (ValueError, RuntimeError, NameError):
            return 0


class QcodesEagerly(Qcodes):
    """QCoDeS with the shortest write period that it takes."""

    write_period = 0.001


class OpenHtf:
    """OpenHTF: dimensioned measurements of a phase, written as JSON by its callback."""

    def __init__(self) -> None:
        logging.disable()
        import openhtf
        from openhtf.output.callbacks import json_factory

        self.openhtf, self.json_factory = openhtf, json_factory

    def record(self, work: Work) -> None:
        htf = self.openhtf

        @htf.measures(*(htf.Measurement(n).with_dimensions("event") for n in _NAMES))  # type: ignore[untyped-decorator]
        def phase(test: Any) -> None:
            found = test.measurements
            for number, *values in work.rows():
                for name, value in zip(_NAMES, values, strict=True):
                    found[name][number] = value

        test = htf.Test(phase)
        test.add_output_callbacks(self.json_factory.OutputToJSON(str(work.folder / "out.json")))
        test.execute(test_start=lambda: "dut")

    def count(self, folder: Path) -> int:
        file = folder / "out.json"
        if not file.exists():
            return 0
        (phase,) = json.loads(file.read_text())["phases"][-1:]
        return len(phase["measurements"]["value"]["measured_value"])


class _Pytest:
    """pytest: each test that has ended is a measurement."""

    arguments: tuple[str, ...] = ()
    plugin: str | None = None

    def __init__(self) -> None:
        import pytest

        if self.plugin:
            __import__(self.plugin)
        self.pytest = pytest

    def record(self, work: Work) -> None:
        class Acknowledges:
            @self.pytest.hookimpl(trylast=True)  # type: ignore[untyped-decorator]
            def pytest_runtest_logfinish(self) -> None:
                work.acknowledge()

        test = work.folder / "test_work.py"
        # Collecting takes its time too; at a pace no kill waits for as many.
        tests = 1500 if work.pace else TESTS
        test.write_text(TEST_FILE.replace("PACE", str(work.pace)).replace("TESTS", str(tests)))
        os.chdir(work.folder)
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
            arguments = [a.format(folder=work.folder, root=ROOT) for a in self.arguments]
            self.pytest.main(
                ["-q", "-p", "no:cacheprovider", "--rootdir", ".", *arguments, str(test)],
                plugins=[Acknowledges()],
            )

    def count(self, folder: Path) -> int:
        raise NotImplementedError


class LightrigPytest(_Pytest):
    """Our plugin: a line in the journal for each test."""

    plugin = "lightrig.harness.plugin"
    arguments = ("--testbed", "{root}/testbeds/opus.yaml", "--results", "{folder}")

    def count(self, folder: Path) -> int:
        from lightrig.harness.record import read_journal

        (journal,) = folder.glob("runs/*/journal.jsonl")
        return len(read_journal(journal).tests)


class ReportLog(_Pytest):
    """pytest-reportlog: a JSON line for each phase of a test."""

    plugin = "pytest_reportlog"
    arguments = ("--report-log", "log.jsonl")

    def count(self, folder: Path) -> int:
        found = 0
        for line in (folder / "log.jsonl").read_text().splitlines():
            with contextlib.suppress(ValueError):
                found += json.loads(line).get("when") == "call"
        return found


class Html(_Pytest):
    """pytest-html: a page at the end."""

    plugin = "pytest_html"
    arguments = ("--html", "report.html", "--self-contained-html")

    def count(self, folder: Path) -> int:
        file = folder / "report.html"
        if not file.exists():
            return 0
        blob = re.search(r'data-jsonblob="([^"]*)"', file.read_text())
        return len(json.loads(html.unescape(blob[1]))["tests"]) if blob else 0


class JunitXml(_Pytest):
    """pytest's own JUnit XML: a file at the end."""

    arguments = ("--junitxml", "report.xml")

    def count(self, folder: Path) -> int:
        file = folder / "report.xml"
        return file.read_text().count("<testcase") if file.exists() else 0


_NAMES = ("value", "lower", "upper")
RECORDERS: dict[str, Callable[[], Any]] = {
    "lightrig": Lightrig,
    "lightrig-pytest": LightrigPytest,
    "qcodes": Qcodes,
    "qcodes-1ms": QcodesEagerly,
    "openhtf": OpenHtf,
    "pytest-html": Html,
    "pytest-reportlog": ReportLog,
    "junitxml": JunitXml,
}


def main(name: str) -> None:
    """Serve stdin until it ends."""
    recorder = RECORDERS[name]()
    out = os.dup(1)
    os.dup2(2, 1)  # nothing but our words reaches the one who asks
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def say(word: object) -> None:
        os.write(out, f"{word}\n".encode())

    say("ready")
    for line in sys.stdin:
        asked = json.loads(line)
        if "count" in asked:
            say(recorder.count(Path(asked["count"])))
            continue
        child = os.fork()
        if child:
            say(child)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for file in (0, 1, 2):
            os.dup2(null, file)
        recorder.record(Work(Path(asked["folder"]), asked["pace"]))
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
