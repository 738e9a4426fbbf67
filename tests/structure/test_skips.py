"""Skips and failures: which fail a run, and the lists of them that are run again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = "import pytest\npytest.importorskip('nonesuch', reason='no nonesuch here')\n"
CASES = """
import pytest

@pytest.mark.parametrize("case", ["a b", "two"])
def test_permitted(case):
    pytest.skip(f"no browser on this machine: {case}")

def test_runs():
    pass
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of `folder` with the options of this checkout, and Lightrig's plugin alone."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "lightrig.harness.plugin",
            "-p",
            "conftest",
            f"--rootdir={folder}",
            *options,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_skips_are_permitted_by_reason_and_listed(tmp_path: Path) -> None:
    (tmp_path / "allowed.txt").write_text("no browser on this machine\n")
    (tmp_path / "test_module.py").write_text(MODULE)
    (tmp_path / "test_cases.py").write_text(CASES)
    options = ("--allowed-skips", "allowed.txt", "--write-skipped", "lists/skipped.txt")
    both = run(tmp_path, *options)
    assert both.returncode == 1
    assert both.stdout.count("skip that is not permitted: no nonesuch here") == 1
    listed = (tmp_path / "lists" / "skipped.txt").read_text().splitlines()
    assert listed == [
        "test_cases.py::test_permitted[a b]", "test_cases.py::test_permitted[two]",
        "test_module.py",
    ]  # fmt: skip


UNDECIDED = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" and item.name == "test_too_few":
        report.outcome, report.inconclusive = "skipped", "12 more needed"
        report.longrepr = (__file__, 1, report.inconclusive)
    return report
"""
TWO = """
import pytest

def test_too_few():
    pass

def test_without_a_program():
    pytest.skip("no nonesuch here")
"""


def test_an_inconclusive_test_is_no_skip_that_needs_a_permission(tmp_path: Path) -> None:
    (tmp_path / "allowed.txt").write_text("no nonesuch here\n")
    (tmp_path / "undecided.py").write_text(UNDECIDED)
    (tmp_path / "test_two.py").write_text(TWO)
    options = ("--allowed-skips", "allowed.txt", "--write-skipped", "skipped.txt")
    ran = run(tmp_path, "-p", "undecided", *options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "not permitted" not in ran.stdout
    assert (tmp_path / "skipped.txt").read_text() == "test_two.py::test_without_a_program\n"


FAILURES = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_fails(number):
    assert not number

@pytest.fixture
def broken():
    yield
    raise OSError("not closed")

def test_ends_badly(broken):
    pass

def test_runs():
    pass
"""


@pytest.mark.parametrize(
    ("count", "arguments", "listed"),
    [
        (3, (), ["test_ends_badly", "test_fails[1]", "test_fails[2]"]),
        (6, (), []),
        (3, ("--allowed-skips", "allowed.txt"), []),
        (3, ("--maxfail", "1", "nonesuch.py"), []),
    ],
)
def test_a_few_failures_are_listed_where_nothing_else_is_wrong(
    tmp_path: Path, count: int, arguments: tuple[str, ...], listed: list[str]
) -> None:
    (tmp_path / "allowed.txt").write_text("no browser on this machine\n")
    (tmp_path / "test_failures.py").write_text(FAILURES.format(count=count))
    (tmp_path / "test_two.py").write_text(TWO)
    (tmp_path / "failed.txt").write_text("of an earlier run\n")
    ran = run(tmp_path, "--write-failed", "failed.txt", *arguments)
    assert ran.returncode != 0
    expected = "".join(f"test_failures.py::{each}\n" for each in listed)
    assert (tmp_path / "failed.txt").read_text() == expected


MAKEFILE = """
test:
	printf '$(LIST)' >$(WRITE_FAILED); exit $(STATUS)
test-named:
	grep -q '^two$$' $(NAMED) && [ '$(origin PARALLEL)' = 'command line' ]
"""


@pytest.mark.parametrize(
    ("listed", "status", "ends"), [("", 0, 0), ("", 1, 2), (r"two\n", 1, 0), (r"three\n", 1, 2)]
)
def test_ci_runs_a_few_failures_once_more(
    tmp_path: Path, listed: str, status: int, ends: int
) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / "build").mkdir()
    shutil.copy(ROOT / ".ci" / "again", tmp_path / ".ci")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    command = [str(tmp_path / ".ci" / "again"), "make", "test", f"LIST={listed}"]
    ran = subprocess.run(
        [*command, f"STATUS={status}"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == ends, ran.stdout + ran.stderr
    assert ("passed alone: two" in ran.stdout) == (listed == r"two\n")
