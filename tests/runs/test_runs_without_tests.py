"""Sessions in which no test begins leave no run; sessions whose tests record nothing do."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from runs.running import ROOT, Ended, started

from lightrig.harness.record.results import Results

TESTBED = ("--testbed", ROOT / "testbeds" / "opus.yaml", "--instruments", "simulated")
NONE: dict[str, tuple[int, tuple[object, ...]]] = {
    # pytest's documented exit statuses: 4 for wrong use, 5 where no test was collected.
    "expression": (5, ("-k", "nosuch")),
    "expression of a worker": (5, ("-k", "nosuch", "-n", 1)),
    "mark": (5, ("-m", "nosuch")),
    "path": (4, ("nosuch",)),
    "node id": (4, ("test_plain.py::test_nosuch",)),
    "option": (4, ("--json", "/dev/null/nosuch")),
    "distribution": (4, ("-n", 2, "--dist", "each")),
    "fixtures": (0, ("--fixtures",)),
    "markers": (0, ("--markers",)),
}
"""Exit status and arguments of sessions without a test."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("none")
    folder.joinpath("test_plain.py").write_text("def test_plain(): pass\n")
    return folder


@pytest.fixture(scope="module")
def first(folder: Path) -> str:
    """Name of the run before: one test that passes and records no row."""
    with started((folder / "test_plain.py", *TESTBED), folder / "results") as run:
        ended = run.end()
    assert ended.code == 0, ended.output
    assert ended.rows == []
    (made,) = (folder / "results" / "runs").iterdir()
    return made.name


@pytest.fixture(scope="module")
def none(folder: Path, first: str) -> Iterator[dict[str, Ended]]:
    """The sessions of `NONE`, side by side, with the results of `first`."""
    assert first
    events = {name: ("--json", folder / f"{name}.jsonl") for name in NONE if name != "option"}
    with contextlib.ExitStack() as stack:
        runs = {}
        for name, (_, given) in NONE.items():
            paths = [folder / str(given[0])] if name in {"path", "node id"} else [folder, *given]
            arguments = (*paths, "--rootdir", folder, *TESTBED, *events.get(name, ()))
            runs[name] = stack.enter_context(started(arguments, folder / "results", page=True))
        yield {name: run.end() for name, run in runs.items()}


@pytest.mark.parametrize("name", NONE)
def test_a_session_without_tests_leaves_no_run(
    none: dict[str, Ended], folder: Path, first: str, name: str
) -> None:
    ended = none[name]
    assert ended.code == NONE[name][0], ended.output
    assert [run.name for run in (folder / "results" / "runs").iterdir()] == [first]
    assert Results(folder / "results").find("last").run == first
    assert "journal.jsonl" not in ended.output
    assert "report.html" not in ended.output


@pytest.mark.parametrize("name", ["expression", "path"])
def test_the_terminal_and_the_events_tell_that_there_is_no_run(
    none: dict[str, Ended], folder: Path, name: str
) -> None:
    assert "no test has begun, so there is no run" in none[name].output
    lines = (folder / f"{name}.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    assert (last["event"], last["exit"]) == ("run_finished", none[name].code)
    assert (last["report"], last["journal"]) == (None, None)


def test_a_file_that_cannot_be_collected_stays_a_run(folder: Path) -> None:
    broken = folder / "broken"
    broken.mkdir()
    broken.joinpath("test_broken.py").write_text("import nosuch\n")
    with started((broken, *TESTBED), broken / "results") as run:
        ended = run.end()
    assert ended.code == 2, ended.output
    (facts,) = Results(broken / "results").runs()
    assert facts.counted() == {"error": 1}
