"""Runs that wait for a leased lab: `--queue` in the order in which they came, `--hold`."""

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import preloaded
import pytest
from bench.lease_holders import machine_holder
from bench.served_lab import PLACES, ServedLab, describe
from runs.running import Started

from lightrig.harness.bench.lease import address_keys
from lightrig.harness.bench.lease_queue import Ticket
from lightrig.harness.systems.acos.generator import render_rings

SUITE = """
import pathlib, time

HERE = pathlib.Path(__file__).parent

def test_{name}(bench):
    with (HERE / "order").open("a") as order:
        order.write("{name} ")
    for _ in range(6000):
        if (HERE / "free-{name}").exists():
            return
        time.sleep(0.02)
"""


@pytest.fixture
def run(lab: ServedLab, start: Callable[..., Started], tmp_path: Path) -> Callable[..., Started]:
    """Start a run by its name; it has the lab until the file free-NAME is there."""

    def run(name: str, *options: object) -> Started:
        suite = tmp_path / f"test_{name}.py"
        suite.write_text(SUITE.format(name=name))
        given = (suite, "--testbed", lab.file, "--instruments", "hardware", *options)
        return start(*given, environment=lab.environment)

    return run


def test_runs_have_the_lab_in_the_order_in_which_they_came(
    lab: ServedLab,
    run: Callable[..., Started],
    until: Callable[[Callable[[], bool]], None],
    tmp_path: Path,
) -> None:
    """The first of three that wait is killed; one that does not wait is refused meanwhile."""
    tickets = tmp_path / "state"

    def order() -> str:
        return (tmp_path / "order").read_text() if (tmp_path / "order").exists() else ""

    def waiting(count: int) -> Callable[[], bool]:
        return lambda: len([*tickets.glob("*.queue")]) == count

    first = run("first", "--hold", "3 h")
    until(lambda: order() == "first ")
    killed = run("killed", "--queue", "2h")
    until(waiting(1))
    second = run("second", "--queue", "2h")
    until(waiting(2))
    events = tmp_path / "third.jsonl"
    third = run("third", "--queue", "2h", "--json", events)
    until(waiting(3))
    refused = run("refused").end()
    assert refused.code == 3, refused.output
    assert re.search(
        r"since [-0-9]{10} [:0-9]{8} UTC, for run \S+ of testbed lab, until ", refused.output
    )
    killed.signal(signal.SIGKILL)
    killed.end()
    until(waiting(2))
    assert order() == "first "  # nothing takes it away, and nobody goes ahead
    (tmp_path / "free-first").touch()
    until(lambda: order() == "first second ")
    assert first.end().code == 0
    until(lambda: f"process {second.process.pid} on " in events.read_text())
    (tmp_path / "free-second").touch()
    until(lambda: order() == "first second third ")
    (tmp_path / "free-third").touch()
    outputs = [one.end() for one in (second, third)]
    assert [one.code for one in outputs] == [0, 0], outputs
    for ended, ahead in zip(outputs, (1, 2), strict=True):
        shown = [line for line in ended.output.splitlines() if line.startswith("lab waits for ")]
        process = f"process {first.process.pid} on "
        assert process in shown[0]
        assert f"{ahead + 1} wait for it, {ahead} of them before this run" in shown[0]
        assert " since " in shown[0]
        assert " until " in shown[0]
    assert f"process {second.process.pid} on " in outputs[1].output
    assert not [*tickets.glob("*.queue")]


def test_a_plan_is_applied_once_the_lab_is_free(
    lab: ServedLab,
    run: Callable[..., Started],
    until: Callable[[Callable[[], bool]], None],
    tmp_path: Path,
) -> None:
    """`lightrig apply` waits in the same queue as runs do, and says who has the lab."""
    apply = ["lightrig", "apply", lab.file, "crossed"]
    environment = {**os.environ, **lab.environment}

    def ended(*options: str) -> "subprocess.CompletedProcess[str]":
        return preloaded.run([*apply, *options], env=environment)

    first = run("first")
    until((tmp_path / "order").exists)
    assert ended().returncode == 3
    late = ended("--queue", "300 ms")
    assert (late.returncode, "waited    300 ms" in late.stderr) == (3, True), late.stderr
    assert [ended("--queue", text).returncode for text in ("2", "-1 h")] == [2, 2]
    with preloaded.Process(
        [*apply, "--queue", "2h"], None, environment, subprocess.PIPE, subprocess.PIPE
    ) as waits:
        until(lambda: bool([*(tmp_path / "state").glob("*.queue")]))
        (tmp_path / "free-first").touch()
        output, errors = waits.communicate()
    assert first.end().code == 0
    assert (waits.returncode, "4 made" in output) == (0, True), errors
    assert f"process {first.process.pid} on " in errors


WAITING = {
    "survive": ("lab.yaml", "--fault", "cut:1s", "--instruments", "hardware"),
    "certify": ("lab.yaml", "ocs", "--yes", "--instruments", "hardware"),
    "reference": ("lab.yaml",),
    "train": ("opus.yaml", "--instruments", "hardware", "--", "script.py"),
    "agent": ("acos.yaml", "--host", "gpu1", "--socket", "a.socket"),
}
"""Arguments of the commands that wait, by the command; agent's are of the system acos."""

LEASED = "address 127.0.0.1 port 9,serial /dev/rx-gpu1-lane1"
"""Keys of a switch of each of the three files; nothing answers at either."""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Write the files of `WAITING`."""
    lab = describe(tmp_path, {name: f"127.0.0.{n}:9" for n, name in enumerate(PLACES, 1)})
    (tmp_path / "opus.yaml").write_text(f"{lab.read_text()}system: opus\n")
    (tmp_path / "acos.yaml").write_text(render_rings())
    (tmp_path / "script.py").write_text("print('loss', 1)")
    return tmp_path


@pytest.mark.parametrize("name", WAITING)
def test_a_command_waits_for_the_lab_that_another_process_has(
    name: str, files: Path, until: Callable[[Callable[[], bool]], None]
) -> None:
    """It shows who has it since when and how many wait, then opens it: no instrument answers."""
    state, words = files / "state", ["agent", "acos"] if name == "agent" else [name]
    environment = {
        **os.environ,
        "LIGHTRIG_STATE": str(state),
        **dict.fromkeys(("LAB_OCS", "LAB_SERVER"), "a:b"),
    }
    holder = machine_holder(state, LEASED)
    assert holder.answer == "leased"
    file, *options = WAITING[name]

    def started(wait: str) -> preloaded.Process:
        command = ["lightrig", *words, file, "--queue", wait, *options]
        return preloaded.Process(command, files, environment, subprocess.PIPE, subprocess.PIPE)

    wrong = started("2")
    assert "found '2', expected a duration" in wrong.communicate(timeout=100)[1]
    assert wrong.returncode == 2
    late = started("300 ms")
    assert "waited    300 ms, and 0 waited before this run" in late.communicate(timeout=100)[1]
    assert late.returncode == 3
    waits = started("2h")
    until(lambda: bool([*state.glob("*.queue")]))
    holder.end()
    if name == "agent":
        assert waits.stdout is not None
        assert waits.stdout.readline().startswith("gpu1, 4 switches: ")
        waits.send_signal(signal.SIGTERM)
        _, errors = waits.communicate(timeout=100)
        assert waits.returncode == 0
    else:
        _, errors = waits.communicate(timeout=100)
        assert waits.returncode == 3
        assert "did not answer as described" in errors
    since = "since [-0-9]{10} [:0-9]{8} UTC, for a test; 1 wait for it, 0 of them before this run"
    said = re.search(
        rf"waits for .* at most: .* is in use by .*, process (\d+) on \S+, {since}", errors
    )
    assert said, errors
    assert int(said[1]) == holder.pid


def test_a_run_that_has_waited_long_enough_ends(
    run: Callable[..., Started], until: Callable[[Callable[[], bool]], None], tmp_path: Path
) -> None:
    first = run("first")
    until((tmp_path / "order").exists)
    ended = run("second", "--queue", "300 ms").end()
    assert ended.code == 3, ended.output
    assert f"process {first.process.pid} on " in ended.output
    assert "waited    300 ms, and 0 waited before this run" in ended.output
    (tmp_path / "free-first").touch()
    assert first.end().code == 0


def test_a_free_lab_is_left_to_those_that_wait_before(
    lab: ServedLab, run: Callable[..., Started], tmp_path: Path
) -> None:
    before = Ticket(tmp_path / "state", address_keys(lab.testbed.switches["ocs"]))
    ended = run("second", "--queue", "300 ms").end()
    before.leave()
    assert ended.code == 3, ended.output
    assert "lab is free for those that wait before" in ended.output
    assert "and 1 waited before this run" in ended.output
    assert not (tmp_path / "order").exists()


@pytest.mark.parametrize("given", ["2", "-1 h", "two hours"])
def test_a_time_is_stated_with_its_unit(
    start: Callable[..., Started], lab: ServedLab, given: str
) -> None:
    ended = start("--testbed", lab.file, f"--queue={given}", environment=lab.environment).end()
    assert ended.code == 4
    assert f"found '{given}'" in ended.output


def test_those_that_want_other_instruments_are_not_waited_for(tmp_path: Path) -> None:
    first = Ticket(tmp_path, ["a", "b"])
    second = Ticket(tmp_path, ["c"])
    third = Ticket(tmp_path, ["b", "c"])
    assert [one.waiting() for one in (first, second, third)] == [(0, 1), (0, 1), (2, 0)]
    first.leave()
    assert third.waiting() == (1, 0)
    for one in (second, third):
        one.leave()
    assert not [*tmp_path.glob("*.queue")]
