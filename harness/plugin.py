"""The pytest face: options, fixtures, and the report at the end.

Without `--testbed` the plugin does nothing: other projects' tests are left alone.
"""

import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from harness.bench import Bench, Fabric, LabTroubleError, NotHereError, bind
from harness.bench.binding import MODES, Mode
from harness.bench.keeping import FoundState, Lease, LeaseHeldError, state_folder
from harness.measure.links import LinkObservation
from harness.measure.measure import Measure, NotEnoughDataError
from harness.run import Run
from instruments.capabilities import OpticalSwitch, Server
from testbeds import (
    PlanPair,
    Testbed,
    TestbedError,
    load,
    plan_pairs,
)

SAMPLES = {"quick": {"virtual": 60, "system": 20}, "night": {"virtual": 300, "system": 100}}
"""Events a test, by profile and clock; a p99 needs 299 for an upper bound at 95 %."""

LAB_TROUBLE = 3
"""Exit status when hardware was asked for and did not answer."""

_run = pytest.StashKey[Run]()
_testbeds = pytest.StashKey[list[Testbed]]()


# ---------------------------------------------------------------------------- options


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run."""
    group = parser.getgroup("lightrig", "optical testbeds")
    group.addoption(
        "--testbed",
        action="append",
        default=[],
        metavar="FILE",
        help="description of a testbed to measure; may be given several times",
    )
    group.addoption(
        "--instruments",
        choices=MODES,
        default="auto",
        help="auto: simulate optical domains that do not answer in full (default); "
        "hardware: an absence is an error; simulated: contact nothing outside this machine",
    )
    group.addoption("--seed", type=int, default=0, help="seed of simulated worlds (default 0)")
    group.addoption("--samples", type=int, default=None, help="events a test")
    group.addoption("--profile", choices=sorted(SAMPLES), default="quick", help="how many events")
    group.addoption(
        "--results", type=Path, default=None, metavar="DIR", help="folder of runs (results/)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Read the testbeds and begin the run."""
    config.addinivalue_line(
        "markers", "needs(circuits=N): skip where a testbed cannot move N circuits at once"
    )
    files = config.getoption("testbed")
    if not files:
        return
    try:
        config.stash[_testbeds] = [load(file) for file in files]
    except (TestbedError, OSError) as error:
        raise pytest.UsageError(str(error)) from error
    names = [testbed.name for testbed in config.stash[_testbeds]]
    if len(set(names)) < len(names):
        raise pytest.UsageError(f"two testbeds have the same name: {', '.join(names)}")
    if config.option.collectonly:
        return
    run = Run(
        config.getoption("results") or config.rootpath / "results",
        {
            "seed": config.getoption("seed"),
            "instruments": config.getoption("instruments"),
            "command": shlex.join(["pytest", *config.invocation_params.args]),
            "testbeds": {t.name: str(t.path) for t in config.stash[_testbeds]},
        },
    )
    config.stash[_run] = run
    if config.pluginmanager.hasplugin("html") and not config.option.htmlpath:
        config.option.htmlpath = str(run.report)
        config.option.self_contained_html = True
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminated)


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    """A terminated night, or a closed terminal, puts the switches back like Ctrl-C."""
    raise KeyboardInterrupt("terminated")


# -------------------------------------------------------------------------- collection


_NO_TESTBED = pytest.mark.skip(reason="no testbed: give --testbed FILE")

MOST_COUNTS = 2
"""How many counts of circuits moved at once a test is spread over, besides all of them."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Spread tests over testbeds, pairs of their plans and counts, from the files alone."""
    wanted: list[str] = [
        n for n in ("testbed", "transition", "moving") if n in metafunc.fixturenames
    ]
    if "testbed" not in wanted or not _is_ours(metafunc):
        return
    rows: list[Any] = [
        pytest.param(*values, id="-".join(map(str, [values[0].name, *values[1:]])))
        for testbed in metafunc.config.stash.get(_testbeds, [])
        for values in _spread(testbed, wanted)
    ]
    none = pytest.param(*[None] * len(wanted), marks=_NO_TESTBED, id="no-testbed")
    metafunc.parametrize(tuple(wanted), rows or [none], indirect=True, scope="session")


def _is_ours(metafunc: pytest.Metafunc) -> bool:
    """Whether `testbed` is the fixture of this file, not another project's of that name."""
    definitions = metafunc._arg2fixturedefs.get("testbed", ())  # noqa: SLF001 - no public way
    return any(definition.func.__module__ == __name__ for definition in definitions[-1:])


def _spread(testbed: Testbed, wanted: list[str]) -> Iterator[tuple[Any, ...]]:
    if "transition" not in wanted:
        yield (testbed,)
        return
    for pair in plan_pairs(testbed):
        if "moving" not in wanted:
            yield testbed, pair
            continue
        for moving in pair.link_counts(testbed)[:-1][:MOST_COUNTS]:
            yield testbed, pair, moving


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep each testbed's tests together; skip what it cannot offer before any set-up."""
    testbeds: list[Testbed] = config.stash.get(_testbeds, [])
    order = {testbed.name: number for number, testbed in enumerate(testbeds)}
    items.sort(key=lambda item: order.get(_testbed_of(item), -1))
    for item in items:
        mark = item.get_closest_marker("needs")
        callspec = getattr(item, "callspec", None)
        pair = callspec.params.get("transition") if mark and callspec else None
        if mark is not None and isinstance(pair, PlanPair) and (why := _lacks(pair, **mark.kwargs)):
            item.add_marker(pytest.mark.skip(reason=why))


def _testbed_of(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    testbed = callspec.params.get("testbed") if callspec else None
    return testbed.name if isinstance(testbed, Testbed) else ""


def _lacks(pair: PlanPair, circuits: int) -> str | None:
    if circuits in pair.counts():
        return None
    possible = ", ".join(map(str, pair.counts()))
    return f"{pair} can move {possible} circuits at once, not {circuits}"


# ---------------------------------------------------------------------------- fixtures


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
    reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")
    for note in bound.notes if reporter else ():
        reporter.write_line(f"{testbed.name}: {note}")
    yield bound
    bound.close()
    if lease is not None:
        lease.release()


@pytest.fixture(scope="session")
def fabric(bench: Bench) -> Iterator[Fabric]:
    """Applies plans; puts the switches back as they were found."""
    found = None if bench.private else FoundState(bench.testbed.name, state_folder())
    fabric = Fabric(bench, found)
    yield fabric
    with _uninterrupted():
        fabric.restore()


class _uninterrupted:  # noqa: N801 - reads as a statement
    """Nobody's patience ends while the switches are put back."""

    def __enter__(self) -> None:
        ends = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
        self._handlers = {number: signal.signal(number, signal.SIG_IGN) for number in ends}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)


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
    """A measurement whose lack of data skips the test instead of failing it."""

    def judge(self, family: str) -> None:
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
    run = pytestconfig.stash[_run]
    return _Measure(fabric, links, run.recorder(fabric.bench, request.node.nodeid, conditions))


# ----------------------------------------------------------------------------- the end


@pytest.hookimpl(optionalhook=True)
def pytest_html_results_summary(prefix: list[str], session: pytest.Session) -> None:
    """Put what was measured on top of the report."""
    run = session.config.stash.get(_run, None)
    if run is not None:
        from harness.report import sections  # noqa: PLC0415 - plotting takes long to import

        described = {t.name: t for t in session.config.stash[_testbeds]}
        prefix.append(sections(run.record(), described))


@pytest.hookimpl(optionalhook=True)
def pytest_html_report_title(report: Any) -> None:
    """Name the page."""
    report.title = "Lightrig"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Iterator[None]:
    """End the journal, before the report is made from it.

    After a Ctrl-C, and with `-x`, the fixtures still stand here: pytest takes them down in
    this hook, after us, and only then are the switches put back.
    """
    run = session.config.stash.get(_run, None)
    if run is None:
        return (yield)
    with _uninterrupted():
        try:
            run.close({"exit": int(exitstatus), "tests": session.testscollected})
        except Exception as error:  # whatever it is, the switches come next
            print(f"lightrig: the record is incomplete: {error}", file=sys.stderr)
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        return (yield)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say where the results are."""
    run = config.stash.get(_run, None)
    if run is not None:
        terminalreporter.section("lightrig")
        terminalreporter.write_line(f"report   {run.report}")
        terminalreporter.write_line(f"journal  {run.folder / 'journal.jsonl'}")
