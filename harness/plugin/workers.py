"""pytest-xdist: one run of several processes, in which each testbed stays in one of them.

Simulated servers that are namespaces are worlds of each process, in real time: the files that
measure such a testbed may be measured side by side, each in one process.

The main process has the run, its journal, the report and the events. Workers measure: their rows
go to journals of their own, which the main process reads as tests end; what else it has to know
of a test travels with the test's reports. Only documented hooks of pytest-xdist are used, except
that its scheduler by scope has no public method to say what a scope is.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from lightrig.harness.bench.aftermath import AS_FOUND, restore_after
from lightrig.harness.bench.saved_state import TIME
from lightrig.harness.plugin.collection import DESELECTED
from lightrig.harness.plugin.ending import ending_unrecorded
from lightrig.harness.plugin.keys import TESTBEDS
from lightrig.harness.plugin.worker_run import INPUT, NOT_RESTORED, OUTPUT
from lightrig.harness.quantities.registry import names_in_files
from lightrig.harness.record.journal_reading import part_path
from lightrig.instruments.clock import wall_time
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.testbeds import Testbed, load
from lightrig.testbeds.exception_entry import Entry
from lightrig.testbeds.exceptions import Exceptions, exceptions_path
from lightrig.testbeds.out_of_service import with_exceptions, without

if TYPE_CHECKING:
    from lightrig.harness.run import ObservedRun


OUT = "lightrig_out"
"""What a worker is given of the exceptions, which are read once a run."""


def described(config: pytest.Config, file: str) -> Testbed:
    """Read a testbed file, and its exceptions; a worker has those of the main process.

    Raises `TestbedError`, `ExceptionsError` and `OSError`.
    """
    testbed = load(file, quantities=names_in_files())
    if not is_worker(config):
        return with_exceptions(testbed)
    given: Any = config
    entries = {
        what: Entry(what, because, datetime.date.fromisoformat(until), who, at)
        for what, because, until, who, at in given.workerinput[OUT].get(testbed.name, ())
    }
    return without(testbed, Exceptions(exceptions_path(testbed.path), entries, {}))


def is_worker(config: pytest.Config) -> bool:
    """Whether this process runs tests for another one."""
    return hasattr(config, "workerinput")


def _in_namespaces(testbed: Testbed) -> bool:
    """Whether its servers are network namespaces of this machine."""
    schemes = {Endpoint.parse(each.address, None).scheme for each in testbed.servers.values()}
    return schemes == {"netns"}


class MainProcess:
    """The side of the main process: gives workers their run, and testbeds to workers.

    Args:
        config: of the main process.
        run: to be shared.
    """

    def __init__(self, config: pytest.Config, run: ObservedRun) -> None:
        self._config = config
        self._run = run
        self._began = f"{wall_time():{TIME}}"
        self._killed = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send a worker the folder of the run, and what was out of service as the run began."""
        node.workerinput[INPUT] = (str(self._run.folder), self._run.night)
        node.workerinput[OUT] = {
            testbed.name: [
                (one.what, one.because, str(one.until), one.who, one.at)
                for one in testbed.out.entries.values()
            ]
            for testbed in self._config.stash[TESTBEDS]
        }

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Keep each testbed on one worker; tests without a testbed stay with their file.

        So do those of simulated servers that are namespaces: else one worker measures them in
        real time long after the others have ended.
        """
        from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - it may be absent

        if config.getoption("dist") == "each":
            raise pytest.UsageError("--dist each would measure every testbed once on each worker")
        testbeds = {testbed.name: testbed for testbed in config.stash[TESTBEDS]}
        names = "|".join(sorted(map(re.escape, testbeds), key=len, reverse=True))
        # As a part of the id: pytest joins parameters by hyphens.
        named = re.compile(rf"[\[/-]({names or '(?!)'})(?=[]/-])")
        by_file = {
            name
            for name, testbed in testbeds.items()
            if config.getoption("instruments") == "simulated" and _in_namespaces(testbed)
        }

        class OneWorkerForATestbed(LoadScopeScheduling):  # type: ignore[misc]
            def _split_scope(self, nodeid: str) -> str:
                file, _, test = nodeid.partition("::")
                found = named.search(test)
                if found is None:
                    return file
                return f"{found[1]} {file}" if found[1] in by_file else found[1]

            def remove_node(self, node: Any) -> str | None:
                """Let the rest of a worker's tests run, without the one that has killed it.

                pytest-xdist gives that one to the next worker again, and so on.
                """
                units = self.assigned_work[node]
                pending = ((u, t) for u in units.values() for t, ended in u.items() if not ended)
                unit, killer = next(pending, (None, None))
                if unit is not None:
                    unit[killer] = True
                for scope in [scope for scope, unit in units.items() if all(unit.values())]:
                    del units[scope]
                super().remove_node(node)
                return killer

        return OneWorkerForATestbed(config, log)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take over what a worker has recorded so far, before the test is noted as ended."""
        node: Any = getattr(report, "node", None)
        if node is not None:
            self._take_over(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take over the rest, and what the worker has deselected: all collect the same tests."""
        self._take_over(node)
        self._killed |= error is not None
        for testbed, problem in getattr(node, "workeroutput", {}).get(NOT_RESTORED, ()):
            self._run.not_restored(testbed, problem)
        found = getattr(node, "workeroutput", {}).get(OUTPUT)
        if found is not None:
            reasons = {name: Counter(each) for name, each in found.items()}
            self._config.stash[DESELECTED] = reasons

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Iterator[None]:
        """Once all workers have ended, restore what those that were killed have left changed.

        The replacement of a worker restores only the testbeds of which it runs a test.
        """
        try:
            return (yield)
        finally:
            if self._killed and self._config.getoption("instruments") != "simulated":
                self.restore()

    def restore(self) -> None:
        """Restore what this run has left changed on any testbed."""
        for testbed in self._config.stash[TESTBEDS]:
            found = restore_after(testbed.path, self._began)
            if found == AS_FOUND:
                found = f"a worker of pytest-xdist ended without restoring: {found}"
                self._run.note(testbed.name, found, in_report=True)
            elif found:
                self._run.not_restored(testbed.name, found)

    def _take_over(self, node: Any) -> None:
        with ending_unrecorded(self._config):
            self._run.taken_over(part_path(self._run.folder, node.workerinput["workerid"]))
