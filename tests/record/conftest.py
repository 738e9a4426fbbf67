"""A journal's ingredients, plain ones, and results with a place to bring them to."""

import itertools
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from record.transfers import NIGHTS, recorded

from lightrig.harness.record import Context, Journal, Row, rows_check, transfer

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
def inspector() -> Iterator[rows_check.Inspector]:
    """A process that reads files without a digest, which takes 0.3 s of the processor to start."""
    started = rows_check.Inspector()
    yield started
    started.close()


@pytest.fixture
def shared_inspector(inspector: rows_check.Inspector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all readings of a file of tests ask one process, which outlives each of them."""

    class Shared(rows_check.Inspector):
        def __init__(self) -> None:
            self.problem = inspector.problem  # type: ignore[method-assign]

        def close(self) -> None:
            """Leave it to the readings that follow."""

    for module in (rows_check, transfer):
        monkeypatch.setattr(module, "Inspector", Shared)


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
