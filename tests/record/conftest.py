"""A journal's ingredients, plain ones, and results with a place to bring them to."""

import itertools
import shutil
import uuid
from pathlib import Path

import pytest
from record.transfers import NIGHTS, recorded

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


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("planted"), *NIGHTS)


@pytest.fixture
def ours(planted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(planted, tmp_path / "ours"))


@pytest.fixture
def store() -> str:
    """An object store of one's own, in memory."""
    return f"memory://{uuid.uuid4().hex}/lab"


@pytest.fixture(params=["object store", "folder"])
def target(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> str:
    return store if request.param == "object store" else str(tmp_path / "target")
