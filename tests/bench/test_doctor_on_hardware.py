"""`lightrig doctor` changes a lab on its wires only where a person or an option allows it."""

import json
import os
import pty
import select
import subprocess
import sys

import pytest
from served_lab import LEFT, PLACES, ServedLab, describe, set_circuits
from typer.testing import CliRunner

from lightrig.harness.cli import doctor
from lightrig.harness.cli.app import application

QUESTION = "circuits of ocs are moved, and the lasers of 4 NIC ports are switched off"


@pytest.fixture(autouse=True)
def _initial_circuits(lab: ServedLab) -> None:
    set_circuits(lab.switch, LEFT)


def is_changed(lab: ServedLab, since: int) -> bool:
    """Whether a circuit was moved or a laser switched off; each makes some port lose its light."""
    subjects = [f"ocs.{egress}" for egress in range(9, 13)]
    return any(
        lab.world.truth.first(each, "light", up=False, since=since) is not None for each in subjects
    )


def checks(output: str, name: str) -> list[str]:
    return [
        finding["text"]
        for finding in json.loads(output[output.index("[") :])
        if finding["check"] == name
    ]


@pytest.mark.parametrize(
    ("options", "answer", "changes"),
    [
        ([], None, False),
        pytest.param(["--yes"], None, True, marks=pytest.mark.long),
        pytest.param([], "n\n", False, marks=pytest.mark.long),
        ([], "y\n", True),
        (["--read-only"], "y\n", False),
    ],
    ids=["no terminal", "--yes", "no", "yes", "--read-only"],
)
def test_the_lab_is_changed_only_where_that_is_allowed(
    lab: ServedLab,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    answer: str | None,
    changes: bool,
) -> None:
    if answer is not None:
        monkeypatch.setattr(doctor, "is_on_terminal", lambda: True)
    since = lab.clock.now()
    # Without servers, whose clocks take five seconds to compare.
    file = describe(lab.folder, {**PLACES, "ocs": lab.places["ocs"]})
    command = ["doctor", str(file), "--json", *options]
    ended = CliRunner().invoke(application("doctor"), command, input=answer)
    assert (QUESTION in ended.stderr) == (answer is not None and not options)
    assert is_changed(lab, since) == changes
    untraced = [text for text in checks(ended.stdout, "light") if "not traced" in text]
    assert bool(untraced) != changes
    assert any("stale cross-connect: 1>9" in text for text in checks(ended.stdout, "circuits"))
    assert lab.switch.circuits() == LEFT


def test_read_only_and_yes_exclude_each_other(lab: ServedLab) -> None:
    command = ["doctor", str(lab.file), "--read-only", "--yes"]
    assert CliRunner().invoke(application("doctor"), command).exit_code == 2


@pytest.mark.long
def test_a_terminal_is_asked(lab: ServedLab) -> None:
    """On a pty, in a process; the test above has the shorter form."""
    ours, theirs = pty.openpty()
    program = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")
    environment = {**lab.environment, "COLUMNS": "400"}
    with subprocess.Popen(
        [*program, "doctor", str(lab.file)],
        env=environment, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        os.close(theirs)
        printed = ""
        while "[y/N]" not in printed:
            assert select.select([ours], [], [], 60)[0], printed
            printed += os.read(ours, 4096).decode()
        os.write(ours, b"n\n")
        assert process.stdout is not None
        assert "not traced" in process.stdout.read()
    os.close(ours)
    assert QUESTION in printed
