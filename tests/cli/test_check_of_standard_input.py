"""`lightrig check -`: a testbed that another program writes."""

from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.systems.acos.generator import render_hall

ROOT = Path(__file__).parents[2]


def check(content: str | bytes, *options: str) -> Result:
    return CliRunner().invoke(application("check"), ["check", "-", *options], input=content)


def test_it_is_checked_as_the_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that it names are looked for in the current folder: opus.yaml names a map."""
    monkeypatch.chdir(ROOT / "testbeds")
    of_file = CliRunner().invoke(application("check"), ["check", "opus.yaml"])
    piped = check(Path("opus.yaml").read_bytes())
    assert (piped.exit_code, piped.stderr) == (0, of_file.stderr)
    assert piped.stdout == of_file.stdout.replace("opus.yaml:", "-:", 1)


def test_errors_have_their_places() -> None:
    ended = check("name: mine\nswitch: {}\n")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "-:2:1: found the unknown key 'switch'; did you mean 'switches'?" in ended.stderr
    assert check("name: a\n", "--json").stdout.startswith("[")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "-:1:1: is empty"),
        (b"name: \xff\n", "-:1:7: found the byte 0xff"),
        (render_hall(1024).encode(), "-:6:1: describes a fabric by its sizes, which are read from"),
        ((4 << 20) + 1, "-:1:1: cannot be read: is longer than 4 MiB"),
    ],
    ids=["empty", "no UTF-8", "sizes", "long"],
)
def test_what_is_no_testbed_is_one_sentence(content: bytes | int, sentence: str) -> None:
    """A number is that of bytes of a comment."""
    ended = check(b"#" * content if isinstance(content, int) else content)
    assert ended.exit_code == 2
    assert ended.stderr.startswith(sentence)
    assert len(ended.stderr.splitlines()) == 1
