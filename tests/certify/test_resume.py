"""A certification that was killed goes on: verdicts and values as of one that was not."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from certify_labs import lab
from switch_defects import limit_profile
from typer.testing import CliRunner, Result

from lightrig.harness.certify import certification
from lightrig.harness.certify.clauses import CLAUSES
from lightrig.harness.certify.sheet import Sheet
from lightrig.harness.cli.app import application

PROGRAM = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")


def arguments(folder: Path, *further: str) -> list[str]:
    (folder / "lab.yaml").write_text(lab())
    options = ("--instruments", "simulated", "--seed", "3", "--out", str(folder))
    return ["certify", str(folder / "lab.yaml"), "ocs", *options, *further]


def certified(folder: Path, *further: str) -> Result:
    return CliRunner().invoke(application("certify"), arguments(folder, *further))


def measured(folder: Path) -> list[tuple[Any, ...]]:
    """Return number, verdict, reason and value of each clause of the sheet in a folder."""
    sheet = Sheet.model_validate_json((folder / "ocs.json").read_text())
    return [
        (c.requirement.number, c.verdict, c.reason, c.value, c.interval, c.n) for c in sheet.clauses
    ]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile with some clauses only."""
    limit_profile(monkeypatch, ("1.1", "1.2", "2.6", "3.1"))


@pytest.fixture
def whole(tmp_path: Path) -> list[tuple[Any, ...]]:
    """A run without an interruption."""
    folder = tmp_path / "whole"
    folder.mkdir()
    done = certified(folder)
    assert done.exit_code == 0, done.output
    assert not (folder / "ocs.progress.json").exists()
    return measured(folder)


class _Killed(BaseException):
    pass


def _fail(*_: object) -> None:
    raise _Killed


def interrupted(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Certify until the clause `code` is begun."""
    with monkeypatch.context() as patch:
        patch.setattr(certification, "CLAUSES", {**CLAUSES, code: _fail})
        with pytest.raises(_Killed):
            certified(folder)


@pytest.mark.usefixtures("few")
def test_what_was_interrupted_begins_again_and_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: list[tuple[Any, ...]]
) -> None:
    interrupted(tmp_path, monkeypatch, "acknowledged_light")
    left = json.loads((tmp_path / "ocs.progress.json").read_text())
    assert left["begun"] == "3.1"
    with monkeypatch.context() as patch:
        # A clause that has ended is not tried again.
        patch.setattr(certification, "CLAUSES", {**CLAUSES, "identity": _fail})
        done = certified(tmp_path, "--resume")
    assert done.exit_code == 0, done.output
    assert measured(tmp_path) == whole
    assert Sheet.model_validate_json((tmp_path / "ocs.json").read_text()).interrupted == ("3.1",)
    assert "Begun again after an interruption: 3.1" in (tmp_path / "ocs.html").read_text()


@pytest.mark.usefixtures("few")
def test_progress_of_another_certification_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path, monkeypatch, "identity")
    done = certified(tmp_path, "--resume", "--profile", "generic")
    assert (done.exit_code, "profile 'polatis', now 'generic'" in done.stderr) == (2, True)


@pytest.mark.usefixtures("few")
def test_without_a_progress_it_begins_anew(tmp_path: Path, whole: list[tuple[Any, ...]]) -> None:
    done = certified(tmp_path, "--resume")
    assert (done.exit_code, "nothing to resume" in done.stderr) == (0, True), done.output
    assert measured(tmp_path) == whole


@pytest.mark.long
def test_ten_kills_change_no_verdict_and_no_value(
    tmp_path: Path, whole: list[tuple[Any, ...]]
) -> None:
    """The process is killed at ten moments, each in another clause where it takes long enough."""
    killed = 0
    progress = tmp_path / "ocs.progress.json"
    numbers = [number for number, verdict, *_ in whole if verdict == "pass"]
    for number in numbers[1:11]:
        further = ("--resume",) if progress.exists() else ()
        process = subprocess.Popen(
            [*PROGRAM, *arguments(tmp_path, *further)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        while process.poll() is None:
            begun = (
                re.search(r'"begun": "([^"]*)"', progress.read_text())
                if progress.exists()
                else None
            )
            if begun is not None and begun[1] == number:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        killed += process.wait() == -signal.SIGKILL
        process.stderr.close() if process.stderr else None
    assert killed == 10
    done = certified(tmp_path, "--resume")
    assert done.exit_code == 0, done.output
    assert measured(tmp_path) == whole
