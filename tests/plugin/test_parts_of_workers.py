"""The main process beside its workers: what it sends them, and what it takes over from each."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.bench.aftermath import AS_FOUND
from lightrig.harness.plugin import workers
from lightrig.harness.plugin.collection import DESELECTED
from lightrig.harness.plugin.keys import TESTBEDS
from lightrig.harness.plugin.worker_run import INPUT, NOT_RESTORED, OUTPUT
from lightrig.harness.plugin.workers import MainProcess, is_worker
from lightrig.harness.record.journal_reading import part_path
from lightrig.testbeds.model import OutOfService


class Main:
    """The main process of a run with the testbeds opus and opus2, which notes what it is asked."""

    def __init__(self) -> None:
        self.noted: list[Any] = []
        self.options = {"dist": "load", "instruments": "auto"}
        self.run: Any = SimpleNamespace(
            folder=Path("run"),
            night="2026-03-14",
            taken_over=self.noted.append,
            not_restored=lambda *given: self.noted.append(("not restored", *given)),
            note=lambda *given, **more: self.noted.append((*given, more)),
        )
        stash: Any = pytest.Stash()
        stash[TESTBEDS] = [
            SimpleNamespace(name=name, path=name, out=OutOfService()) for name in ("opus", "opus2")
        ]
        self.config: Any = SimpleNamespace(stash=stash, getoption=self.options.get)
        self.process = MainProcess(self.config, self.run)


@pytest.fixture
def main() -> Main:
    return Main()


def node(**output: Any) -> Any:
    return SimpleNamespace(workerinput={"workerid": "gw3"}, workeroutput=output)


PART = part_path(Path("run"), "gw3")


def test_a_worker_knows_the_run(main: Main) -> None:
    given = node()
    main.process.pytest_configure_node(given)
    assert given.workerinput[INPUT] == ("run", "2026-03-14")
    assert not is_worker(main.config)
    assert is_worker(SimpleNamespace(workerinput={}))  # type: ignore[arg-type]


def test_rows_of_a_worker_are_there_before_its_test_has_ended(main: Main) -> None:
    main.process.pytest_runtest_logreport(SimpleNamespace(node=node()))  # type: ignore[arg-type]
    assert main.noted == [PART]
    main.process.pytest_runtest_logreport(SimpleNamespace())  # type: ignore[arg-type]
    assert main.noted == [PART]


def test_the_end_of_a_worker_tells_what_it_did_not_restore_and_deselected(main: Main) -> None:
    main.config.stash[DESELECTED] = {}
    output = {NOT_RESTORED: [("opus", "ocs"), ("opus2", "laser")], OUTPUT: {"opus": {"no NIC": 3}}}
    main.process.pytest_testnodedown(node(**output), None)
    assert main.noted == [PART, ("not restored", "opus", "ocs"), ("not restored", "opus2", "laser")]
    assert main.config.stash[DESELECTED] == {"opus": Counter({"no NIC": 3})}
    main.process.pytest_testnodedown(node(), None)
    assert main.config.stash[DESELECTED] == {"opus": Counter({"no NIC": 3})}


@pytest.mark.parametrize(
    ("errors", "instruments", "restored"),
    [
        ([None, "killed", None], "auto", True),
        ([None, None], "hardware", False),
        (["killed"], "simulated", False),
    ],
)
def test_only_what_killed_workers_have_left_is_restored(
    main: Main, monkeypatch: pytest.MonkeyPatch,
    errors: list[str | None], instruments: str, restored: bool,
) -> None:  # fmt: skip
    main.options["instruments"] = instruments
    calls: list[Any] = []
    monkeypatch.setattr(main.process, "restore", lambda: calls.append("restored"))
    loop: Any = main.process.pytest_runtestloop()
    next(loop)
    for error in errors:
        main.process.pytest_testnodedown(node(), error)
    with pytest.raises(StopIteration) as ended:
        loop.send("all ran")
    assert (ended.value.value, calls) == ("all ran", ["restored"] * restored)


def test_each_testbed_is_restored_and_noted(main: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"opus": AS_FOUND, "opus2": "laser is NOT as found"}
    began: set[str] = set()
    monkeypatch.setattr(workers, "wall_time", lambda: datetime(2026, 3, 14, 22, 5, 7, tzinfo=UTC))
    main.process = MainProcess(main.config, main.run)
    monkeypatch.setattr(
        workers, "restore_after", lambda path, since: began.add(since) or found[path]
    )
    main.process.restore()
    note = f"a worker of pytest-xdist ended without restoring: {AS_FOUND}"
    assert main.noted == [
        ("opus", note, {"in_report": True}),
        ("not restored", "opus2", "laser is NOT as found"),
    ]
    assert began == {"2026-03-14 22:05:07 UTC"}
    found.update(opus="", opus2="")
    main.process.restore()
    assert len(main.noted) == 2


class Worker:
    """A worker of pytest-xdist, which notes the tests that it is to run."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.tests: list[int] = []

    def send_runtest_some(self, tests: list[int]) -> None:
        self.tests += tests

    def shutdown(self) -> None: ...


def test_tests_of_a_testbed_stay_on_one_worker(main: Main) -> None:
    pytest.importorskip("xdist.scheduler")
    tests = [
        "d/t.py::test_a[opus/straight]",
        "d/t.py::test_a[opus2/straight]",
        "d/t.py::test_opus",
        "d/t.py::test_b[4/opus]",
        "d/opus/t.py::test_c[7]",
        "d/t.py::test_d",
    ]
    nodes = [Worker(f"gw{number}") for number in range(4)]
    main.config.getvalue = {"tx": ["4*popen"]}.get
    main.config.option = SimpleNamespace(loadscopereorder=False)
    made = main.process.pytest_xdist_make_scheduler(main.config, None)
    for each in nodes:
        made.add_node(each)
        made.add_node_collection(each, tests)
    made.schedule()
    # Before 3.8 xdist gives out large groups first.
    assert sorted(each.tests for each in nodes) == [[0, 3], [1], [2, 5], [4]]
    main.options["dist"] = "each"
    with pytest.raises(pytest.UsageError, match="--dist each would measure every testbed once"):
        main.process.pytest_xdist_make_scheduler(main.config, None)
