"""`make test-asserted` lists tests whose assertions never ran."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SUITE = """
import pytest
def test_one(): assert 1 < 2
@pytest.mark.parametrize("rows", [[], [3]])
def test_loop(rows):
    for row in rows: assert row == 3
def test_branch():
    if not SUITE: assert False
def test_error():
    with pytest.raises(ZeroDivisionError): 1 / 0
def test_failed(): assert 1 == 2
SUITE = True
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_tests_without_a_passed_assertion_are_listed(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    options = ["-p", "no:lightrig", "-p", "passed_assertions", "-n", workers]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-o", "enable_assertion_pass_hook=true"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = ended.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if "without a passed assertion" in line)
    assert "2 tests passed without a passed assertion" in lines[at]
    assert lines[at + 1 : at + 3] == [
        "test_suite.py::test_branch",
        "test_suite.py::test_loop[rows0]",
    ]
    assert ended.returncode == 1
