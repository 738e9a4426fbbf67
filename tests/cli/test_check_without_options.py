"""`lightrig check FILE` runs without Typer, and ends as `lightrig check -- FILE` with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

OPUS = Path(__file__).parents[2] / "testbeds" / "opus.yaml"
SCRIPT = """
import signal
from lightrig.harness.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's is ignored
main()
"""
PROGRAM = [sys.executable, "-c", SCRIPT, "check"]
FORMS = pytest.mark.parametrize("form", [[], ["--"]], ids=["alone", "by-typer"])
PIPE_BYTES = 65_536
"""What a pipe of Linux holds (pipe(7))."""


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (OPUS.read_text().replace("opus/", f"{OPUS.parent}/opus/"), 0),
        ("name: bad\nswitches: {}\nfibres: []\n", 2),
        (None, 2),
    ],
    ids=["right", "wrong", "absent"],
)
def test_output_and_status_are_the_same(tmp_path: Path, content: str | None, status: int) -> None:
    file = tmp_path / "lab.yaml"
    if content is not None:
        file.write_text(content)
    alone, by_typer = (
        subprocess.run([*PROGRAM, *form, str(file)], capture_output=True, check=False)
        for form in ([], ["--"])
    )
    assert alone.returncode == by_typer.returncode == status
    assert (alone.stdout, alone.stderr) == (by_typer.stdout, by_typer.stderr)


@FORMS
def test_a_reader_that_has_left_ends_it_silently(form: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [*PROGRAM, *form, str(OPUS)], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, b"")


@FORMS
def test_an_interrupt_ends_it_with_the_usual_status(form: list[str]) -> None:
    """It is interrupted while it reads: more than a pipe holds was taken by then."""
    with subprocess.Popen(
        [*PROGRAM, *form, "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as started:
        assert started.stdin is not None
        started.stdin.write(b"#" * (PIPE_BYTES + 1))
        started.stdin.flush()
        started.send_signal(signal.SIGINT)
        _, error = started.communicate()  # ends a read that began after the signal had come
    assert (started.returncode, error) == (128 + signal.SIGINT, b"")
