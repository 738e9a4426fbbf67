"""A lab served on loopback by this process."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.served_lab import ServedLab


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedLab]:
    with contextlib.closing(ServedLab(tmp_path)) as served:
        for name in ("HOME", "LIGHTRIG_STATE", "LAB_OCS", "LAB_SERVER"):
            monkeypatch.setenv(name, served.environment[name])
        yield served
