"""What tests take: a testbed come alive, its parts, and measurements."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from harness.bench import Bench, Fabric, LabTroubleError, NotHereError, bind
from harness.bench.collectives import Collectives, NoCollectivesError, open_collectives
from harness.bench.exchanges import Exchanges
from harness.bench.keeping import FoundState, Lease, LeaseHeldError, state_folder
from harness.bench.rdma import RdmaOverCircuits, without_rdma
from harness.measure.judged import NotEnoughDataError
from harness.measure.links import LinkObservation
from harness.measure.measure import Measure
from harness.modes import SAMPLES, Mode
from harness.plugin.collection import Lent, instruments_of, physical_ports
from harness.plugin.keys import BENCHES, NOTES, RUN
from harness.plugin.patience import uninterrupted
from harness.statistics import Verdict
from instruments.capabilities import (
    Attenuator,
    BitErrorTester,
    ClimateChamber,
    LightSource,
    ModuleTelemetry,
    OpticalSwitch,
    PowerMeter,
    Restorable,
    Server,
)
from instruments.servers.gloo import NoPyTorchError
from testbeds import Limit, Plan, PlanPair, Port, Testbed

LAB_TROUBLE = 3
"""Exit status when hardware was asked for and did not answer."""


@pytest.fixture(scope="session")
def testbed(request: pytest.FixtureRequest) -> Testbed:
    """What the testbed's file says."""
    described: Testbed = request.param
    return described


@pytest.fixture(scope="session")
def plan(request: pytest.FixtureRequest, testbed: Testbed) -> Plan:
    """One of the testbed's plans."""
    return testbed.plans[request.param]


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
def modules(bench: Bench) -> list[ModuleTelemetry]:
    """The testbed's switches that are made of modules which say what they draw."""
    found: list[ModuleTelemetry] = [
        each for each in bench.switches.values() if isinstance(each, ModuleTelemetry)
    ]
    if not found:
        pytest.skip(f"testbed {bench.testbed.name} has no modules that say what they draw")
    return found


@pytest.fixture(scope="session")
def servers(bench: Bench) -> dict[str, Server]:
    """The testbed's servers by name."""
    return dict(bench.servers)


@pytest.fixture(scope="session")
def nic_ports(testbed: Testbed) -> tuple[Port, ...]:
    """The NIC ports of the testbed's servers that are computers."""
    return tuple(physical_ports(testbed))


@pytest.fixture(scope="session")
def lent(request: pytest.FixtureRequest) -> Lent:
    """Which of the testbed's instruments the test is spread over; by itself, none."""
    chosen: Lent = getattr(request, "param", None) or Lent()
    return chosen


@pytest.fixture
def power_meter(bench: Bench, lent: Lent) -> Iterator[PowerMeter]:
    """A power meter of the testbed; what a test sets is put back when it ends."""
    yield from _lend(bench, lent, "power_meter")


@pytest.fixture
def light_source(bench: Bench, lent: Lent) -> Iterator[LightSource]:
    """A light source of the testbed; its light is as it was found when the test ends."""
    yield from _lend(bench, lent, "light_source")


@pytest.fixture
def attenuator(bench: Bench, lent: Lent) -> Iterator[Attenuator]:
    """An attenuator of the testbed; its attenuation is put back when the test ends."""
    yield from _lend(bench, lent, "attenuator")


@pytest.fixture
def bit_error_tester(bench: Bench, lent: Lent) -> Iterator[BitErrorTester]:
    """A bit error tester of the testbed; its output is as it was found when the test ends."""
    yield from _lend(bench, lent, "bit_error_tester")


@pytest.fixture(scope="session")
def climate_chamber(bench: Bench, lent: Lent) -> Iterator[ClimateChamber]:
    """A climate chamber of the testbed; put back after the last test, since it takes hours."""
    yield from _lend(bench, lent, "climate_chamber")


def _lend(bench: Bench, lent: Lent, kind: str) -> Iterator[Any]:
    """An instrument of a kind, for as long as its user has it; found settings are put back."""
    name = lent.get(kind)
    if name is None:  # asked for by name while the test ran, when no test can be spread
        name = next(iter(instruments_of(bench.testbed, kind)), None)
    if name is None:
        pytest.skip(f"testbed {bench.testbed.name} has no {kind.replace('_', ' ')}")
    instrument = bench.instruments[name]
    if not isinstance(instrument, Restorable):
        yield instrument
        return
    put_back = instrument.snapshot(range(1, bench.testbed.instruments[name].channels + 1))
    try:
        yield instrument
    finally:
        with uninterrupted():
            put_back()


@pytest.fixture(scope="session")
def links(bench: Bench) -> LinkObservation:
    """What the servers' links do, observed from the servers."""
    return LinkObservation(bench)


@pytest.fixture(scope="session")
def collectives(bench: Bench) -> Iterator[Collectives]:
    """Who runs collectives on the testbed's servers, which are left as they were found."""
    try:
        opened = open_collectives(bench)
    except (NoCollectivesError, NoPyTorchError) as error:
        pytest.skip("; ".join(" ".join(line.split()) for line in str(error).splitlines()))
    yield opened
    with uninterrupted():
        opened.close()


@pytest.fixture(scope="module")
def exchanges(bench: Bench) -> Iterator[Exchanges]:
    """Runs all-to-alls of unequal shares by the ways that MixNet chooses, in namespaces."""
    try:
        opened = Exchanges(bench)
    except NoCollectivesError as error:
        pytest.skip(str(error))
    except NoPyTorchError:
        pytest.skip("PyTorch is not installed")
    yield opened
    with uninterrupted():
        opened.close()


@pytest.fixture(scope="session")
def rdma(bench: Bench) -> RdmaOverCircuits:
    """Asks both ends of a link for its RDMA; a testbed without any is skipped."""
    if why := without_rdma(bench.testbed):
        pytest.skip(f"testbed {bench.testbed.name}: {why}")
    return RdmaOverCircuits(bench)


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
        elif isinstance(value, Lent):
            conditions |= {kind: value[kind] for kind in value.telling}
        elif isinstance(value, str | int | float):
            conditions[name] = value
    run = pytestconfig.stash[RUN]
    test = request.node.nodeid
    measure = _Measure(fabric, links, run.recorder(fabric.bench, test, conditions))
    measure.told = partial(run.judged, test)
    measure.book.tell = partial(run.note, fabric.testbed.name)
    return measure
