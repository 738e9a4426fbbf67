"""Workers store their shares of the test files, which pytest then loads."""

import importlib.util
import sys
from pathlib import Path

import preloaded
import pytest
import shared_rewriting

NAMES = ("test_first", "test_second", "test_third", "test_wrong")


def stored(folder: Path) -> dict[str, int]:
    """Return the inodes of stored files, by name."""
    cache = Path(importlib.util.cache_from_source(str(folder / "test_first.py"))).parent
    return {file.name.partition(".")[0]: file.stat().st_ino for file in cache.glob("*-pytest-*")}


def test_each_worker_stores_its_share_and_pytest_loads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    folder = tmp_path / "tests"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text("value = 4\n\ndef test_it(): assert value == 5\n")
    (folder / "test_third.py").write_text("raise RuntimeError('executed')\n")
    (folder / "test_wrong.py").write_text("def\n")
    hook = pytestconfig.pluginmanager.rewrite_hook
    arguments = [f"{folder}/test_first.py::test_it", str(folder)]
    shared_rewriting.store_share(hook, arguments, 0, 2)
    assert set(stored(folder)) == {"test_first", "test_third"}
    shared_rewriting.store_share(hook, arguments, 0, 1)
    before = stored(folder)
    assert set(before) == {"test_first", "test_second", "test_third"}
    ended = preloaded.run(
        ["pytest", "-p", "no:cacheprovider", "--continue-on-collection-errors", folder], cwd=folder
    )
    assert "assert 4 == 5" in ended.stdout
    assert "executed" in ended.stdout
    assert stored(folder) == before
