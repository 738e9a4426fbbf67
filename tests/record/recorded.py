"""Whole runs in a results folder, recorded as sessions do, without a bench."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lightrig.harness.record import Context, Journal, Row, TestOutcome, settle, store_descriptions

ROOT = Path(__file__).parents[2]
OPUS = ROOT / "testbeds" / "opus.yaml"
TEST = "suites/test_reconfiguration.py::test_between_plans[opus-east-west-north-south]"
MS = 1_000_000


def context(testbed: str = "opus", simulated: bool = True, **conditions: str | int) -> Context:
    instruments = ("ocs: Polatis, serial SIM-ocs", "server0: Linux 6.8")
    return Context(testbed, TEST, instruments, simulated, {"before": "east-west", **conditions})


def times(count: int, middle_ms: float = 60.0, quantity: str = "signal_recovered") -> Iterator[Row]:
    for event in range(count):
        value = int((middle_ms + event % 7) * MS)
        bounds = value - 5 * MS, value + 5 * MS
        name = f"reconfiguration.{quantity}"
        yield Row("opus", name, value, *bounds, "ns", event * 10**9, {"event": event})


def description(folder: Path) -> Path:
    """The description of opus, alone: without the baselines that stand beside it."""
    maps = "opus/crossconnect.yaml"
    (folder / maps).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(OPUS.parent / maps, folder / maps)
    return Path(shutil.copy(OPUS, folder / OPUS.name))


def begin(results: Path, run: str, night: str = "2026-03-14", **header: object) -> Journal:
    folder = results / "runs" / run
    with tempfile.TemporaryDirectory() as lab:
        stored = store_descriptions({"opus": str(description(Path(lab)))}, folder)
    shown = {"testbeds": {"opus": str(OPUS)}, "descriptions": stored, "seed": 7, **header}
    return Journal(folder / "journal.jsonl", {"run": run, "night": night, **shown})


def record(
    results: Path,
    run: str,
    night: str = "2026-03-14",
    *,
    rows: int = 20,
    middle_ms: float = 60.0,
    testbed: str = "opus",
    simulated: bool = True,
    **header: object,
) -> Path:
    """Record a run to its end; returns its folder."""
    journal = begin(results, run, night, **header)
    journal.append_many(context(testbed, simulated), times(rows, middle_ms))
    journal.note_test(TestOutcome(TEST, "failed", 1.0, {"repeat": "pytest"}))
    journal.note_test(TestOutcome(TEST, "passed", 2.5))
    journal.note_test(TestOutcome("test_other", "skipped", 0.0))
    journal.close({"exit": 0, "duration_s": 12.5})
    settle(journal.path.parent)
    return journal.path.parent
