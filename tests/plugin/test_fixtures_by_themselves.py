"""Fixtures of the plugin, each called by itself: order, what is passed on, what ends the run."""

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness import recorded_test
from lightrig.harness.bench import UnsupportedHostError, opened_bench
from lightrig.harness.bench.kernel_messages import KernelMessages
from lightrig.harness.bench.lease import LeaseConflictError
from lightrig.harness.bench.restoring import NotRestoredError
from lightrig.harness.bench.saved_state import SavedStateError
from lightrig.harness.findings import Finding
from lightrig.harness.jobs import fixtures as jobs
from lightrig.harness.measure import sampling
from lightrig.harness.modes import SAMPLES
from lightrig.harness.plugin import fixtures
from lightrig.harness.plugin.collection import InstrumentSelection
from lightrig.harness.plugin.keys import (
    BENCHES,
    FAULTS,
    FOUND,
    INCONCLUSIVE,
    NO_TESTBED,
    OPENED,
    RUN,
)
from lightrig.harness.plugin.traces import TRAFFIC, Traces
from lightrig.harness.record import Row
from lightrig.harness.record.row import RowError
from lightrig.instruments.core.capabilities import ModuleTelemetry, Restorable
from lightrig.testbeds import LightrigError, PlanPair
from lightrig.testbeds.model import OutOfService

MS = 1_000_000


def function_of(fixture: Any) -> Any:
    return inspect.unwrap(fixture)


class Lab:
    """A testbed, and a run that notes what is asked of it."""

    def __init__(self) -> None:
        self.noted: list[Any] = []
        self.failing: dict[str, Exception] = {}
        self.run = SimpleNamespace(
            name="7", night="2026-03-14", folder=Path("here"), note=self.part("note"),
            not_restored=self.part("not restored"), judged=self.part("judged"),
        )  # fmt: skip
        self.testbed: Any = SimpleNamespace(
            name="bench", notes=["a gate"], limits={}, path="f", lab_folder=Path("no-such-folder"),
            plans={}, timezone=None, out=OutOfService(),
        )  # fmt: skip
        self.bench: Any = SimpleNamespace(
            testbed=self.testbed, notes=["a late clock"], switches={"a": 1, "b": 2},
            in_process=False, close=self.part("closed"), world=None, simulated=frozenset(),
            external=frozenset(), servers={}, coverage=None,
            clock=SimpleNamespace(virtual=False, now=lambda: 77, parallel=lambda *_: []),
            instruments={}, roce_indices=SimpleNamespace(moved=dict),
        )  # fmt: skip
        self.bench.kernel = KernelMessages({}, self.bench.clock)
        stash: Any = pytest.Stash()
        stash[RUN], stash[BENCHES], stash[OPENED] = self.run, {}, {}
        self.config: Any = SimpleNamespace(
            stash=stash,
            option=SimpleNamespace(instruments="auto", profile="quick"),
            getoption={"seed": 9, "hold": 5, "traces": "none"}.get,
        )
        stash[TRAFFIC] = Traces(self.config)
        self.request: Any = SimpleNamespace(session=SimpleNamespace(exitstatus=0))
        self.settings: Any = SimpleNamespace(
            save_initial_state=self.part("save"), restore=self.part("restore"),
            restore_off=self.part("restore off"),
        )  # fmt: skip
        self.fabric: Any = SimpleNamespace(
            save_initial_state=self.part("save circuits"), restore=self.part("restore circuits"),
            states={},
        )  # fmt: skip

    def part(self, name: str) -> Any:
        def called(*given: object, **more: Any) -> None:
            self.noted.append((name, *given) if given else name)
            if "obstacles" in more:
                self.noted.append(more["obstacles"]("b"))
            if name in self.failing:
                raise self.failing[name]

        return called


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab()

    def bind(*given: object, on_clock: None) -> Any:
        assert on_clock is None  # nothing is kept
        made.part("bind")(*given)
        return made.bench

    def saved(given: object) -> Any:
        assert given is made.bench
        return made.settings

    def save_circuits() -> None:
        made.part("save circuits")()
        made.fabric.states["a"] = "found"

    made.fabric.save_initial_state = save_circuits
    monkeypatch.setattr("lightrig.harness.bench.bind", bind)
    monkeypatch.setattr(opened_bench, "SavedInstruments", saved)
    monkeypatch.setattr(opened_bench, "Fabric", lambda bench: made.fabric)
    monkeypatch.setattr(opened_bench, "on_path", lambda *given: ("on path", *given))
    return made


# ------------------------------------------------------------------------ bench and fabric


def test_a_bench_is_bound_noted_restored_and_closed(lab: Lab) -> None:
    steps = function_of(fixtures.bench)(lab.request, lab.testbed, lab.config)
    assert next(steps) is lab.bench
    assert lab.noted == [
        ("bind", lab.testbed, "auto", 9, "run 7 of testbed bench", 5),
        "save",
        ("note", "bench", "a gate"),
        ("note", "bench", "a late clock"),
    ]
    stash = lab.config.stash
    assert stash[BENCHES] == {"bench": lab.bench}
    assert stash[OPENED]["bench"].settings is lab.settings
    lab.noted.clear()
    assert list(steps) == []
    on_path = ("on path", lab.testbed, "b", lab.bench.switches, frozenset())
    assert lab.noted == ["restore circuits", "restore", on_path, "closed"]
    assert (stash[BENCHES], stash[OPENED]) == ({}, {})


def test_settings_that_are_not_restored_are_reported_at_the_end(lab: Lab) -> None:
    steps = function_of(fixtures.bench)(lab.request, lab.testbed, lab.config)
    next(steps)
    lab.failing["restore"] = LightrigError("laser is on")
    lab.noted.clear()
    assert list(steps) == []
    on_path = ("on path", lab.testbed, "b", lab.bench.switches, frozenset())
    assert lab.noted[1:] == ["restore", on_path, ("not restored", "bench", "laser is on"), "closed"]


def test_a_lab_that_cannot_be_saved_ends_the_run(lab: Lab) -> None:
    lab.failing["save"] = SavedStateError("damaged")
    with pytest.raises(pytest.exit.Exception, match="damaged") as ended:
        next(function_of(fixtures.bench)(lab.request, lab.testbed, lab.config))
    assert (ended.value.returncode, lab.noted[-2:]) == (3, ["save", "closed"])
    assert lab.config.stash[BENCHES] == {}
    lab.failing["bind"] = LeaseConflictError("run 6 has it")
    with pytest.raises(pytest.exit.Exception, match="run 6 has it") as ended:
        next(function_of(fixtures.bench)(lab.request, lab.testbed, lab.config))
    assert ended.value.returncode == 3


def test_a_host_that_cannot_simulate_skips(lab: Lab) -> None:
    lab.failing["bind"] = UnsupportedHostError("no namespaces")
    with pytest.raises(pytest.skip.Exception, match="no namespaces"):
        next(function_of(fixtures.bench)(lab.request, lab.testbed, lab.config))


@pytest.fixture
def steps(lab: Lab) -> Any:
    """The bench's fixture, begun."""
    begun = function_of(fixtures.bench)(lab.request, lab.testbed, lab.config)
    next(begun)
    lab.noted.clear()
    return begun


def test_light_is_off_before_circuits_are_restored(lab: Lab, steps: Any) -> None:
    assert function_of(fixtures.fabric)(lab.bench, lab.config) is lab.fabric
    assert lab.noted == ["save circuits"]
    assert list(steps) == []
    on_path = ("on path", lab.testbed, "b", lab.bench.switches, frozenset())
    assert lab.noted[1:] == ["restore off", "restore circuits", "restore", on_path, "closed"]


def test_in_one_process_nothing_is_saved(lab: Lab, steps: Any) -> None:
    lab.bench.in_process = True
    function_of(fixtures.fabric)(lab.bench, lab.config)
    assert lab.noted == []


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (LightrigError("no reply"), {"a", "b"}),
        (NotRestoredError(SimpleNamespace(path="f"), {"b": LightrigError("no")}), {"b"}),  # type: ignore[arg-type]
    ],
)
def test_light_of_switches_that_are_not_restored_is_not_raised(
    lab: Lab, steps: Any, error: Exception, failed: set[str]
) -> None:
    function_of(fixtures.fabric)(lab.bench, lab.config)
    lab.failing["restore circuits"] = error
    assert list(steps) == []
    on_path = ("on path", lab.testbed, "b", lab.bench.switches, frozenset(failed))
    assert lab.noted[-4:] == ["restore", on_path, ("not restored", "bench", str(error)), "closed"]


def test_circuits_that_cannot_be_saved_end_the_run(lab: Lab, steps: Any) -> None:
    lab.failing["save circuits"] = SavedStateError("damaged")
    with pytest.raises(pytest.exit.Exception, match="damaged") as ended:
        function_of(fixtures.fabric)(lab.bench, lab.config)
    assert ended.value.returncode == 3
    assert list(steps) == []
    on_path = ("on path", lab.testbed, "b", lab.bench.switches, frozenset({"a", "b"}))
    assert lab.noted[-3:] == ["restore", on_path, "closed"]


# ---------------------------------------------------------------------------- instruments


def test_parameters_are_those_of_the_request_or_none_at_all() -> None:
    chosen = InstrumentSelection(light_source="l2")
    of_request = function_of(fixtures.lightrig_instruments)
    assert of_request(SimpleNamespace(param=chosen)) is chosen
    assert of_request(SimpleNamespace()) == {}
    assert function_of(fixtures.lightrig_testbed)(SimpleNamespace(param="lab")) == "lab"
    with pytest.raises(pytest.skip.Exception, match=NO_TESTBED):
        function_of(fixtures.lightrig_testbed)(SimpleNamespace())


class Modules(ModuleTelemetry):
    pass


Modules.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


def test_only_switches_of_modules_are_asked_what_they_draw(lab: Lab) -> None:
    two = [Modules(), Modules()]
    lab.bench.switches = {"plain": object(), "x": two[0], "y": two[1]}
    assert function_of(fixtures.modules)(lab.bench) == two
    lab.bench.switches = {"plain": object()}
    with pytest.raises(pytest.skip.Exception, match="testbed bench has no modules"):
        function_of(fixtures.modules)(lab.bench)


class Laser(Restorable):
    def __init__(self, noted: list[Any]) -> None:
        self._noted = noted

    def snapshot(self, channels: Any) -> Any:
        self._noted.append(("snapshot", list(channels)))
        return lambda: self._noted.append("put back")


Laser.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


def test_settings_are_put_back_also_where_a_test_fails(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    laser, meter = Laser(lab.noted), object()
    lab.bench.instruments = {"l1": object(), "l2": laser, "m": meter}
    lab.testbed.instruments = {"l2": SimpleNamespace(channels=3)}
    chosen = InstrumentSelection(light_source="l2", power_meter="m")
    light_source = function_of(fixtures.light_source)
    steps: Any = light_source(lab.bench, chosen)
    assert next(steps) is laser
    with pytest.raises(ValueError, match="a test"):
        steps.throw(ValueError("a test"))
    assert lab.noted == [("snapshot", [1, 2, 3]), "put back"]
    assert list(function_of(fixtures.power_meter)(lab.bench, chosen)) == [meter]
    # Asked for while the test ran: the first of its kind, if there is one.
    named = {"light_source": ["l2", "l1"], "bit_error_tester": []}
    monkeypatch.setattr(opened_bench, "instruments_of", lambda testbed, kind: named[kind])
    steps = light_source(lab.bench, InstrumentSelection())
    assert next(steps) is laser
    steps.close()
    with pytest.raises(pytest.skip.Exception, match="testbed bench has no bit error tester"):
        next(function_of(fixtures.bit_error_tester)(lab.bench, InstrumentSelection()))


def test_rdma_is_asked_of_testbeds_that_have_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "lightrig.harness.jobs.bench.rdma."
    monkeypatch.setattr(f"{module}without_rdma", lambda testbed: "no device is named")
    monkeypatch.setattr(f"{module}RdmaOverCircuits", lambda bench: ("rdma of", bench))
    with pytest.raises(pytest.skip.Exception, match="testbed bench: no device is named"):
        function_of(jobs.rdma)(lab.bench)
    monkeypatch.setattr(f"{module}without_rdma", lambda testbed: "")
    assert function_of(jobs.rdma)(lab.bench) == ("rdma of", lab.bench)


@pytest.mark.parametrize(
    ("name", "module", "others", "fails"),
    [
        ("plan", "suite", ["plan", "lightrig_plan"], True),
        ("plan", "suite", ["plan"], False),
        ("plan", fixtures.__name__, ["plan", "lightrig_plan"], False),
        ("server", "suite", ["server", "lightrig_server"], False),
    ],
)
def test_a_fixture_that_hides_ours_is_named(
    name: str, module: str, others: list[str], fails: bool
) -> None:
    def made() -> None: ...

    made.__module__ = module
    definition: Any = SimpleNamespace(argname=name, func=made)
    request: Any = SimpleNamespace(fixturenames=others)
    if not fails:
        fixtures.pytest_fixture_setup(definition, request)
        return
    with pytest.raises(pytest.fail.Exception, match=r"'plan' of .*hides Lightrig's"):
        fixtures.pytest_fixture_setup(definition, request)


# ------------------------------------------------------------------------ number of events


@pytest.mark.parametrize(
    ("given", "profile", "virtual", "expected"),
    [
        (None, "quick", False, "least"),
        (None, "quick", True, "needed"),
        (None, "night", False, "needed"),
        (13, "quick", False, 13),
        (13, "night", True, 13),
    ],
)
def test_samples_are_what_limits_need_unless_time_is_short(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, given: int | None, profile: str,
    virtual: bool, expected: object,
) -> None:  # fmt: skip
    usual = SAMPLES[profile]["virtual" if virtual else "system"]
    needed = usual + 1_000
    asked: list[Any] = []

    def events_needed(limits: Any, number: int) -> int:
        asked.append((limits, number))
        return needed

    monkeypatch.setattr(sampling, "events_needed", events_needed)
    monkeypatch.setattr(
        "lightrig.harness.measure.recording.limits_under", lambda limits, names: [limits, names]
    )
    lab.bench.clock.virtual = virtual
    lab.testbed.limits = {"q": 1}
    mark = SimpleNamespace(args=("q",))
    options = {"samples": given, "profile": profile}
    request = SimpleNamespace(
        config=SimpleNamespace(getoption=options.get),
        node=SimpleNamespace(get_closest_marker={"limits": mark}.get),
    )
    value = {"least": usual, "needed": needed}.get(str(expected), expected)
    assert function_of(fixtures.samples)(request, lab.bench) == value
    assert all(one == ([{"q": 1}, ("q",)], usual) for one in asked)
    needed = usual - 1
    if expected == "least":
        assert function_of(fixtures.samples)(request, lab.bench) == needed
    made: list[Any] = []
    monkeypatch.setattr(
        sampling, "Events", lambda *args, **named: made.append((*args[:3], args[3](), named))
    )
    function_of(fixtures.events)(request, lab.bench, "measure")
    fixed = given if expected != "least" else usual - 1
    assert made == [
        ("measure", [{"q": 1}, ("q",)], usual, 77, {"given": fixed, "real": not virtual})
    ]
    request.node.get_closest_marker = {}.get
    function_of(fixtures.events)(request, lab.bench, "measure")
    assert made[-1][:2] == ("measure", [])


# -------------------------------------------------------------------------------- measure


def test_conditions_are_those_of_parameters_and_faults() -> None:
    stash = pytest.Stash()
    stash[FAULTS] = ["fiber cut", "clock step"]
    plans = [SimpleNamespace(name=name) for name in ("one", "two")]
    several = InstrumentSelection(light_source="l2", power_meter="m")
    several.several = ["power_meter"]
    parameters = {
        "lightrig_transition": PlanPair(*plans),  # type: ignore[arg-type]
        "lightrig_instruments": several,
        "lightrig_moving": 3,
        "size": "64 B",
        "share": 0.5,
        "thing": object(),
    }
    node = SimpleNamespace(stash=stash, callspec=SimpleNamespace(params=parameters))
    assert fixtures.row_conditions(SimpleNamespace(node=node)) == {  # type: ignore[arg-type]
        "faults": "fiber cut; clock step",
        "before": "one",
        "after": "two",
        "power_meter": "m",
        "moving": 3,
        "size": "64 B",
        "share": 0.5,
    }
    bare = SimpleNamespace(node=SimpleNamespace(stash=pytest.Stash()))
    assert fixtures.row_conditions(bare) == {}  # type: ignore[arg-type]


def test_rows_go_to_the_run_with_their_conditions_and_are_looked_at(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {}

    class Recording:
        def __init__(self, store: Any, limits: Any, **named: Any) -> None:
            made.update(named, store=store, limits=limits, recording=self)

        events = 0

        def end(self, time: int) -> None:
            lab.noted.append(("end", time))

        def note_once(self, key: str, text: str) -> None:
            lab.noted.append((key, text))

    def recorder(bench: Any, test: str, conditions: Any) -> Any:
        return lambda rows: lab.noted.append((bench, test, conditions, rows))

    monkeypatch.setattr(recorded_test, "Recording", Recording)
    monkeypatch.setattr(
        recorded_test, "unclosed", lambda rows: [Finding("of", f"{len(rows)} rows")]
    )
    before: list[Any] = []
    monkeypatch.setattr(recorded_test, "values_before", lambda *given: before.append(given) or 5)
    lab.run.recorder = recorder
    stash = pytest.Stash()
    callspec = SimpleNamespace(params={"size": 64})
    node = SimpleNamespace(nodeid="t.py::a", name="a", stash=stash, callspec=callspec)
    read: list[Any] = []
    counters = SimpleNamespace(begin=lambda: read.append("begin"), record=read.append)
    request = SimpleNamespace(node=node)
    steps = function_of(fixtures.measure)(request, lab.config, lab.bench, counters)
    assert next(steps) is made["recording"]
    assert read == ["begin"]
    assert (made["limits"], made["test"]) == (lab.testbed.limits, "a")
    rows = [Row("lab", "q", 1, None, None, "ns", 0, {})] * 3
    made["store"](rows)
    second = object()
    made["store_on"](second, {"size": 7, "lane": 1})(rows[:2])
    made["store_on"](None, {})(rows[:1])
    test = "t.py::a"
    assert lab.noted == [
        (lab.bench, test, {"size": 64}, rows),
        (second, test, {"size": 7, "lane": 1}, rows[:2]),
        (lab.bench, test, {"size": 64}, rows[:1]),
    ]
    made["found"]([Finding("no light", "dark")])
    assert list(map(str, stash[FOUND])) == ["3 rows", "2 rows", "1 rows", "dark"]
    made["undecided"]("9 more")
    assert stash[INCONCLUSIVE] == ["9 more"]
    lab.noted.clear()
    made["judged"]("limit", "verdict")
    made["note"]("a gate")
    assert lab.noted == [("judged", test, "limit", "verdict"), ("note", "bench", "a gate")]
    assert made["before"]("q", {"lane": 2}) == 5
    ((folder, night, context, quantity),) = before
    assert (folder, night, quantity) == (Path("here"), "2026-03-14", "q")
    assert (context.testbed, context.test, context.simulated) == ("bench", test, False)
    assert context.conditions == {"size": 64, "lane": 2}
    lab.noted.clear()
    assert list(steps) == []
    assert lab.noted == [("end", 77)]
    assert read == ["begin", made["recording"]]
    with pytest.raises(RowError, match="the condition 'attempt' is the test's own"):
        made["store"]([Row("lab", "q", 1, None, None, "ns", 0, {"attempt": 2})])


def test_a_repeated_test_numbers_its_attempts() -> None:
    item: Any = SimpleNamespace(stash=pytest.Stash())
    assert [fixtures.attempt_condition(item) for _ in range(3)] == [
        {},
        {"attempt": 2},
        {"attempt": 3},
    ]
    # pytest-rerunfailures counts those of workers that crashed, too.
    item = SimpleNamespace(stash=pytest.Stash(), execution_count=4)
    assert fixtures.attempt_condition(item) == {"attempt": 4}
