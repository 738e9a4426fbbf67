"""Tables of `doctor` and `serve`: nothing is cut on a narrow terminal or in a pipe."""

import importlib
import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.components import Components
from lightrig.harness.doctor import Findings

OPUS = Path(__file__).parents[2] / "testbeds" / "opus.yaml"
WIDTH = 80
NAME = "a-polarization-controller-with-a-name-that-its-rack-has-given-it-" * 2
FIX = f"see [its manual], and write {'identity:' * 12} into the testbed's file"
ADDRESS = f"tl1://[::1]:17000/{'port' * 25}"
LAB = """
name: lab
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", size: 4x4}}
"""


@pytest.fixture(params=["pipe", "terminal"])
def run(request, monkeypatch):
    """Run a command; return what it printed, without the line ends of a narrow terminal."""

    def run(*command):
        screen = io.StringIO()
        if request.param == "terminal":
            narrow = Console(file=screen, force_terminal=True, color_system=None, width=WIDTH)
            for module in ("terminal", "doctor", "serve"):
                owner = importlib.import_module(f"lightrig.harness.cli.{module}")
                monkeypatch.setattr(owner, "out", narrow)
        printed = CliRunner().invoke(application(), [*command]).stdout
        if request.param == "pipe":
            assert all(line == line.rstrip() for line in printed.splitlines())
            return printed
        rows = screen.getvalue().splitlines()
        assert any(len(row) > WIDTH / 2 for row in rows)
        return rows

    return run


def test_doctor_prints_names_and_fixes_whole(run, monkeypatch):
    findings = Findings(Components(None))
    findings.wrong(NAME, "identity", "it answered [none]", FIX)
    module = importlib.import_module("lightrig.harness.cli.doctor")
    monkeypatch.setattr(module, "examine", lambda *_, **__: findings)
    printed = run("doctor", str(OPUS))
    _is_whole(printed, NAME, FIX, "it answered [none]")
    if isinstance(printed, str):
        (line,) = (line for line in printed.splitlines() if NAME in line)
        assert line.split()[:5] == ["wrong", NAME, "identity", "it", "answered"]
        assert printed.endswith("1 problem in the lab, 1 checks\n")


def test_serve_prints_names_and_addresses_whole(run, monkeypatch, tmp_path):
    service = SimpleNamespace(address=ADDRESS, login=("user", "secret"), known_hosts=None)
    lab = SimpleNamespace(
        services={NAME: service}, further_wires={}, lacking=(), failure="over", close=lambda: None,
        interfaces_pid=None,
    )  # fmt: skip
    module = importlib.import_module("lightrig.harness.cli.serve")
    monkeypatch.setattr("lightrig.harness.cli.served_lab.ServedLab", lambda *_: lab)
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.01)
    monkeypatch.setattr(module, "stated_logins", lambda _: {NAME: ("user", "secret")})
    place = tmp_path / ("a checkout whose path is longer than a terminal is wide " * 2)
    place.mkdir()
    (place / "lab.yaml").write_text(LAB)
    file = place / "lab.yaml"
    end = "simulated, in real time; Ctrl-C ends it"
    named = f"login of {NAME}: as {file} names it"
    _is_whole(run("serve", str(file)), NAME, ADDRESS, f"{file}: {end}", named)


def _is_whole(printed: str | list[str], *texts: str) -> None:
    """Check for each text; a terminal has it in parts, below each other."""
    if isinstance(printed, str):
        assert all(text in printed for text in texts)
        return
    assert not any("…" in row for row in printed)
    assert all(len(row) <= WIDTH for row in printed)
    for text in texts:
        left = "".join(text.split())
        for row in printed:
            for length in range(len(left), 0, -1):
                if left[:length] in "".join(row.split()) and length > 1:
                    left = left[length:]
                    break
        assert not left, f"{left} is missing of {text}"
