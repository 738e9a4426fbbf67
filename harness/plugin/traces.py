"""Traffic of tests that failed, kept in the run's folder for `lightrig results bundle`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

from lightrig.harness.plugin.collection import testbed_of
from lightrig.harness.plugin.keys import RUN
from lightrig.harness.record.run_folder import TRACES
from lightrig.instruments.wire.recent_traffic import RecentTraffic

if TYPE_CHECKING:
    from lightrig.harness.bench import Bench
    from lightrig.testbeds import Testbed

TraceChoice: TypeAlias = Literal["failed", "all", "none"]

TRAFFIC = pytest.StashKey["Traces"]()


class Traces:
    """Keeps the wire traffic of each test, and writes that of the tests that `--traces` names.

    In the process that runs the tests.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._choice: TraceChoice = config.getoption("traces")
        self._traffic: dict[str, RecentTraffic] = {}
        self._failed: set[str] = set()

    def of(self, testbed: Testbed) -> RecentTraffic | None:
        """Return what keeps the traffic of a testbed's instruments; None where none is kept."""
        if self._choice == "none":
            return None
        folder = self._config.stash[RUN].folder / TRACES
        return self._traffic.setdefault(testbed.name, RecentTraffic(folder))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Forget what earlier tests, or attempts of this one, have exchanged."""
        self._failed.discard(item.nodeid)
        for traffic in self._traffic.values():
            traffic.begin()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Write what was exchanged once the test has ended."""
        report: Any = yield
        if report.failed:
            self._failed.add(item.nodeid)
        testbed = testbed_of(item)
        wanted = self._choice == "all" or item.nodeid in self._failed
        if report.when == "teardown" and wanted and testbed is not None:
            self.write(testbed, item.nodeid)
        return report  # type: ignore[no-any-return]

    def write(self, testbed: Testbed, test: str) -> None:
        """Write what was exchanged with the instruments of a testbed in a test."""
        traffic = self._traffic.get(testbed.name)
        if traffic is None:
            return
        refused = len(traffic.refused)
        problem = ""
        try:
            traffic.write(test)
        except OSError as error:
            problem = f"{error.filename}: {error.strerror}"
        if not refused and traffic.refused:
            problem = "no more room for traces in this run; --traces none writes none"
        if problem:
            self._config.stash[RUN].note(testbed.name, f"traces of {test} are not kept: {problem}")

    def pytest_unconfigure(self) -> None:
        """Keep nothing more."""
        for traffic in self._traffic.values():
            traffic.close()


def about_instruments(bench: Bench) -> Mapping[str, Mapping[str, str]]:
    """Return what a recording says of each instrument: its model and identity."""
    specs = {**bench.testbed.optical_switches, **bench.testbed.instruments}
    models = {name: {"model": spec.model} for name, spec in specs.items()}
    identities = {name: {"identity": str(found)} for name, found in bench.identities.items()}
    return {name: {**models.get(name, {}), **identities.get(name, {})} for name in identities}
