"""A terminated run ends with its exit status, however often and however late it is signalled."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runs.running import ROOT

from lightrig.harness.plugin.ending import EndShield

Start = Callable[..., Any]

# Each hook below comes after the first signal; the last one when Python itself ends.
SIGNALS_AT_EVERY_STAGE = """
import atexit, os, pytest, signal, sys
from lightrig.harness.run import ObservedRun

close = ObservedRun.close

def closing(self, *summary):
    print("data set begun")
    close(self, *summary)

ObservedRun.close = closing

def again():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)

@pytest.hookimpl(tryfirst=True)
def pytest_keyboard_interrupt(): again()

@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(): again()

def pytest_configure(config):
    print("hypothesis plugin:", "_hypothesis_pytestplugin" in sys.modules)

@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(): again()

@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure():
    print("hypothesis loaded:", "hypothesis" in sys.modules)
    again()
    atexit.register(again)

@pytest.fixture
def interrupted():
    yield
    again()
    print("taken down")
"""


@pytest.mark.long
def test_repeated_signals_do_not_change_the_exit_status(start: Start, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(SIGNALS_AT_EVERY_STAGE)
    (tmp_path / "test_it.py").write_text(
        "import os, signal\ndef test_it(bench, interrupted): os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    testbed = ROOT / "testbeds" / "opus.yaml"
    with_hypothesis = (
        "-p",
        "_hypothesis_pytestplugin",
    )  # as where it is installed and not left out
    options = ("--testbed", testbed, "--instruments", "simulated", "-s", *with_hypothesis)
    ended = start(tmp_path, *options, fresh=True).end()
    assert ended.code == 2, ended.output
    assert "terminated by SIGTERM" in ended.output
    # Whoever has terminated it may kill it soon: the lab comes before the data set, and nothing
    # is loaded that the run has not used.
    assert 0 <= ended.output.find("taken down") < ended.output.find("data set begun")
    assert "hypothesis plugin: True" in ended.output
    assert "hypothesis loaded: False" in ended.output
    assert "journal  " in ended.output


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restore the signal handlers of this process."""
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    found = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in found.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("exits", [True, False], ids=["pytest", "a program"])
def test_handlers_are_restored_for_programs_that_go_on(
    monkeypatch: pytest.MonkeyPatch, handlers: None, exits: bool
) -> None:
    shield = EndShield()
    before = signal.getsignal(signal.SIGINT)

    def run() -> None:
        shield.begin()
        shield.begin()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        shield.end()

    # Whether pytest is the whole process shows in who has called it.
    monkeypatch.setattr(pytest, "console_main", run if exits else lambda: None)
    run()
    assert (signal.getsignal(signal.SIGINT) is before) is not exits
