"""Collection: tests are spread over testbeds, plans and instruments, from the files alone.

A test that a testbed can never run, since it lacks an instrument, a kind of server or a plan, is
deselected, and counted with its reason. A skip is left for what is missing
today and can be added.
"""

import inspect
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeAlias

import pytest

from lightrig.harness.bench.opened_bench import instruments_of, physical_ports
from lightrig.harness.plugin.keys import TESTBEDS
from lightrig.harness.plugin.relocks import is_unasked
from lightrig.harness.plugin.soaks import is_deselected, is_soak, soak_obstacle
from lightrig.instruments.core.registry import NoDriverError, driver
from lightrig.testbeds import PlanPair, Testbed, plan_pairs

MOST_COUNTS = 2
"""Number of counts of moved circuits that a test is parametrized with, besides all circuits."""

INSTRUMENTS = (
    "power_meter",
    "light_source",
    "attenuator",
    "bit_error_tester",
    "climate_chamber",
    "oscilloscope",
    "polarization_controller",
)
"""Fixtures that are one of a testbed's instruments; each has the name of its kind."""

PREFIX = "lightrig_"
"""Of the fixtures that hold a test's parameters; those without it return the same values.

A project may have fixtures of its own called `testbed` or `plan`; none begins like this.
"""

Reasons: TypeAlias = dict[str, Counter[str]]
"""Numbers of deselected tests, by the testbed that cannot run them and the reason."""

DESELECTED = pytest.StashKey[Reasons]()
_PENDING = pytest.StashKey[dict[str, str]]()
"""Reasons of the function that is being collected, by the testbeds that cannot run it."""

_MOVES = pytest.StashKey[dict[tuple[str, bool, tuple[str, ...]], list[tuple[Any, ...]]]]()
"""Plans, transitions and counts of circuits, by testbed and by which of them a test asks for."""


class InstrumentSelection(dict[str, str]):
    """The name of one instrument for each kind that a test takes.

    several: the kinds of which the testbed has more than one, so that the name distinguishes tests.
    """

    several: list[str]

    def __str__(self) -> str:
        return "/".join(self[kind] for kind in self.several)


class NotApplicable(pytest.Item):
    """A test on a testbed that can never run it; it is deselected after collection.

    reason: a sentence. fixturenames: what it takes by name.
    """

    testbed: str
    reason: str
    fixturenames: Sequence[str] = ()

    def runtest(self) -> NoReturn:
        """Refuse: it is deselected before tests run."""
        raise NotImplementedError(self.reason)


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    config.stash[DESELECTED], config.stash[_PENDING], config.stash[_MOVES] = {}, {}, {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Spread a test over testbeds, plans, counts of circuits and instruments."""
    known = ("testbed", "plan", "transition", "moving", "instruments")
    wanted = [name for name in known if PREFIX + name in metafunc.fixturenames]
    if "testbed" not in wanted:
        return
    kinds = [kind for kind in INSTRUMENTS if kind in metafunc.fixturenames]
    is_whole = needs_whole_plans(metafunc.definition)
    rows = []
    for testbed in metafunc.config.stash[TESTBEDS]:
        reason = function_obstacle(testbed, metafunc)
        if not reason:
            # Counts of circuits cost up to a second a testbed, the same for each test.
            asked = testbed.name, is_whole, tuple(wanted)
            moves = metafunc.config.stash[_MOVES]
            if asked not in moves:
                # What needs whole plans is inconclusive where ports are out, not without plans.
                stated = testbed.out.stated if is_whole else None
                moves[asked] = list(move_parameters(stated or testbed, wanted))
            found = list(parameter_rows(testbed, moves[asked], wanted, kinds))
        else:
            found = []
        rows += [pytest.param(*values, id="/".join(id_parts(values))) for values in found]
        if not found:
            reason = reason or f"no {missing_plan(wanted)}"
            metafunc.config.stash[_PENDING][testbed.name] = reason
    if rows:
        names = [PREFIX + name for name in wanted]
        metafunc.parametrize(names, rows, indirect=True, scope="session")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> Iterator[None]:
    """Add an item for each testbed that cannot run a function; all its items, where none can."""
    pending = collector.config.stash[_PENDING]
    pending.clear()
    found: Any = yield
    if not pending:
        return found  # type: ignore[no-any-return]
    items = [item for item in found if _testbed_of(item)]
    for testbed, reason in pending.items():
        item = NotApplicable.from_parent(collector, name=f"{name}[{testbed}]")
        item.testbed, item.reason = testbed, reason
        item.fixturenames = (
            ["lightrig_testbed", *inspect.getfullargspec(obj).args] if callable(obj) else ()
        )
        item.own_markers.extend(getattr(obj, "pytestmark", ()))  # for -m
        items.append(item)
    pending.clear()
    return items  # type: ignore[return-value]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep each testbed's tests together; deselect those that it can never run."""
    testbeds: list[Testbed] = config.stash[TESTBEDS]
    order = {testbed.name: number for number, testbed in enumerate(testbeds)}
    items.sort(key=lambda item: order.get(_testbed_of(item), -1))
    retained, rest = [], []
    reasons: defaultdict[str, Counter[str]] = defaultdict(Counter)
    fixtures: object = None
    soak = unasked = False
    for item in items:
        # A function's tests follow each other, and share the list of what they take by name.
        if (names := getattr(item, "fixturenames", ())) is not fixtures:
            fixtures, soak = names, is_soak(item)
            unasked = is_deselected(item) or is_unasked(item)
        if unasked:  # of whatever testbed, so that this is no reason of one
            rest.append(item)
            continue
        reason = item_obstacle(item)
        if reason is None and soak and (testbed := testbed_of(item)):
            reason = soak_obstacle(testbed)
        if reason is None:
            retained.append(item)
            continue
        rest.append(item)
        reasons[_testbed_of(item)][reason] += 1
    items[:] = retained
    config.stash[DESELECTED] = dict(reasons)
    if rest:
        config.hook.pytest_deselected(items=rest)


# ------------------------------------------------------------------------------ parameters


def parameter_rows(
    testbed: Testbed, moves: Sequence[tuple[Any, ...]], wanted: list[str], kinds: list[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield the values of a test's parameters: each move with each choice of instruments.

    Args:
        testbed: first of the values.
        moves: of `move_parameters`.
        wanted: names of the parameters, without prefix.
        kinds: of the instruments that the test takes, one of each.
    """
    names = [instruments_of(testbed, kind) for kind in kinds]
    chosen = [
        InstrumentSelection(zip(kinds, each, strict=True)) for each in itertools.product(*names)
    ]
    for each in chosen:
        each.several = [kind for kind, known in zip(kinds, names, strict=True) if len(known) > 1]
    for moved in moves:
        for each in chosen:
            yield testbed, *moved, *([each] if "instruments" in wanted else [])


def move_parameters(testbed: Testbed, wanted: list[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the plans, transitions or counts of circuits that a test asks for by name."""
    if "plan" in wanted:
        yield from ((name,) for name in testbed.plans)
        return
    if "transition" not in wanted:
        yield ()
        return
    for pair in plan_pairs(testbed):
        if "moving" not in wanted:
            yield (pair,)
            continue
        # The greatest count is the whole change, which other tests measure.
        counts = list(itertools.islice(pair.link_counts(testbed), MOST_COUNTS + 1))
        for moving in counts[:-1]:
            yield pair, moving


def id_parts(values: tuple[Any, ...]) -> Iterator[str]:
    """Yield the parts of a test's id, such as rings4, ring-to-mesh, 4-circuits."""
    for value in values:
        if isinstance(value, Testbed):
            yield value.name
        elif isinstance(value, PlanPair):
            yield f"{value.before.name}-to-{value.after.name}"
        elif isinstance(value, int):
            yield f"{value}-circuits"
        elif name := str(value):
            yield name


# ---------------------------------------------------------------------------- not applicable


def item_obstacle(item: pytest.Item) -> str | None:
    """Return the reason for which the item's testbed can never run it; None if it can."""
    if isinstance(item, NotApplicable):
        return item.reason
    # Asked first: of 10,000 tests, looking through all marks takes a tenth of the collection.
    if "needs" not in item.keywords:
        return None
    params = _params(item)
    if f"{PREFIX}testbed" not in params:
        return None
    known = {name.removeprefix(PREFIX): value for name, value in params.items()}
    testbed = testbed_of(item)
    if testbed is not None and testbed.out and needs_whole_plans(item):
        known["testbed"] = testbed.out.stated  # what it lacks without the ports does not count
    if "plan" in known and f"{PREFIX}plan" in params:
        known["plan"] = known["testbed"].plans[known["plan"]]
    for mark in item.iter_markers("needs"):
        if (lacks := mark.kwargs.get("lacks")) is not None:
            names = inspect.signature(lacks).parameters
            if reason := lacks(**{name: known[name] for name in names}):
                return str(reason)
        pair, circuits = known.get("transition"), mark.kwargs.get("circuits")
        if circuits is not None and pair is not None and circuits not in pair.counts():
            return f"no transition of {circuits} circuits"
    return None


def needs_whole_plans(item: pytest.Item) -> bool:
    """Whether a test leaves nothing out: a claim, a test of a system, or one marked so."""
    if any(item.get_closest_marker(name) for name in ("claim", "of_system")):
        return True
    return any(mark.kwargs.get("whole_plans") for mark in item.iter_markers("needs"))


def function_obstacle(testbed: Testbed, metafunc: pytest.Metafunc) -> str | None:
    """Return the reason for which a testbed can never run a function, by marks and fixtures."""
    names = metafunc.fixturenames
    for mark in metafunc.definition.iter_markers("of_testbed"):
        if testbed.name not in mark.args:
            return "for another testbed"
    for mark in metafunc.definition.iter_markers("of_system"):
        if testbed.system not in mark.args:
            return f"not a testbed of {' or '.join(mark.args)}"
    kinds = [kind for kind in INSTRUMENTS if kind in names and not instruments_of(testbed, kind)]
    lacking = [f"no {kind.replace('_', ' ')}" for kind in kinds]
    if "nic_ports" in names and not physical_ports(testbed):
        lacking.append("no physical NIC port")
    if lacking:
        *rest, last = lacking
        return f"{', '.join(rest)}{' and ' * bool(rest)}{last}"
    for name, without in _WITHOUT.items():
        if name in names and (reason := without(testbed)):
            return reason
    hook = metafunc.definition.ihook.pytest_lightrig_unavailable
    reasons = (hook(fixture=name, testbed=testbed) for name in names)
    return next(filter(None, reasons), None)


def _without_telemetry(testbed: Testbed) -> str:
    """Whether a switch's driver reads telemetry; a model without a driver fails later, by name."""
    for spec in testbed.optical_switches.values():
        with suppress(NoDriverError):
            if hasattr(driver(spec.model), "telemetry"):
                return ""
    return "no transceivers with telemetry"


def _overheard(testbed: Testbed) -> str:
    """Return the reason for which datagrams between ports cannot be observed, or ""."""
    switches = testbed.switches.keys() - testbed.optical_switches.keys()
    if switches and len(physical_ports(testbed)) < len(testbed.working_ports):
        return (
            f"every port at {', '.join(sorted(switches))}, a bridge of the kernel, receives the "
            "datagrams of all others, a thousand a second each"
        )
    return ""


def _without_transceivers(testbed: Testbed) -> str:
    """Whether a transceiver of a NIC port can be read; a namespace's port has none."""
    servers = {name for name, spec in testbed.servers.items() if not spec.is_namespace}
    ports = [one.port for one in testbed.nic_ports if one.port.owner in servers]
    return "" if any(map(testbed.transceiver_of, ports)) else "no NIC port with a transceiver"


_WITHOUT: Mapping[str, Callable[[Testbed], str]] = {
    "measure_fiber_losses": _without_transceivers,
    "modules": _without_telemetry,
    "plan": _overheard,
    "transition": _overheard,
}
"""Reason for which a testbed cannot offer a fixture; empty where it can."""


def missing_plan(wanted: list[str]) -> str:
    """Return which plans a testbed lacks for the parameters that a test asks for."""
    if "plan" in wanted:
        return "plan"
    return "two plans of which some circuits can move alone" if "moving" in wanted else "two plans"


def _params(item: pytest.Item) -> Mapping[str, Any]:
    callspec = getattr(item, "callspec", None)
    return callspec.params if callspec else {}


def testbed_of(item: pytest.Item) -> Testbed | None:
    """The testbed that an item is a question to, if it is to any."""
    found = _params(item).get(f"{PREFIX}testbed")
    return found if isinstance(found, Testbed) else None


def _testbed_of(item: pytest.Item) -> str:
    if isinstance(item, NotApplicable):
        return item.testbed
    testbed = testbed_of(item)
    return testbed.name if testbed else ""
