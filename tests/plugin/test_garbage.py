"""Objects that are excluded from garbage collection, and found again afterwards."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lightrig.harness.garbage import ALLOCATED, exclude_present, paused


class Node:
    """One of a pair that refer to each other: only a traversal finds that nobody else does."""

    other: "Node"


def pair() -> "weakref.ref[Node]":
    one, two = Node(), Node()
    one.other, two.other = two, one
    return weakref.ref(one)


def collected(reference: "weakref.ref[Node]") -> bool:
    gc.collect()
    return reference() is None


@pytest.fixture
def alone() -> Callable[[], Callable[[], None]]:
    """No session excludes objects here."""
    return partial(exclude_present, set())


def test_only_the_outer_exclusion_holds_garbage(alone: Callable[[], Callable[[], None]]) -> None:
    first = pair()
    include_first = alone()
    second = pair()
    include_second = alone()
    assert not collected(first)
    assert collected(second)
    include_second()
    include_second()
    assert not collected(first)
    include_first()
    assert collected(first)


def test_young_garbage_is_looked_for_less_often_meanwhile(
    alone: Callable[[], Callable[[], None]],
) -> None:
    thresholds = gc.get_threshold()
    gc.set_threshold(123, 4, 5)
    try:
        include = alone()
        assert gc.get_threshold() == (ALLOCATED, 4, 5)
        include()
        assert gc.get_threshold() == (123, 4, 5)
    finally:
        gc.set_threshold(*thresholds)


def test_a_pause_leaves_collection_as_it_was() -> None:
    was_enabled = gc.isenabled()
    gc.enable()
    try:
        with paused():
            with paused():
                assert not gc.isenabled()
            assert not gc.isenabled()
        assert gc.isenabled()
        with pytest.raises(KeyError), paused():
            raise KeyError
        assert gc.isenabled()
    finally:
        if not was_enabled:
            gc.disable()


CYCLE = """import os

class Node:
    def __del__(self, write=os.write):
        write(2, b"looked for garbage")

node = Node()
node.itself = node

def test_nothing(testbed):
    pass
"""
FOUND = "looked for garbage"


def end_of_run(folder: Path, *options: str) -> str:
    """Return what is written on stderr; Python ends as at a desk, not as a fork of a server."""
    file = folder / "test_cycle.py"
    file.write_text(CYCLE)
    testbed = Path(__file__).parents[2] / "testbeds" / "opus.yaml"
    command = [sys.executable, "-m", "pytest", file, "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, "--rootdir", folder, "--results", folder, "--testbed", testbed, *options],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert "1 " in run.stdout
    return run.stderr


def test_a_mere_collection_ends_without_looking_for_garbage(tmp_path: Path) -> None:
    assert FOUND not in end_of_run(tmp_path, "--collect-only")


@pytest.mark.long
def test_a_run_of_tests_ends_with_looking_for_garbage(tmp_path: Path) -> None:
    """Files of tests that are part of a cycle are written out by then."""
    assert FOUND in end_of_run(tmp_path)


@pytest.mark.long
def test_what_reports_uncollected_objects_is_satisfied(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import duckdb\n")
    assert FOUND in end_of_run(tmp_path, "--collect-only")
