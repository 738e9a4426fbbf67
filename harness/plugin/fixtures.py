"""Fixtures: an open testbed, its parts, and measurements.

The fixtures exist without a testbed too, so that a suite without one is skipped with a reason.
Their imports are local, so that projects without a testbed do not pay for them.
"""

# Projects without a testbed load this file too, so imports that only a run needs are local.
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lightrig.harness.modes import SAMPLES, Mode
from lightrig.harness.plugin.keys import (
    ATTEMPTS,
    BENCHES,
    FAULTS,
    FOUND,
    INCONCLUSIVE,
    MEASURED,
    NO_TESTBED,
    OPENED,
    RUN,
)

if TYPE_CHECKING:
    from lightrig.harness.bench import Bench, Fabric
    from lightrig.harness.measure.links import LinkObservation
    from lightrig.harness.measure.port_counters import PortCounters
    from lightrig.harness.measure.recording import Recording
    from lightrig.harness.measure.sampling import Events
    from lightrig.harness.plugin.collection import InstrumentSelection
    from lightrig.instruments.core.capabilities import (
        Attenuator,
        BitErrorTester,
        ClimateChamber,
        LightSource,
        ModuleTelemetry,
        OpticalSwitch,
        PolarizationController,
        PowerMeter,
        Server,
        SimultaneousLogs,
    )
    from lightrig.testbeds import Limit, Plan, PlanPair, Port, Testbed

_PARAMETERS = ("testbed", "plan", "transition", "moving")


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> None:
    """Refuse a test that mixes our fixtures with another project's fixture of the same name."""
    name = fixturedef.argname
    if (
        name in _PARAMETERS
        and fixturedef.func.__module__ != __name__
        and f"lightrig_{name}" in request.fixturenames
    ):
        code = fixturedef.func.__code__
        pytest.fail(
            f"fixture {name!r} of {code.co_filename}:{code.co_firstlineno} hides Lightrig's, which "
            f"other fixtures of this test build on; rename it, or take 'lightrig_{name}'",
            pytrace=False,
        )


@pytest.fixture(scope="session")
def lightrig_testbed(request: pytest.FixtureRequest) -> Testbed:
    """The parsed testbed file; `testbed` under a name that does not clash with other projects."""
    if not hasattr(request, "param"):
        pytest.skip(NO_TESTBED)
    described: Testbed = request.param
    return described


@pytest.fixture(scope="session")
def lightrig_plan(request: pytest.FixtureRequest, lightrig_testbed: Testbed) -> Plan:
    """One of the testbed's plans."""
    return lightrig_testbed.plans[request.param]


@pytest.fixture(scope="session")
def lightrig_transition(request: pytest.FixtureRequest, lightrig_testbed: Testbed) -> PlanPair:
    """Two of the testbed's plans, `before` and `after`."""
    pair: PlanPair = request.param
    return pair


@pytest.fixture(scope="session")
def lightrig_moving(request: pytest.FixtureRequest, lightrig_transition: PlanPair) -> int:
    """Number of circuits to move at once."""
    count: int = request.param
    return count


@pytest.fixture(scope="session")
def lightrig_instruments(request: pytest.FixtureRequest) -> InstrumentSelection:
    """The testbed's instruments that this test uses; none where it takes none."""
    from lightrig.harness.plugin.collection import InstrumentSelection

    chosen: InstrumentSelection = getattr(request, "param", None) or InstrumentSelection()
    return chosen


@pytest.fixture(scope="session")
def testbed(lightrig_testbed: Testbed) -> Testbed:
    """The parsed testbed file."""
    return lightrig_testbed


@pytest.fixture(scope="session")
def plan(lightrig_plan: Plan) -> Plan:
    """One of the testbed's plans."""
    return lightrig_plan


@pytest.fixture(scope="session")
def transition(lightrig_transition: PlanPair) -> PlanPair:
    """Two of the testbed's plans, `before` and `after`."""
    return lightrig_transition


@pytest.fixture(scope="session")
def moving(lightrig_moving: int) -> int:
    """Number of circuits to move at once."""
    return lightrig_moving


@pytest.fixture(scope="session")
def bench(
    request: pytest.FixtureRequest, lightrig_testbed: Testbed, pytestconfig: pytest.Config
) -> Iterator[Bench]:
    """The open testbed: every instrument connected and identified."""
    from lightrig.harness.bench import LabUnavailableError, UnsupportedHostError
    from lightrig.harness.bench.lab_folder import LabFolderError
    from lightrig.harness.bench.lease import LeaseConflictError
    from lightrig.harness.bench.opened_bench import OpenBench
    from lightrig.harness.plugin.ending import LAB_ERROR
    from lightrig.harness.plugin.traces import TRAFFIC, about_instruments
    from lightrig.harness.plugin.waiting import take_bench
    from lightrig.harness.record.run_folder import OPENING
    from lightrig.harness.recorded_test import closing_notes, opening_notes
    from lightrig.instruments.machine_limits import refused_by_machine
    from lightrig.testbeds import LightrigError

    testbed = lightrig_testbed
    mode: Mode = pytestconfig.option.instruments
    run = pytestconfig.stash[RUN]
    purpose = f"run {run.name} of testbed {testbed.name}"
    try:
        bound = take_bench(pytestconfig, testbed, mode, purpose)
    except UnsupportedHostError as error:
        pytest.skip(str(error))
    except (LabUnavailableError, LeaseConflictError, LabFolderError) as error:
        pytestconfig.stash[TRAFFIC].write(testbed, OPENING)
        pytest.exit(str(error), LAB_ERROR)
    except (OSError, RuntimeError, MemoryError) as error:
        if (refused := refused_by_machine(error)) is None:
            raise
        pytest.exit(f"{testbed.name} is not opened: {refused}", LAB_ERROR)
    opened = OpenBench(bound)
    try:
        by_hand = opened.save_settings()
    except LightrigError as error:
        bound.close()
        pytestconfig.stash[TRAFFIC].write(testbed, OPENING)
        pytest.exit(str(error), LAB_ERROR)
    if (traffic := pytestconfig.stash[TRAFFIC].of(testbed)) is not None:
        traffic.opened(about_instruments(bound))
    if pytestconfig.getoption("strict_links"):
        bound.coverage.is_strict = True
    pytestconfig.stash[BENCHES][testbed.name] = bound
    pytestconfig.stash[OPENED][testbed.name] = opened
    if not bound.clock.virtual:
        bound.kernel.read()
        for log, why in bound.kernel.unreadable.items():
            run.note(testbed.name, f"kernel messages of {log} are not read: {why}")
        bound.roce_indices.moved()
    by_reading = pytestconfig.option.profile == "night"
    for note in (*by_hand, *opening_notes(bound, run.folder, by_reading=by_reading)):
        run.note(testbed.name, note, in_report=True)
    yield bound
    # The lab is restored whatever this finds, and at once after Ctrl-C.
    if by_reading and request.session.exitstatus != pytest.ExitCode.INTERRUPTED:
        try:
            closing = closing_notes(bound, run.folder)
        except LightrigError as error:
            closing = [f"NIC ports are not read again: {str(error).splitlines()[0]}"]
        for note in closing:
            run.note(testbed.name, note, in_report=True)
    # What cannot be restored is no error of the test that happens to be the last one: the run ends
    # with an exit status of its own, and with what to do.
    for problem in opened.restore(partial(run.note, testbed.name)):
        run.not_restored(testbed.name, str(problem))
    del pytestconfig.stash[BENCHES][testbed.name], pytestconfig.stash[OPENED][testbed.name]
    opened.close()


@pytest.fixture(scope="session")
def fabric(bench: Bench, pytestconfig: pytest.Config) -> Fabric:
    """Applies plans; puts the switches back as they were found."""
    from lightrig.harness.plugin.ending import LAB_ERROR
    from lightrig.testbeds import LightrigError

    opened = pytestconfig.stash[OPENED][bench.testbed.name]
    try:
        return opened.saved_fabric()
    except LightrigError as error:
        pytest.exit(str(error), LAB_ERROR)


@pytest.fixture(scope="session")
def switches(bench: Bench) -> dict[str, OpticalSwitch]:
    """The testbed's optical switches by name."""
    return dict(bench.switches)


@pytest.fixture(scope="session")
def modules(bench: Bench) -> list[ModuleTelemetry]:
    """The testbed's switches that are made of modules which say what they draw."""
    from lightrig.instruments.core.capabilities import ModuleTelemetry

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
def nic_ports(lightrig_testbed: Testbed) -> tuple[Port, ...]:
    """The NIC ports of the testbed's servers that are computers."""
    from lightrig.harness.bench.opened_bench import physical_ports

    return tuple(physical_ports(lightrig_testbed))


@pytest.fixture
def power_meter(bench: Bench, lightrig_instruments: InstrumentSelection) -> Iterator[PowerMeter]:
    """A power meter of the testbed; what a test sets is put back when it ends."""
    yield from _lend(bench, lightrig_instruments, "power_meter")


@pytest.fixture
def light_source(bench: Bench, lightrig_instruments: InstrumentSelection) -> Iterator[LightSource]:
    """A light source of the testbed; its light is as it was found when the test ends."""
    yield from _lend(bench, lightrig_instruments, "light_source")


@pytest.fixture
def attenuator(bench: Bench, lightrig_instruments: InstrumentSelection) -> Iterator[Attenuator]:
    """An attenuator of the testbed; its attenuation is put back when the test ends."""
    yield from _lend(bench, lightrig_instruments, "attenuator")


@pytest.fixture
def bit_error_tester(
    bench: Bench, lightrig_instruments: InstrumentSelection
) -> Iterator[BitErrorTester]:
    """A bit error tester of the testbed; its output is as it was found when the test ends."""
    yield from _lend(bench, lightrig_instruments, "bit_error_tester")


@pytest.fixture
def oscilloscope(
    bench: Bench, lightrig_instruments: InstrumentSelection
) -> Iterator[SimultaneousLogs]:
    """An oscilloscope of the testbed, with photodetectors at its channels."""
    yield from _lend(bench, lightrig_instruments, "oscilloscope")


@pytest.fixture
def polarization_controller(
    bench: Bench, lightrig_instruments: InstrumentSelection
) -> Iterator[PolarizationController]:
    """A polarization controller of the testbed; its plates are put back when the test ends."""
    yield from _lend(bench, lightrig_instruments, "polarization_controller")


@pytest.fixture(scope="session")
def climate_chamber(
    bench: Bench, lightrig_instruments: InstrumentSelection
) -> Iterator[ClimateChamber]:
    """A climate chamber of the testbed; put back after the last test, since it takes hours."""
    yield from _lend(bench, lightrig_instruments, "climate_chamber")


def _lend(bench: Bench, chosen: InstrumentSelection, kind: str) -> Iterator[Any]:
    """An instrument of a kind, for as long as its user has it; found settings are put back."""
    from lightrig.harness.bench.opened_bench import instruments_of, put_back

    name = chosen.get(kind)
    if name is None:  # asked for by name while the test ran, when no test can be spread
        name = next(iter(instruments_of(bench.testbed, kind)), None)
    if name is None:
        pytest.skip(f"testbed {bench.testbed.name} has no {kind.replace('_', ' ')}")
    with put_back(bench, name) as instrument:
        yield instrument


@pytest.fixture(scope="session")
def links(bench: Bench) -> LinkObservation:
    """Link events, observed from the servers."""
    from lightrig.harness.measure.links import LinkObservation

    return LinkObservation(bench)


@pytest.fixture
def samples(request: pytest.FixtureRequest, bench: Bench) -> int:
    """Number of events of a test: `--samples`, what its limits need, or what the profile says.

    The quick profile takes no more than its number where events take real time.
    """
    from lightrig.harness.measure.sampling import events_needed

    usual, given = _sample_options(request, bench)
    return given or events_needed(_judged_limits(request, bench), usual)


@pytest.fixture
def events(request: pytest.FixtureRequest, bench: Bench, measure: Recording) -> Events:
    """The events of a test to iterate over, numbered from 0: as many as its limits need.

    As `samples`, but the limits may have a plan of two stages, of which the second follows only
    where the first does not decide; and an event that is set aside is replaced.
    """
    from lightrig.harness.measure.sampling import Events

    usual, given = _sample_options(request, bench)
    limits, clock = _judged_limits(request, bench), bench.clock
    return Events(measure, limits, usual, clock.now, given=given, real=not clock.virtual)


def _judged_limits(request: pytest.FixtureRequest, bench: Bench) -> list[Limit]:
    """Return the limits that a test judges, by its mark."""
    from lightrig.harness.measure.recording import limits_under

    mark = request.node.get_closest_marker("limits")
    return limits_under(bench.testbed.limits, mark.args) if mark else []


def _sample_options(request: pytest.FixtureRequest, bench: Bench) -> tuple[int, int | None]:
    """Return the profile's number of events, and the one that the options fix, if any."""
    from lightrig.harness.measure.sampling import events_needed

    given: int | None = request.config.getoption("samples")
    profile: str = request.config.getoption("profile")
    usual = SAMPLES[profile]["virtual" if bench.clock.virtual else "system"]
    if not given and profile == "quick" and not bench.clock.virtual:
        given = min(events_needed(_judged_limits(request, bench), usual), usual)
    return usual, given


@pytest.fixture(scope="session")
def lightrig_port_counters(bench: Bench) -> PortCounters:
    """Counters of the bench's NIC ports since the last reading."""
    from lightrig.harness.measure.port_counters import PortCounters

    return PortCounters(bench)


@pytest.fixture
def measure(
    request: pytest.FixtureRequest,
    pytestconfig: pytest.Config,
    bench: Bench,
    lightrig_port_counters: PortCounters,
) -> Iterator[Recording]:
    """Records rows, judges them by the testbed's limits, and takes notes on them.

    A limit that the samples do not decide makes the test inconclusive once it has ended, unless
    it fails: all that it has to judge is judged. Closure is judged by itself: a test that
    measured a simulated world wrong fails once it has ended.
    """
    from lightrig.harness.recorded_test import RecordedTest

    item = request.node
    undecided: list[str] = []
    conditions = {**row_conditions(request), **attempt_condition(item)}
    recorded = RecordedTest(
        pytestconfig.stash[RUN],
        bench,
        item.nodeid,
        conditions,
        undecided.append,
        lightrig_port_counters,
        name=item.name,
    )
    item.stash[INCONCLUSIVE] = undecided
    item.stash[FOUND] = recorded.found
    item.stash[MEASURED] = lambda: recorded.measured
    yield recorded.recording
    recorded.end()


def attempt_condition(item: pytest.Item) -> dict[str, int]:
    """Return the number of a test's attempt as a condition, where a rerun plugin repeats tests.

    pytest-rerunfailures counts itself, also over workers; another plugin's attempts are counted
    here, and are known for such from the second on.
    """
    from lightrig.harness.record.attempts import ATTEMPT

    count = item.stash[ATTEMPTS] = item.stash.get(ATTEMPTS, 0) + 1
    attempt = getattr(item, "execution_count", count if count > 1 else None)
    return {} if attempt is None else {ATTEMPT: attempt}


def row_conditions(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the conditions of a test's rows: its faults and its parameters."""
    from lightrig.harness.plugin.collection import InstrumentSelection
    from lightrig.testbeds import PlanPair

    conditions: dict[str, Any] = {}
    if faults := request.node.stash.get(FAULTS, []):
        conditions["faults"] = "; ".join(faults)
    callspec = getattr(request.node, "callspec", None)
    for name, value in callspec.params.items() if callspec else ():
        if isinstance(value, PlanPair):
            conditions |= {"before": value.before.name, "after": value.after.name}
        elif isinstance(value, InstrumentSelection):
            conditions |= {kind: value[kind] for kind in value.several}
        elif isinstance(value, str | int | float):
            conditions[name.removeprefix("lightrig_")] = value
    return conditions
