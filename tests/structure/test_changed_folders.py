"""Folders whose long tests a merge runs: those of the documentation and of changed packages."""

import subprocess

import pytest
from changed_folders import changed_files, folders_of


def git(folder, *arguments, date=None):
    environment = {
        "PATH": "/usr/bin:/bin", "HOME": str(folder), "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@host.invalid",
        "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@host.invalid",
        **({"GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date} if date else {}),
    }  # fmt: skip
    command = ["git", "-C", str(folder), *arguments]
    subprocess.run(command, check=True, env=environment, capture_output=True)


def commit(folder, files, date=None):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    git(folder, "add", "--all")
    git(folder, "commit", "--message", "Change", date=date)


@pytest.fixture
def checkout(tmp_path):
    git(tmp_path, "init")
    for folder in ("docs", "measure", "switches", "systems/railx", "report/nights", "tools"):
        name = "recorder" if folder == "tools" else "test_one"  # no tests in that one
        commit(tmp_path, {f"tests/{folder}/{name}.py": "1"}, "2026-03-14T02:15:00Z")
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "folders"),
    [
        ({"harness/measure/light.py": "2"}, ["docs", "measure"]),
        ({"instruments/switches/polatis/tl1.py": "2"}, ["docs", "switches"]),
        ({"harness/systems/railx/planning/physical.py": "2"}, ["docs", "systems"]),
        ({"tests/report/nights/test_one.py": "2", "suites/tools/a.py": "2"}, ["docs", "report"]),
        ({"README.md": "2", "measure.py": "2"}, ["docs"]),
    ],
)  # fmt: skip
def test_long_tests_are_those_of_changed_packages(checkout, changed, folders):
    commit(checkout, changed)
    assert folders_of(changed_files(None, checkout), checkout / "tests") == folders


def test_all_commits_of_a_day_count_and_older_ones_do_not(checkout):
    commit(checkout, {"harness/report/page.py": "2"}, "2026-03-15T02:15:00Z")
    commit(checkout, {"harness/measure/light.py": "2"})
    commit(checkout, {"instruments/switches/tl1.py": "2"})
    tests = checkout / "tests"
    assert folders_of(changed_files(None, checkout), tests) == ["docs", "measure", "switches"]
    assert folders_of(changed_files("HEAD^", checkout), tests) == ["docs", "switches"]


def test_without_an_older_commit_all_files_count(tmp_path):
    git(tmp_path, "init")
    commit(tmp_path, {"tests/docs/test_a.py": "", "tests/wire/test_b.py": ""})
    assert folders_of(changed_files(None, tmp_path), tmp_path / "tests") == ["docs", "wire"]
