"""`lightrig doctor` in the process of the test: lines of findings, statuses, and consent."""

import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.served_lab import describe
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.components import Components
from lightrig.harness.doctor import Findings


def module_of(name: str) -> Any:
    return importlib.import_module(f"lightrig.harness.cli.{name}")


def run(*arguments: object, **given: Any) -> Any:
    return CliRunner().invoke(application(str(arguments[0])), list(map(str, arguments)), **given)


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run the command on findings; note what is asked, and on which terminal."""
    command = module_of("doctor")
    asked: list[Any] = []
    findings = Findings(Components(None))

    def examine(testbed: Any, **options: Any) -> Findings:
        asked.append((testbed.name, options))
        return findings

    monkeypatch.setattr(command, "examine", examine)
    file = describe(tmp_path)

    def call(*options: object) -> Any:
        asked.clear()
        return run("doctor", file, *options)

    call.asked, call.findings, call.command = asked, findings, command  # type: ignore[attr-defined]
    return call


def test_findings_have_a_line_each_and_decide_the_status(doctor: Any) -> None:
    found = doctor.findings
    found.ok("ocs", "identity", "Polatis, serial 7")
    found.note("ocs", "clock", "5 s late", "set it")
    done = doctor("--simulated", "--seed", 7)
    assert doctor.asked == [("lab", {"simulated": True, "seed": 7, "read_only": False})]
    assert (done.exit_code, [line.split() for line in done.stdout.splitlines()]) == (
        0,
        [
            ["ok", "ocs", "identity", "Polatis,", "serial", "7"],
            ["note", "ocs", "clock", "5", "s", "late"],
            ["try", "set", "it"],
            ["no", "problems", "in", "the", "simulated", "lab,", "2", "checks"],
        ],
    )
    found.wrong("laser", "power", "-7 dBm", "clean it")
    done = doctor("--read-only", "--only-problems")
    assert doctor.asked == [("lab", {"simulated": False, "seed": 0, "read_only": True})]
    assert done.exit_code == 1
    assert done.stdout.splitlines()[0].split() == ["wrong", "laser", "power", "-7", "dBm"]
    assert done.stdout.splitlines()[-1] == "1 problem in the lab, 3 checks"
    found.wrong("laser", "power", "-9 dBm", "clean it")
    assert doctor("--wrong", "--look").stdout.endswith("2 problems in the lab, 4 checks\n")
    first, *_, last = json.loads(doctor("--json", "--simulated").stdout)
    assert last["finding"]["components"] == [{"kind": "other", "name": "laser"}]
    assert first == {
        "subject": "ocs", "check": "identity", "grade": "ok", "text": "Polatis, serial 7",
        "fix": first["fix"], "simulated": True, "finding": None,
    }  # fmt: skip


def test_a_lab_of_which_nothing_answers_is_an_error_of_the_lab(doctor: Any) -> None:
    doctor.findings.wrong("ocs", "address", "refused", "")
    assert doctor("--read-only").exit_code == 3


@pytest.mark.parametrize(
    ("stdin", "stderr", "asks"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_question_needs_a_terminal_that_reads_and_writes(
    monkeypatch: pytest.MonkeyPatch, stdin: bool, stderr: bool, asks: bool
) -> None:
    command = module_of("doctor")
    streams = {
        "stdin": SimpleNamespace(isatty=lambda: stdin),
        "stderr": SimpleNamespace(isatty=lambda: stderr),
    }
    monkeypatch.setattr(command, "sys", SimpleNamespace(**streams))
    assert command.is_on_terminal() is asks


@pytest.mark.parametrize(
    ("options", "terminal", "answer", "read_only", "questions"),
    [
        ((), True, True, False, 1),
        ((), True, False, True, 1),
        ((), False, True, True, 0),
        (("--yes",), False, False, False, 0),
        (("--simulated",), False, False, False, 0),
        (("--read-only",), True, True, True, 0),
    ],
)
def test_what_moves_circuits_is_allowed_by_a_person(
    doctor: Any, monkeypatch: pytest.MonkeyPatch, options: Any, terminal: bool, answer: bool,
    read_only: bool, questions: int,
) -> None:  # fmt: skip
    texts: list[str] = []
    monkeypatch.setattr(doctor.command, "is_on_terminal", lambda: terminal)
    monkeypatch.setattr(
        doctor.command.typer, "confirm", lambda text, err: texts.append(text) or answer
    )
    doctor(*options)
    assert [one["read_only"] for _, one in doctor.asked] == [read_only]
    assert len(texts) == questions
    if texts:
        assert "circuits of ocs are moved, and the lasers of 4 NIC ports" in texts[0]


def test_reading_and_allowing_changes_exclude_each_other(doctor: Any) -> None:
    assert (doctor("--read-only", "--yes").exit_code, doctor.asked) == (2, [])
