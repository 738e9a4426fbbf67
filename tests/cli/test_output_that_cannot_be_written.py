"""A full disk and a terminal of another encoding: one sentence or escaped text, no source lines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.served_lab import describe
from record.recorded import record

LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = describe(tmp_path)
    path.write_text(path.read_text().replace("name: lab", 'name: lab\nabout: "測定 bench"'))
    record(tmp_path / "results", "20260314-021500-a")
    return path


def commands(lab: Path) -> dict[str, tuple[str, ...]]:
    place = ("--results", str(lab.parent / "results"))
    return {
        "check": ("check", str(lab)),
        "list": ("results", "list", *place),
        "json": ("results", "list", "--json", *place),
    }


@pytest.mark.parametrize("command", ["check", "list", "json"])
def test_a_full_disk_is_one_sentence(lab: Path, command: str) -> None:
    arguments = commands(lab)[command]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*LIGHTRIG, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    sentence = f"lightrig {arguments[0]}: standard output: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (3, sentence)


def test_what_a_terminal_cannot_show_is_escaped(lab: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    ended = subprocess.run(
        [*LIGHTRIG, *commands(lab)["check"]], env=environment, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert rb"\u6e2c\u5b9a bench" in ended.stdout
