"""Objects that are excluded from garbage collection, and found again afterwards."""

import gc
import weakref
from collections.abc import Callable
from functools import partial

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
