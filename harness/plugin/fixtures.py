"""What tests take: a testbed come alive, its parts, and measurements."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from harness.bench import Bench, Fabric, LabTroubleError, NotHereError, bind
from harness.bench.keeping import FoundState, Lease, LeaseHeldError, state_folder
from harness.measure.links import LinkObservation
from harness.measure.measure import Measure, NotEnoughDataError
from harness.modes import SAMPLES, Mode
from harness.plugin.keys import BENCHES, NOTES, RUN
from harness.plugin.patience import uninterrupted
from harness.statistics import Verdict
from instruments.capabilities import OpticalSwitch, Server
from testbeds import Limit, PlanPair, Testbed

LAB_TROUBLE = 3
"""Exit status when hardware was asked for and did not answer."""


@pytest.fixture(scope="session")
def testbed(request: pytest.FixtureRequest) -> Testbed:
    """What the testbed's file says."""
    described: Testbed = request.param
    return described


@pytest.fixture(scope="session")
def transition(request: pytest.FixtureRequest) -> PlanPair:
    """Two of the testbed's plans, `before` and `after`."""
    pair: PlanPair = request.param
    return pair


@pytest.fixture(scope="session")
def moving(request: pytest.FixtureRequest) -> int:
    """How many circuits to move at once."""
    count: int = request.param
    return count


@pytest.fixture(scope="session")
def bench(testbed: Testbed, pytestconfig: pytest.Config) -> Iterator[Bench]:
    """The testbed come alive: every instrument open and identified."""
    mode: Mode = pytestconfig.getoption("instruments")
    lease: Lease | None = None
    try:
        bound = bind(testbed, mode, pytestconfig.getoption("seed"))
    except NotHereError as error:
        pytest.skip(str(error))
    except LabTroubleError as error:
        pytest.exit(str(error), LAB_TROUBLE)
    if not bound.private:
        try:
            lease = Lease(testbed.name, state_folder())
        except LeaseHeldError as error:
            bound.close()
            pytest.exit(str(error), LAB_TROUBLE)
    pytestconfig.stash[BENCHES][testbed.name] = bound
    pytestconfig.stash[NOTES][testbed.name] = list(bound.notes)
    for note in bound.notes:
        pytestconfig.stash[RUN].note(testbed.name, note)
    yield bound
    del pytestconfig.stash[BENCHES][testbed.name]
    bound.close()
    if lease is not None:
        lease.release()


@pytest.fixture(scope="session")
def fabric(bench: Bench) -> Iterator[Fabric]:
    """Applies plans; puts the switches back as they were found."""
    found = None if bench.private else FoundState(bench.testbed.name, state_folder())
    fabric = Fabric(bench, found)
    yield fabric
    with uninterrupted():
        fabric.restore()


@pytest.fixture(scope="session")
def switches(bench: Bench) -> dict[str, OpticalSwitch]:
    """The testbed's optical switches by name."""
    return dict(bench.switches)


@pytest.fixture(scope="session")
def servers(bench: Bench) -> dict[str, Server]:
    """The testbed's servers by name."""
    return dict(bench.servers)


@pytest.fixture(scope="session")
def links(bench: Bench) -> LinkObservation:
    """What the servers' links do, observed from the servers."""
    return LinkObservation(bench)


@pytest.fixture
def samples(bench: Bench, pytestconfig: pytest.Config) -> int:
    """How many events a test takes: `--samples`, or what the profile says."""
    given: int | None = pytestconfig.getoption("samples")
    profile: str = pytestconfig.getoption("profile")
    return given or SAMPLES[profile]["virtual" if bench.clock.virtual else "system"]


class _Measure(Measure):
    """A measurement that tells of its verdicts, and whose lack of data skips the test."""

    told: Callable[[Limit, Verdict], None]

    def judge(self, family: str) -> None:
        for limit, verdict in self.verdicts(family):
            self.told(limit, verdict)
        try:
            super().judge(family)
        except NotEnoughDataError as error:
            pytest.skip(str(error))


@pytest.fixture
def measure(
    request: pytest.FixtureRequest,
    pytestconfig: pytest.Config,
    fabric: Fabric,
    links: LinkObservation,
) -> Measure:
    """Takes measurements, records them and judges them by the testbed's limits."""
    conditions: dict[str, Any] = {}
    callspec = getattr(request.node, "callspec", None)
    for name, value in callspec.params.items() if callspec else ():
        if isinstance(value, PlanPair):
            conditions |= {"before": value.before.name, "after": value.after.name}
        elif isinstance(value, str | int | float):
            conditions[name] = value
    run = pytestconfig.stash[RUN]
    test = request.node.nodeid
    measure = _Measure(fabric, links, run.recorder(fabric.bench, test, conditions))
    measure.told = partial(run.judged, test)
    return measure
