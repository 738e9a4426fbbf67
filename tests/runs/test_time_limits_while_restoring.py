"""Time limits of pytest-timeout, other alarms, and errors, while a lab is restored."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.served_lab import FOREIGN, LEFT, ServedLab, describe, set_circuits
from runs.running import started
from typer.testing import Result

Start = Callable[..., Any]

# At each restoring of the switches something happens first.
SUITE = """
import signal, pytest
from lightrig.harness.bench import Fabric

whole = Fabric.restore

def restore(self, **given):
    first()
    return whole(self, **given)

Fabric.restore = restore

def out_of_time():
    # The rest of the test's time passes, if it does here.
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.raise_signal(signal.SIGALRM)

def alarm():
    signal.raise_signal(signal.SIGALRM)

def cut():
    raise KeyError("no such switch")

def ring(number, frame):
    pytest.fail("the alarm rings")
"""
TIMEOUT = """
first = out_of_time

@pytest.mark.timeout(400)
def test_last(fabric, transition): fabric.apply(transition.after)
"""
ALARM = """
first = alarm

@pytest.mark.timeout(0)
def test_last(fabric, transition):
    fabric.apply(transition.after)
    signal.signal(signal.SIGALRM, ring)
"""
CUT = """
first = cut

def test_last(fabric, transition): fabric.apply(transition.after)
"""
TWO_TESTBEDS = """
first = lambda: None

@pytest.mark.timeout(400)
def test_each(fabric, testbed):
    if testbed.name == "lab-two":
        out_of_time()
"""


@pytest.fixture
def begin(lab: ServedLab, start: Start, tmp_path: Path) -> Callable[[str], Any]:
    """Start a suite in the lab, which people had left with some circuits."""
    set_circuits(lab.switch, LEFT | FOREIGN)
    path = tmp_path / "test_last.py"

    def run(text: str) -> Any:
        path.write_text(SUITE + text)
        hardware = ("--testbed", lab.file, "--instruments", "hardware")
        return start(path, *hardware, environment=lab.environment)

    return run


def test_a_test_s_time_does_not_run_out_while_the_lab_is_restored(
    lab: ServedLab, begin: Start
) -> None:
    ended = begin(TIMEOUT).end()
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert ended.code == 0, ended.output


def test_another_alarm_takes_effect_once_the_lab_is_restored(lab: ServedLab, begin: Start) -> None:
    ended = begin(ALARM).end()
    assert lab.switch.circuits() == LEFT | FOREIGN
    assert ended.code == 1, ended.output
    assert "the alarm rings" in ended.output


def test_restoring_that_is_cut_is_reported_and_the_lab_can_be_restored(
    lab: ServedLab, begin: Start, restore: Callable[..., Result]
) -> None:
    ended = begin(CUT).end()
    # docs/how-to/when-something-fails.md: 6 where an instrument is not as it was found.
    assert ended.code == 6, ended.output
    assert f"NOT as found: restoring was cut; run `lightrig restore {lab.file}`" in ended.output
    assert re.search(r"KeyError: 'no such switch' \(\S+test_last.py:\d+\)", ended.output)
    restored = restore()
    assert restored.exit_code == 0, restored.stderr
    assert lab.switch.circuits() == LEFT | FOREIGN


def test_a_test_has_its_time_limit_after_another_testbed_was_restored(tmp_path: Path) -> None:
    first = describe(tmp_path)
    second = tmp_path / "two.yaml"
    second.write_text(first.read_text().replace("name: lab", "name: lab-two", 1))
    path = tmp_path / "test_each.py"
    path.write_text(SUITE + TWO_TESTBEDS)
    given = ("--testbed", first, "--testbed", second, "--instruments", "simulated")
    with started((path, *given), tmp_path / "results") as run:
        ended = run.end()
    assert ended.code == 1, ended.output
    assert "1 failed, 1 passed" in ended.output
    assert re.search(
        r"test_each\[lab-two\] - Timeout \(>400.0s\) from pytest-timeout", ended.output
    )
