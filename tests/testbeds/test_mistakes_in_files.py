"""Of the mistakes that people make in testbed files, `lightrig check` reports nearly all in place.

mistakes/mistakes.yaml was written before the checks that report them.
"""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from lightrig.harness.cli.app import application

HERE = Path(__file__).parent / "mistakes"
MISTAKES = YAML(typ="safe").load(HERE / "mistakes.yaml")
BASES = ("lab", "rack", "bench")
LOCATED_OF_97 = 95


def checked(path, monkeypatch):
    monkeypatch.setenv("OCS_LOGIN", "user:word")
    monkeypatch.setenv("SERVER_LOGIN", "user:word")
    result = CliRunner().invoke(application("check"), ["check", str(path)])
    return result.exit_code, result.output


def reported_lines(path, output):
    """Return the numbers of the lines of the file that `output` reports something in."""
    return {int(line) for line in re.findall(rf"{re.escape(str(path))}:(\d+):\d+: ", output)}


def edited(mistake):
    text = (HERE / f"{mistake['base']}.yaml").read_text(encoding="utf-8")
    assert mistake["find"] in text, mistake["id"]
    return text.replace(mistake["find"], mistake["write"], 1)


def expected_lines(mistake, text):
    texts = [mistake["at"]] if isinstance(mistake["at"], str) else mistake["at"]
    return {
        number
        for number, line in enumerate(text.splitlines(keepends=True), 1)
        if any(each in line for each in texts)
    }


@pytest.mark.parametrize("base", BASES)
def test_the_files_themselves_are_right(base, monkeypatch):
    path = HERE / f"{base}.yaml"
    code, output = checked(path, monkeypatch)
    assert code == 0, output
    assert not reported_lines(path, output), output


def test_mistakes_are_located(tmp_path, monkeypatch):
    missed, silent = [], []
    for mistake in MISTAKES:
        path = tmp_path / f"{mistake['id']}.yaml"
        text = edited(mistake)
        path.write_text(text, encoding="utf-8")
        expected = expected_lines(mistake, text)
        assert expected, mistake["id"]
        _, output = checked(path, monkeypatch)
        reported = reported_lines(path, output)
        if not reported & expected:
            missed.append(mistake["id"])
        if not reported and mistake.get("circuits"):
            silent.append(mistake["id"])
    print(f"{len(MISTAKES) - len(missed)} of {len(MISTAKES)} located; missed: {missed}")
    assert not silent
    assert len(MISTAKES) - len(missed) >= LOCATED_OF_97
