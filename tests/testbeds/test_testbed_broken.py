"""Every file in broken/ has one mistake; its first line says where it is and what is said of it."""

import re
from pathlib import Path

import pytest

from lightrig.harness.quantities.registry import names_in_files
from lightrig.testbeds import TestbedError, load

HERE = Path(__file__).parent
BROKEN = sorted((HERE / "broken").glob("*.yaml"))


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_mistake_is_found_where_it_is(path):
    expected = re.fullmatch(
        r"# expect (\d+):(\d+) (.+)", path.read_text(encoding="utf-8").split("\n")[0]
    )
    assert expected, "the first line says what is expected"
    line, column, fragment = int(expected[1]), int(expected[2]), expected[3]
    with pytest.raises(TestbedError) as caught:
        load(path, quantities=names_in_files())
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (line, column), str(problem)
    assert fragment in problem.message
    assert problem.file == str(path)
    assert str(problem) == f"{path}:{line}:{column}: {problem.message}"


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_no_secret_is_repeated(path):
    with pytest.raises(TestbedError) as caught:
        load(path, quantities=names_in_files())
    assert "hunter2" not in str(caught.value)
    assert "8125551" not in str(caught.value)
