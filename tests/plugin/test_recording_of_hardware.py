"""Which recording a test is given: nothing sets events aside on hardware."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.bench.kernel_messages import KernelMessages
from lightrig.harness.plugin import fixtures
from lightrig.harness.plugin.keys import RUN


@pytest.mark.parametrize(
    ("world", "kind"), [(None, "Recording"), (SimpleNamespace(), "SimulatedRecording")]
)
def test_only_a_simulated_world_can_be_late(world: Any, kind: str) -> None:
    run = SimpleNamespace(recorder=lambda *_: [].extend, judged=None, note=None)
    run.judged = run.note = lambda *_: None
    node = SimpleNamespace(nodeid="suites/x.py::test_x", name="test_x", stash=pytest.Stash())
    testbed = SimpleNamespace(name="lab", limits={})
    clock: Any = SimpleNamespace(now=lambda: 0, virtual=False)
    kernel = KernelMessages({}, clock)
    make: Any = inspect.unwrap(fixtures.measure)  # type: ignore[arg-type]
    (found,) = make(
        SimpleNamespace(node=node),
        SimpleNamespace(stash={RUN: run}),
        SimpleNamespace(world=world, testbed=testbed, clock=clock, kernel=kernel),
        SimpleNamespace(begin=lambda: None, record=lambda recording: None),
    )
    assert type(found).__name__ == kind
