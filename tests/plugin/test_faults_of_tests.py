"""Fault plans within a run: which test has which fault, when it begins and when it ends."""

import resource
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.plugin import faults
from lightrig.harness.plugin.faults import NOT_SIMULATED, Faults
from lightrig.harness.plugin.keys import BENCHES, FAULTS, RUN
from lightrig.testbeds.fault_plan import FaultPlanError, RunningFault

S = 10**9


class Clock:
    """A clock whose events run when the test says so."""

    def __init__(self) -> None:
        self.time, self.events = 100 * S, []

    def now(self) -> int:
        return self.time

    def schedule(self, at: int, name: str, action: Callable[[], None]) -> Any:
        event = SimpleNamespace(at=at, action=action, name=name)
        event.cancel = lambda: self.events.remove(event) if event in self.events else None
        self.events.append(event)
        return event

    def go_to(self, time: int) -> None:
        self.time = time
        for event in sorted(self.events, key=lambda each: each.at):
            if event.at <= time:
                self.events.remove(event)
                event.action()


class Lab:
    """A run with one simulated testbed, which notes the faults that are on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.clock, self.on, self.notes = Clock(), [], []
        self.plan: tuple[RunningFault, ...] = ()
        world = SimpleNamespace(services={"ocs": 1}, inject=self._inject)
        testbed = SimpleNamespace(name="bench")
        self.bench = SimpleNamespace(testbed=testbed, clock=self.clock, world=world)
        stash: Any = pytest.Stash()
        stash[BENCHES] = {"bench": self.bench}
        stash[RUN] = SimpleNamespace(
            folder=folder, note=lambda *given, **more: self.notes.append((*given, more))
        )
        self.config: Any = SimpleNamespace(stash=stash, getoption={"faults": Path("plan")}.get)
        monkeypatch.setattr(faults, "load_fault_plan", lambda file: self.plan)
        monkeypatch.setattr(faults, "testbed_of", lambda item: item.testbed)
        monkeypatch.setattr(RunningFault, "check", self._check)
        self.testbed = testbed

    def _inject(self, fault: RunningFault) -> Callable[[], None]:
        self.on.append(str(fault))
        return lambda: self.on.remove(str(fault))

    @staticmethod
    def _check(fault: RunningFault, testbed: Any) -> None:
        if "none" in fault.at:
            raise FaultPlanError(f"{testbed.name} has no such place")

    def item(self, name: str, *marks: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        return SimpleNamespace(
            name=name, nodeid=f"t.py::{name}", stash=pytest.Stash(), testbed=self.testbed,
            iter_markers=lambda kind: [SimpleNamespace(args=a, kwargs=k) for a, k in marks],
        )  # fmt: skip

    def faults(self, *plan: RunningFault) -> Faults:
        self.plan = plan
        return Faults(self.config)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    return Lab(monkeypatch, tmp_path)


@contextmanager
def running(plugin: Faults, item: Any):
    """Run a test; within, it is called."""
    plugin.pytest_runtest_setup(item)
    calling = plugin.pytest_runtest_call(item)
    next(calling)
    yield
    with pytest.raises(StopIteration):
        calling.send(None)


CUT = RunningFault("fiber cut", ("server0.nic0",), "*a", 2 * S, 5 * S)
STUCK = RunningFault("instrument silent", ("ocs",), "*a", 1 * S)


def test_faults_begin_at_their_time_and_one_that_lasts_outlives_its_test(lab: Lab) -> None:
    plugin, item, other = lab.faults(CUT, STUCK), lab.item("test_a"), lab.item("test_b")
    plugin.pytest_collection_modifyitems([other, item])
    with running(plugin, item):
        assert item.stash[FAULTS] == [str(CUT), str(STUCK)]
        assert [(each.at, each.name) for each in lab.clock.events] == [
            *((102 * S, "fault"), (101 * S, "fault"))
        ]
        assert lab.on == []
        lab.clock.go_to(101 * S)
        assert lab.on == [str(STUCK)]
        lab.clock.go_to(102 * S)
        assert lab.on == [str(STUCK), str(CUT)]
    assert lab.on == [str(CUT)]
    injected = "fault injected into test_a: "
    assert lab.notes == [
        ("bench", f"{injected}{fault}", {"in_report": True}) for fault in (CUT, STUCK)
    ]
    with running(plugin, other):
        assert other.stash[FAULTS] == [f"{CUT}, since test_a"]
    lab.clock.go_to(106 * S)
    assert lab.on == [str(CUT)]
    lab.clock.go_to(107 * S)
    assert lab.on == []
    last = lab.item("test_c")
    plugin.pytest_runtest_setup(last)
    assert FAULTS not in last.stash


def test_a_fault_whose_test_is_over_before_it_never_begins(lab: Lab) -> None:
    plugin, item = lab.faults(CUT), lab.item("test_a")
    plugin.pytest_collection_modifyitems([item])
    with running(plugin, item):
        lab.clock.go_to(101 * S)
    lab.clock.go_to(200 * S)
    assert lab.on == []


def test_faults_of_a_mark_follow_those_of_the_plan(lab: Lab) -> None:
    item = lab.item("test_a", (("fiber cut",), {"at": "server1.nic0"}))
    plugin = lab.faults(STUCK)
    plugin.pytest_collection_modifyitems([item, SimpleNamespace(testbed=None)])  # type: ignore[list-item]
    plugin.pytest_runtest_setup(item)
    first, second = item.stash[FAULTS]
    assert (first, second.startswith("fiber cut at server1.nic0")) == (str(STUCK), True)
    wrong = lab.faults(RunningFault("fiber cut", ("none",)))
    with pytest.raises(pytest.UsageError, match=r"t.py::test_a: bench has no such place"):
        wrong.pytest_collection_modifyitems([item])


@pytest.mark.parametrize("what", ["hardware", "one instrument of hardware"])
def test_what_is_not_simulated_gets_no_fault(lab: Lab, what: str) -> None:
    plugin, item = lab.faults(STUCK), lab.item("test_a")
    plugin.pytest_collection_modifyitems([item])
    if what == "hardware":
        lab.bench.world = None
    else:
        lab.bench.world.services.clear()
    with pytest.raises(pytest.skip.Exception, match=NOT_SIMULATED):
        next(plugin.pytest_runtest_call(item))
    assert lab.notes == []


def test_without_faults_or_a_bench_a_test_just_runs(lab: Lab) -> None:
    plugin, item = lab.faults(STUCK), lab.item("test_a")
    with running(plugin, item):
        assert lab.clock.events == []
    plugin.pytest_collection_modifyitems([item])
    lab.config.stash[BENCHES].clear()
    with running(plugin, item):
        assert lab.clock.events == []
    item.testbed = None
    with running(plugin, item):
        assert lab.notes == []


def test_a_step_of_the_calendar_is_taken_back(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    monkeypatch.setattr(faults, "step_wall_time", steps.append)
    step = RunningFault("clock step", step_ns=3 * S, lasting_ns=50 * S)
    plugin, item = lab.faults(step), lab.item("test_a")
    plugin.pytest_collection_modifyitems([item])
    with running(plugin, item):
        lab.clock.go_to(100 * S)
        assert steps == [3 * S]
    # What has no place in the lab ends with its test.
    assert steps == [3 * S, -3 * S]


def test_a_full_disk_lets_the_journal_grow_no_more(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[tuple[int, ...]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (77, 99))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, both: limits.append((kind, *both)))
    (tmp_path / "journal.jsonl").write_text("x" * 123)
    plugin, item = lab.faults(RunningFault("disk full")), lab.item("test_a")
    plugin.pytest_collection_modifyitems([item])
    with running(plugin, item):
        lab.clock.go_to(100 * S)
    size = resource.RLIMIT_FSIZE
    assert limits == [(size, 123, 99), (size, 77, 99)]
    (tmp_path / "journal.jsonl").unlink()
    with running(plugin, item):
        lab.clock.go_to(200 * S)
    assert limits[2:] == [(size, 0, 99), (size, 77, 99)]
