"""Fixtures: an open testbed, its parts, and measurements.

The fixtures exist without a testbed too, so that a suite without one is skipped with a reason.
Their imports are local, so that projects without a testbed do not pay for them.
"""

# Projects without a testbed load this file too, so imports that only a run needs are local.
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    RUN,
    SETTINGS,
    UNRESTORED,
)

if TYPE_CHECKING:
    from lightrig.harness.bench import Bench, Fabric
    from lightrig.harness.findings import Finding
    from lightrig.harness.measure.links import LinkObservation
    from lightrig.harness.measure.port_counters import PortCounters
    from lightrig.harness.measure.recording import Recording
    from lightrig.harness.measure.sampling import Events
    from lightrig.harness.plugin.collection import InstrumentSelection
    from lightrig.harness.record import Row
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
def bench(lightrig_testbed: Testbed, pytestconfig: pytest.Config) -> Iterator[Bench]:
    """The open testbed: every instrument connected and identified."""
    from lightrig.harness.bench import LabUnavailableError, UnsupportedHostError
    from lightrig.harness.bench.lab_folder import LabFolderError
    from lightrig.harness.bench.lease import LeaseConflictError
    from lightrig.harness.bench.leftovers import by_hand_notes
    from lightrig.harness.bench.light_reach import on_path
    from lightrig.harness.bench.settings import SavedInstruments
    from lightrig.harness.plugin.ending import LAB_ERROR, restore_loudly
    from lightrig.harness.plugin.waiting import take_bench
    from lightrig.testbeds import LightrigError

    testbed = lightrig_testbed
    mode: Mode = pytestconfig.option.instruments
    purpose = f"run {pytestconfig.stash[RUN].name} of testbed {testbed.name}"
    try:
        bound = take_bench(pytestconfig, testbed, mode, purpose)
    except UnsupportedHostError as error:
        pytest.skip(str(error))
    except (LabUnavailableError, LeaseConflictError, LabFolderError) as error:
        pytest.exit(str(error), LAB_ERROR)
    settings = SavedInstruments(bound)
    try:
        settings.save_initial_state()
        by_hand = [] if bound.in_process else by_hand_notes(testbed)
    except LightrigError as error:
        bound.close()
        pytest.exit(str(error), LAB_ERROR)
    pytestconfig.stash[BENCHES][testbed.name] = bound
    pytestconfig.stash[SETTINGS][testbed.name] = settings
    for note in (*by_hand, *testbed.notes, *bound.notes, *_found_at_begin(bound, pytestconfig)):
        pytestconfig.stash[RUN].note(testbed.name, note, in_report=True)
    yield bound
    changed = pytestconfig.stash[UNRESTORED].pop(testbed.name, frozenset())

    def obstacles(name: str) -> list[str]:
        return on_path(testbed, name, bound.switches, changed)

    restore_loudly(
        pytestconfig,
        testbed.name,
        lambda notify: settings.restore(obstacles=obstacles, notify=notify),
    )
    del pytestconfig.stash[BENCHES][testbed.name], pytestconfig.stash[SETTINGS][testbed.name]
    bound.close()


def _found_at_begin(bench: Bench, config: pytest.Config) -> list[str]:
    """Store what the servers' ports are set to, and what is wrong before the first test; return it.

    Every night looks at all that can be read at once; other runs compare the ports alone.
    """
    from lightrig.harness.doctor import examine_by_reading
    from lightrig.harness.port_differences import kernels, port_differences, read_ports
    from lightrig.harness.record.run_folder import store_findings, store_ports

    folder, name = config.stash[RUN].folder, bench.testbed.name
    if config.option.profile == "night":
        checks, ports = examine_by_reading(bench)
        found = [check.finding for check in checks.problems if check.finding is not None]
        store_findings(folder, name, [finding.document() for finding in found])
    else:
        ports = read_ports(bench)
        found = port_differences(bench.testbed, ports, kernels(bench)) if ports else []
    if ports:
        document = {
            "kernels": kernels(bench),
            "ports": {str(port): settings.document() for port, settings in ports.items()},
        }
        store_ports(folder, name, document)
    return [finding.evidence for finding in found]


@pytest.fixture(scope="session")
def fabric(bench: Bench, pytestconfig: pytest.Config) -> Iterator[Fabric]:
    """Applies plans; puts the switches back as they were found."""
    from lightrig.harness.bench import Fabric
    from lightrig.harness.bench.lab_folder import LabFolderError
    from lightrig.harness.bench.restoring import NotRestoredError
    from lightrig.harness.bench.saved_state import SavedStateError, StateConflictError
    from lightrig.harness.plugin.ending import LAB_ERROR, restore_loudly

    fabric = Fabric(bench)
    name = bench.testbed.name
    settings = pytestconfig.stash[SETTINGS][name]
    if not bench.in_process:
        try:
            fabric.save_initial_state()
        except (SavedStateError, StateConflictError, LabFolderError) as error:
            pytestconfig.stash[UNRESTORED][name] = frozenset(bench.switches)
            pytest.exit(str(error), LAB_ERROR)
    yield fabric
    # Light that was found off is off before a circuit is moved.
    restore_loudly(pytestconfig, name, lambda notify: settings.restore_off(notify=notify))
    problem = restore_loudly(pytestconfig, name, lambda notify: fabric.restore(notify=notify))
    if problem is not None:
        failed = problem.failures if isinstance(problem, NotRestoredError) else bench.switches
        pytestconfig.stash[UNRESTORED][name] = frozenset(failed)


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
    from lightrig.harness.plugin.collection import physical_ports

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
    from lightrig.harness.plugin.collection import instruments_of
    from lightrig.harness.signals import uninterrupted
    from lightrig.instruments.core.capabilities import Restorable

    name = chosen.get(kind)
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
    from lightrig.harness.measure.closure import unclosed
    from lightrig.harness.measure.recording import Recording, SimulatedRecording
    from lightrig.harness.record import Context, RecordError
    from lightrig.harness.record.attempts import ATTEMPT
    from lightrig.harness.record.earlier_nights import values_before
    from lightrig.harness.record.row import RowError

    # Nothing sets events aside on hardware.
    kind = Recording if bench.world is None else SimulatedRecording
    run = pytestconfig.stash[RUN]
    test = request.node.nodeid
    conditions = {**row_conditions(request), **attempt_condition(request.node)}
    undecided: list[str] = []
    stored: list[bool] = []
    found: list[Finding] = []
    request.node.stash[INCONCLUSIVE] = undecided
    request.node.stash[FOUND] = found

    def store_on(given: Bench | None, more: Mapping[str, Any]) -> Callable[[Sequence[Row]], None]:
        record = run.recorder(given or bench, test, {**conditions, **more})

        def recorded(rows: Sequence[Row]) -> None:
            if any(ATTEMPT in row.conditions for row in rows):
                raise RowError(f"the condition {ATTEMPT!r} is the test's own; name it otherwise")
            stored.append(True)
            record(rows)
            found.extend(unclosed(rows))

        return recorded

    def before(quantity: str, more: Mapping[str, Any]) -> Sequence[Mapping[str, float]]:
        simulated = bool(bench.simulated)
        context = Context(bench.testbed.name, test, (), simulated, {**conditions, **more})
        try:
            return values_before(run.folder, run.night, context, quantity)
        except RecordError as error:
            recording.note_once("nights before", f"earlier nights are not compared: {error}")
            return ()

    recording = kind(
        store_on(bench, {}),
        bench.testbed.limits,
        store_on=store_on,
        judged=partial(run.judged, test),
        undecided=undecided.append,
        note=partial(run.note, bench.testbed.name),
        before=before,
        found=found.extend,
        test=request.node.name,
    )
    request.node.stash[MEASURED] = lambda: bool(recording.events or stored)
    lightrig_port_counters.begin()
    yield recording
    try:
        if stored or recording.events:
            lightrig_port_counters.record(recording)
    finally:
        recording.end(bench.clock.now())


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
