"""A journal's ingredients, plain ones."""

import itertools

import pytest

from lightrig.harness.record import Context, Journal, Row

HEADER = {"run": "r1", "night": "2026-03-14", "seed": 7}


@pytest.fixture
def context():
    return Context("opus", "test_pairs", ("Polatis 21877",), True, {"temperature_c": 23.5})


@pytest.fixture
def row():
    return Row("ocs 1->17", "outage", 41_440_000, 41_000_000, 42_000_000, "ns", 5, {"moved": 4})


@pytest.fixture
def fresh(tmp_path):
    """Journals, each at a path of its own."""
    numbers = itertools.count()
    return lambda **header: Journal(tmp_path / f"{next(numbers)}.jsonl", {**HEADER, **header})
