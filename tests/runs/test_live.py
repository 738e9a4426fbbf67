"""Live output of a run: on a terminal for people, as events for other tools."""

import contextlib
import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import preloaded
import pytest
from bench.served_lab import describe
from runs.running import NO_PAGE, QUIET, ROOT, Ended, started

EVENTS = ROOT / "docs" / "appendix" / "events.md"
pytestmark = pytest.mark.timeout(300)  # three runs side by side, on a machine that may be busy

TESTS = """
import pytest

def test_measured(fabric, measure, bring_up, measure_reconfiguration, transition):
    bring_up(transition.before)
    for index in range(8):
        measure_reconfiguration(transition.before if index % 2 else transition.after)
    measure.judge("reconfiguration")

def test_wrong(bench, testbed): assert 0, "so wrong"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live")
    describe(folder, limit="{max: 10 s}")
    (folder / "test_live.py").write_text(TESTS)
    return folder


def command(project: Path, *options: object) -> tuple[object, ...]:
    simulated = ("--testbed", project / "lab.yaml", "--instruments", "simulated")
    return (project / "test_live.py", "--rootdir", project, *simulated, *options)


@pytest.fixture(scope="module")
def runs(project: Path) -> Iterator[dict[str, Ended]]:
    ways = {
        "plain": ("--json", project / "events.jsonl"),
        "quiet": ("-q",),
        "verbose": ("-v",),
    }
    with contextlib.ExitStack() as stack:
        begun = {
            name: stack.enter_context(
                started(command(project, *options), project / f"results {name}")
            )
            for name, options in ways.items()
        }
        yield {name: run.end(timeout=200) for name, run in begun.items()}


MEASURED = r"[\d.]+ ms \[[\d.]+ … [\d.]+\]"


def test_one_line_a_test(runs: dict[str, Ended]) -> None:
    output = runs["plain"].output
    lines = [line for line in output.splitlines() if re.match(r"\d/2  ", line)]
    assert len(lines) == 2
    assert re.fullmatch(
        r"1/2  passed       test_live\.py::test_measured\[lab/straight-to-crossed\]  "
        rf"acknowledged {MEASURED}, signal_recovered {MEASURED}, "
        rf"carrier_up {MEASURED}, first_datagram {MEASURED} "
        r"\(medians of 8, simulated\)  [\d.]+ m?s  (about \d+ s|less than a second) left",
        lines[0],
    )
    assert re.fullmatch(
        r"2/2  failed       test_live\.py::test_wrong\[lab\]  "
        r"AssertionError: so wrong  [\d.]+ (m|µ)?s",
        lines[1],
    )
    assert "\r" not in output
    assert "%]" not in output
    assert re.search(r"\nFAILED .*test_wrong\[lab\]", output)


def test_quiet_and_verbose_are_as_pytest_has_them(runs: dict[str, Ended]) -> None:
    assert re.search(r"^\.F +\[100%\]$", runs["quiet"].output, re.MULTILINE)
    assert re.search(
        r"test_live.py::test_measured\[lab/straight-to-crossed\] PASSED +\[ 50%\]",
        runs["verbose"].output,
    )
    for name in ("quiet", "verbose"):
        assert " left" not in runs[name].output


def test_terminal_shows_what_runs(project: Path, tmp_path: Path) -> None:
    """On a terminal the running test has a line, drawn over and over, with its figures."""
    ours, theirs = pty.openpty()
    options = ("--results", tmp_path, "-p", "no:cacheprovider", *NO_PAGE)
    environment = {"COLUMNS": "150", "TERM": "xterm", "LIGHTRIG_STATE": str(tmp_path)}
    process = preloaded.Process(
        ["pytest", *command(project, *options)],
        env={**os.environ, **environment},
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # its end
        while piece := os.read(ours, 65536):
            seen += piece
    assert process.wait() == 1
    os.close(ours)
    plain = re.sub(r"\x1b\[[\d;]*m", "", seen.decode())
    assert re.search(r"\r0/2  test_live\.py::test_measured\[lab/straight-to-crossed\] ", plain)
    assert re.search(r"\r1/2  test_live\.py::test_wrong\[lab\]  (about|less).* left", plain)
    (line,) = re.findall(r"\r(1/2  passed .*?)\r?\n", plain)
    assert "medians of 8" in line


# ------------------------------------------------------------------------------- events


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def documented() -> dict[str, set[str]]:
    """Each event with its fields by the document, without those that not all of its kind have."""
    found = {}
    for line in EVENTS.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and re.fullmatch(r"`\w+`", cells[0]):
            always = cells[2].partition(";")[0]
            found[cells[0].strip("`")] = set(re.findall(r"`(\w+)`", always))
    return found


def test_events_agree_with_their_document(runs: dict[str, Ended], project: Path) -> None:
    found = events((project / "events.jsonl").read_text())
    known = documented()
    assert {event["event"] for event in found} == known.keys() - {
        "note", "tests_deselected", "not_restored"
    }  # fmt: skip
    for event in found:
        assert set(event) - {"event", "time"} == known[event["event"]]
    assert runs["plain"].code == 1


def test_events_tell_a_run_from_beginning_to_end(runs: dict[str, Ended], project: Path) -> None:
    found = events((project / "events.jsonl").read_text())
    assert [event["event"] for event in found[:3]] == [
        "run_started",
        "tests_collected",
        "test_started",
    ]
    assert found[0]["version"] == 1
    assert found[1]["tests"] == 2
    final = {
        event["quantity"]: event
        for event in found
        if event["event"] == "quantity" and event["final"]
    }
    light = final["reconfiguration.signal_recovered"]
    assert light["lower"] <= light["value"] <= light["upper"]
    assert (light["n"], light["unit"], light["simulated"]) == (8, "ns", True)
    (verdict,) = (event for event in found if event["event"] == "verdict")
    assert (verdict["quantity"], verdict["outcome"]) == ("reconfiguration.carrier_up", "pass")
    ends = {e["test"].rpartition("::")[2]: e for e in found if e["event"] == "test_finished"}
    assert ends["test_measured[lab/straight-to-crossed]"]["why"] is None
    assert ends["test_wrong[lab]"]["why"].startswith("AssertionError: so wrong")
    last = found[-1]
    assert (last["event"], last["exit"], last["ended"]) == ("run_finished", 1, None)
    assert last["report"] is None
    assert Path(last["journal"]).exists()
    assert runs["plain"].rows


@pytest.mark.long
def test_standard_output_is_events_alone(project: Path, tmp_path: Path) -> None:
    """Also where tests write to it, and where somebody ends the run."""
    (project / "test_loud.py").write_text(
        "import os, signal\n"
        "def test_loud(bench):\n"
        "    print('loud'); os.system('echo louder')\n"
        "def test_ended(bench): os.kill(os.getpid(), signal.SIGINT)\n"
    )
    arguments = (project / "test_loud.py", *command(project, "--json", "-")[1:])
    ended = preloaded.run(
        ["pytest", *arguments, *QUIET, "--results", tmp_path],
        env={**os.environ, "LIGHTRIG_STATE": str(tmp_path)},
    )
    assert ended.returncode == 2, ended.stderr
    found = events(ended.stdout)
    assert [event["event"] for event in found] == [
        *("run_started", "tests_collected", "test_started", "test_finished", "test_started"),
        "run_finished",
    ]
    assert found[-1]["ended"].startswith("interrupted")
    assert Path(found[-1]["report"]).exists()
    assert "passed       test_loud.py::test_loud[lab]" in ended.stderr


@pytest.mark.parametrize("kind", ["", ", action='store_true'", ", type=int"])
def test_another_plugin_may_have_the_short_name(tmp_path: Path, kind: str) -> None:
    (tmp_path / "clash.py").write_text(
        f"def pytest_addoption(parser): parser.addoption('--json', help='theirs'{kind})\n"
    )
    ended = preloaded.run(
        ["pytest", "-p", "clash", "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    assert "--lightrig-json" in ended.stdout
    assert "theirs" in ended.stdout


@pytest.mark.long
def test_listener_that_goes_away_does_not_end_the_run(project: Path, tmp_path: Path) -> None:
    arguments = [*map(str, command(project, "--json", "-")), *QUIET, "--results", str(tmp_path)]
    with preloaded.Process(
        ["pytest", *arguments],
        env={**os.environ, "LIGHTRIG_STATE": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["event"] == "run_started"
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 1
    assert "lightrig: no more events: " in said
    assert "Exception ignored" not in said
    assert "1 failed, 1 passed" in said
