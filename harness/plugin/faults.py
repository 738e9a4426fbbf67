"""Fault plans: faults that begin while tests run, stated in a file or by a marker."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from lightrig.harness.bench import Bench
from lightrig.harness.plugin.collection import testbed_of
from lightrig.harness.plugin.keys import BENCHES, FAULTS, RUN
from lightrig.instruments.clock import step_wall_time
from lightrig.testbeds import TestbedError
from lightrig.testbeds.fault_plan import (
    FaultPlanError,
    RunningFault,
    fault_of,
    load_fault_plan,
)

NOT_SIMULATED = "faults are injected into simulated testbeds only"


class Faults:
    """Begins the faults of a test with it; ends those that do not outlast it.

    In the process that runs the tests. What is on until its time is over goes on after the test,
    and while the laboratory is restored.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        file: Path | None = config.getoption("faults")
        try:
            self._plan = load_fault_plan(file) if file is not None else ()
        except (TestbedError, OSError) as error:
            raise pytest.UsageError(str(error)) from error
        self._of_test: dict[str, list[RunningFault]] = {}
        self._on: list[tuple[str, RunningFault]] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Find the faults of each test; a place that its testbed lacks is a wrong use."""
        for item in items:
            testbed = testbed_of(item)
            if testbed is None:
                continue
            try:
                faults = [fault for fault in self._plan if fault.is_for(item.nodeid)]
                marks = item.iter_markers("fault")
                faults += [fault_of(next(iter(m.args), None), m.kwargs) for m in marks]
                for fault in faults:
                    fault.check(testbed)
            except FaultPlanError as error:
                raise pytest.UsageError(f"{item.nodeid}: {error}") from error
            if faults:
                self._of_test[item.nodeid] = faults

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Note what the test's rows are measured under, before its fixtures read it."""
        faults = [str(fault) for fault in self._of_test.get(item.nodeid, ())]
        faults += [f"{fault}, since {test}" for test, fault in self._on]
        if faults:
            item.stash[FAULTS] = faults

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Begin the faults of a test, and end them after it."""
        faults = self._of_test.get(item.nodeid, ())
        testbed = testbed_of(item)
        bench = self._config.stash[BENCHES].get(testbed.name) if testbed is not None else None
        if not faults or bench is None:
            return (yield)
        if bench.world is None:
            pytest.skip(NOT_SIMULATED)
        for fault in faults:
            if fault.kind.startswith("instrument") and fault.at[0] not in bench.world.services:
                pytest.skip(NOT_SIMULATED)
            self._config.stash[RUN].note(
                bench.testbed.name, f"fault injected into {item.name}: {fault}", in_report=True
            )
        with ExitStack() as ends:
            for fault in faults:
                ends.enter_context(self._scheduled(bench, item.name, fault))
            return (yield)

    @contextmanager
    def _scheduled(self, bench: Bench, test: str, fault: RunningFault) -> Iterator[None]:
        """Begin a fault at its time; end it at its time, or with the context if it has none."""
        clock, ends = bench.clock, ExitStack()

        def begin() -> None:
            ends.callback(self._begin(bench, fault))
            self._on.append((test, fault))
            ends.callback(self._on.remove, (test, fault))
            if fault.lasting_ns is not None:
                clock.schedule(clock.now() + fault.lasting_ns, "fault", ends.close)

        begins = clock.schedule(clock.now() + fault.after_ns, "fault", begin)
        try:
            yield
        finally:
            begins.cancel()
            # The disk has room again before the run's record is completed.
            if fault.lasting_ns is None or not fault.at:
                ends.close()

    def _begin(self, bench: Bench, fault: RunningFault) -> Callable[[], None]:
        if fault.kind == "disk full":
            return self._fill_disk()
        if fault.kind == "clock step":
            step_wall_time(fault.step_ns)
            return partial(step_wall_time, -fault.step_ns)
        assert bench.world is not None
        return bench.world.inject(fault)

    def _fill_disk(self) -> Callable[[], None]:
        """Let no file grow beyond the journal's size: writing to it fails as on a full disk."""
        journal = self._config.stash[RUN].folder / "journal.jsonl"
        before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = journal.stat().st_size if journal.exists() else 0
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
        return partial(resource.setrlimit, resource.RLIMIT_FSIZE, (before, most))
