"""Which recording a test is given: nothing sets events aside on hardware."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.bench.kernel_messages import KernelMessages
from lightrig.harness.plugin import fixtures
from lightrig.harness.plugin.keys import RUN
from lightrig.harness.record import Row
from lightrig.harness.recorded_test import RecordedTest
from lightrig.instruments.clock import Span
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.capabilities import KernelLine, KernelReading


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
        SimpleNamespace(
            world=world,
            testbed=testbed,
            clock=clock,
            kernel=kernel,
            simulated=frozenset(),
            servers={},
            coverage=None,
        ),
        SimpleNamespace(begin=lambda: None, record=lambda recording: None),
    )
    assert type(found).__name__ == kind


class Server:
    """A server of hardware with one log."""

    boot = "boot-0"

    def __init__(self) -> None:
        self.waiting: list[str] = []

    def kernel_messages(self) -> KernelReading:
        lines = [KernelLine(text, 6, Span(7, 9)) for text in self.waiting]
        self.waiting.clear()
        return KernelReading(tuple(lines), 4 if lines else 0)


@pytest.mark.parametrize("simulated", [False, True])
def test_kernel_messages_of_hardware_are_counted(simulated: bool) -> None:
    """Two lines of the table among three, and four that were overwritten."""
    rows: list[Row] = []
    run: Any = SimpleNamespace(recorder=lambda *_: rows.extend, judged=print, note=print)
    server, clock = Server(), VirtualClock()
    servers: Any = {"server0": server}
    names = frozenset(["server0"] if simulated else [])
    bench: Any = SimpleNamespace(
        world=None, testbed=SimpleNamespace(name="lab", limits={}), clock=clock, servers=servers,
        simulated=names, kernel=KernelMessages(servers, clock), coverage=None,
    )  # fmt: skip
    counters: Any = SimpleNamespace(begin=lambda: None, record=lambda recording: None)
    test = RecordedTest(run, bench, "t.py::a", {}, print, counters, name="a")
    server.waiting = [
        "mlx5_core 0000:3b:00.0 ens3f0np0: Link down",
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "systemd[1]: Reached target Network is Online.",
    ]
    test.recording.record([Row("ocs.1", "optical_power", -3.0, None, None, "dBm", 0)])
    test.end()
    found = {(row.subject, row.quantity): row.value for row in rows[1:]}
    counts = {"total": 2, "link": 1, "gpu": 1, "lost": 4}
    expected = {("server0", f"kernel_messages.{kind}"): n for kind, n in counts.items()}
    assert found == ({} if simulated else expected)
