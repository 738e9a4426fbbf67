"""The suite of collectives, run as a user runs it, where there is nothing to run them with."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runs.running import NO_PAGE, ROOT

from lightrig.instruments.namespaces import namespaces as kernel

Start = Callable[..., Any]


@pytest.mark.long
def test_without_pytorch_and_mpi_collectives_are_skipped_with_both_reasons(
    start: Start, tmp_path: Path
) -> None:
    if reason := kernel.available():
        pytest.skip(reason)
    (tmp_path / "torch.py").write_text("raise ImportError('not in this test')")
    (tmp_path / "mpi4py.py").write_text("raise ImportError('neither is this')")
    rings = ("--testbed", ROOT / "testbeds" / "rings4.yaml", "--instruments", "simulated")
    ended = start(
        *("suites/jobs/test_collective.py::test_bandwidth[rings4/ring-all_reduce]", *rings),
        *("-rs", *NO_PAGE),
        environment={**os.environ, "PYTHONPATH": str(tmp_path)},
    ).end()
    assert ended.code == 0, ended.output
    assert "has no PyTorch with Gloo" in ended.output
    assert "not in this test" in ended.output
    assert "neither is this" in ended.output
    assert "1 skipped" in ended.output
