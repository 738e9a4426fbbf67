"""However a run ends, the switch holds what it held before, and nobody else's circuit moved."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.served_lab import CROSSED, FOREIGN, LEFT, STRAIGHT, ServedLab, set_circuits
from typer.testing import Result

from lightrig.testbeds import Circuit

Start = Callable[..., Any]
Until = Callable[[Callable[[], bool]], None]
BETWEEN = ("suites/test_reconfiguration.py", "-k", "between")
# Only where a test is about measuring: on a busy machine an event may go unseen and end the run.
ENDLESS = """
def test_endless(fabric, transition):
    while True:
        fabric.apply(transition.before)
        fabric.apply(transition.after)
"""
SHORT = "def test_short(fabric, transition): fabric.apply(transition.after)"


@pytest.fixture
def begin(lab: ServedLab, start: Start) -> Callable[..., Any]:
    """Start a run in the lab, which people had left with some circuits."""
    set_circuits(lab.switch, LEFT | FOREIGN)

    def run(*arguments: object) -> Any:
        hardware = ("--testbed", lab.file, "--instruments", "hardware")
        return start(*arguments, *hardware, environment=lab.environment)

    return run


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    path = tmp_path / "test_endless.py"
    path.write_text(ENDLESS)
    return path


@pytest.fixture
def short(tmp_path: Path) -> Path:
    path = tmp_path / "test_short.py"
    path.write_text(SHORT)
    return path


@pytest.fixture
def moving(lab: ServedLab, until: Until) -> Callable[[], None]:
    """Wait until a run has moved circuits and is in the midst of the next move."""

    def wait() -> None:
        for plan in (STRAIGHT, CROSSED, STRAIGHT, CROSSED):
            until(lambda plan=plan: lab.switch.circuits() == plan | FOREIGN)  # type: ignore[misc]

    return wait


def found(lab: ServedLab) -> list[list[str]]:
    """Return the saved circuits of every state that is on disk."""
    files = (lab.folder / "state").glob("*.found.json")
    return [sorted(json.loads(file.read_text())["found"]) for file in files]


def check_left_as_found(lab: ServedLab) -> None:
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert found(lab) == []


def test_after_a_run(lab: ServedLab, begin: Start) -> None:
    lab.describe(limit="{max: 10 s}")
    run = begin(*BETWEEN, "--samples", 3)
    ended = run.end()
    assert ended.code == 0, ended.output
    assert "1 passed" in ended.output
    assert lab.login[1] not in ended.output
    (journal,) = ended.results.glob("runs/*/journal.jsonl")
    assert lab.login[1] not in journal.read_text()
    (context,) = (json.loads(line) for line in journal.read_text().splitlines()[1:2])
    assert context["simulated"] is True
    check_left_as_found(lab)


def test_after_a_failure_that_ends_the_run(lab: ServedLab, begin: Start) -> None:
    lab.describe(limit="{max: 1 us}")
    ended = begin(*BETWEEN, "--samples", 2, "-x", "--tb=line").end()
    assert ended.code == 1, ended.output
    assert "reconfiguration.carrier_up max <= 1 µs: 2 of 2 samples exceed" in ended.output
    check_left_as_found(lab)


def test_after_a_termination_and_repeated_signals(
    lab: ServedLab, begin: Start, endless: Path, moving: Callable[[], None], until: Until
) -> None:
    """Terminated, and then Ctrl-C again and again while the switch is put back."""
    run = begin(endless)
    moving()
    run.signal(signal.SIGTERM)
    journal = next(run.results.glob("runs/*/journal.jsonl"))
    until(lambda: '{"end"' in journal.read_text()[-1000:])
    while found(lab) and run.process.poll() is None:
        run.signal(signal.SIGINT)
        run.signal(signal.SIGHUP)
        lab.clock.sleep(5_000_000)
    ended = run.end()
    assert ended.code == 2, ended.output
    check_left_as_found(lab)


def test_after_a_kill_the_next_run_puts_back_what_was_found(
    lab: ServedLab, begin: Start, endless: Path, short: Path, moving: Callable[[], None]
) -> None:
    killed = begin(endless)
    moving()
    assert found(lab) == [sorted(map(str, LEFT))]
    killed.signal(signal.SIGKILL)
    assert killed.end().code == -signal.SIGKILL
    assert lab.switch.circuits() != LEFT | FOREIGN
    assert found(lab) == [sorted(map(str, LEFT))]
    ended = begin(short).end()
    assert ended.code == 0, ended.output
    check_left_as_found(lab)


def test_after_a_kill_the_command_puts_back_what_was_found(
    lab: ServedLab,
    begin: Start,
    endless: Path,
    moving: Callable[[], None],
    restore: Callable[..., Result],
) -> None:
    killed = begin(endless)
    moving()
    killed.signal(signal.SIGKILL)
    killed.end()
    ended = restore("--json")
    assert ended.exit_code == 0, ended.stderr
    (restored,) = json.loads(ended.stdout)
    assert restored.pop("removed")
    assert restored == {"switch": "ocs", "circuits": sorted(map(str, LEFT))}
    check_left_as_found(lab)


@pytest.mark.long
def test_a_second_run_is_refused_with_the_owner_of_the_lease(
    lab: ServedLab, begin: Start, endless: Path, short: Path, moving: Callable[[], None]
) -> None:
    first = begin(endless)
    moving()
    second = begin(short)
    refused = second.end()
    assert refused.code == 3, refused.output
    assert "ocs (tl1://" in refused.output
    assert " is in use by " in refused.output
    assert f"process {first.process.pid} on " in refused.output
    assert refused.rows == []
    assert first.process.poll() is None
    first.signal(signal.SIGINT)
    assert first.end().code == 2
    check_left_as_found(lab)


@pytest.mark.long
def test_another_account_and_another_name_are_refused_too(
    lab: ServedLab,
    begin: Start,
    start: Start,
    endless: Path,
    short: Path,
    moving: Callable[[], None],
) -> None:
    """Another home, and a copy of the file with another name, as two colleagues have."""
    first = begin(endless)
    moving()
    copy = lab.folder / "mine.yaml"
    copy.write_text(lab.file.read_text().replace("name: lab", "name: mine"))
    home = {**lab.environment, "XDG_STATE_HOME": str(lab.folder / "home" / "state")}
    refused = start(short, "--testbed", copy, "--instruments", "hardware", environment=home).end()
    assert refused.code == 3, refused.output
    assert " is in use by " in refused.output
    assert first.process.poll() is None
    first.signal(signal.SIGINT)
    assert first.end().code == 2
    check_left_as_found(lab)


@pytest.mark.long
def test_circuits_made_by_hand_after_a_kill_stop_the_next_run(
    lab: ServedLab, begin: Start, endless: Path, short: Path, moving: Callable[[], None]
) -> None:
    killed = begin(endless)
    moving()
    killed.signal(signal.SIGKILL)
    killed.end()
    by_hand = frozenset({Circuit(1, 10), Circuit(4, 11)}) | FOREIGN
    set_circuits(lab.switch, by_hand)
    ended = begin(short).end()
    assert ended.code == 3, ended.output
    assert "1>10, 4>11 made by somebody else" in ended.output
    assert "--forget keeps what is there now" in ended.output
    assert lab.switch.circuits() == by_hand
    assert found(lab) == [sorted(map(str, LEFT))]


def test_a_switch_that_stays_silent_ends_the_run_loudly(
    lab: ServedLab, start: Start, tmp_path: Path, restore: Callable[..., Result]
) -> None:
    """An exit status of its own, what to do, and an event."""
    path = tmp_path / "test_dies.py"
    path.write_text(
        "from lightrig.harness.bench import fabric\n"
        "from lightrig.harness.bench import restoring\n"
        "from lightrig.instruments.core.errors import NoReplyError\n"
        "def test_dies(fabric, transition, monkeypatch):\n"
        "    restoring.RESTORE_TIME = 1_000_000_000\n"
        "    fabric.apply(transition.after)\n"
        "    switch = fabric.bench.switches['ocs']\n"
        "    def silent(*_):\n"
        "        raise NoReplyError('ocs', 'did not answer within 5 s')\n"
        "    switch.change = silent\n"
    )
    set_circuits(lab.switch, LEFT | FOREIGN)
    events = tmp_path / "events.jsonl"
    hardware = ("--testbed", lab.file, "--instruments", "hardware", "--json", events)
    ended = start(path, *hardware, environment=lab.environment).end()
    assert ended.code == 6, ended.output
    assert "1 passed" in ended.output
    assert f"NOT as found: ocs; run `lightrig restore {lab.file}`" in ended.output
    assert "not restored yet, tried for 1 s more: ocs did not answer" in ended.output
    assert "Traceback" not in ended.output
    written = [json.loads(line) for line in events.read_text().splitlines()]
    (event,) = [each for each in written if each["event"] == "not_restored"]
    assert event["problem"].startswith("NOT as found: ocs")
    assert written[-1]["exit"] == 6
    assert restore().exit_code == 0
    check_left_as_found(lab)
