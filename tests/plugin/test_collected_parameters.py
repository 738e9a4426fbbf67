"""Parameters of tests, and why a testbed cannot run one, each for testbeds that differ in one."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness import plugin
from lightrig.harness.jobs import fixtures as jobs
from lightrig.harness.plugin import collection
from lightrig.harness.plugin.collection import DESELECTED, InstrumentSelection, NotApplicable
from lightrig.harness.plugin.keys import FILES, NO_TESTBED, TESTBEDS
from lightrig.instruments.core.registry import NoDriverError
from lightrig.testbeds import PlanPair, Port, Testbed, load
from lightrig.testbeds.model import OutOfService


def spec(kind: str) -> Any:
    return SimpleNamespace(kind=kind)


INSTRUMENTS = {
    "laser1": spec("light_source"),
    "meter": spec("power_meter"),
    "laser2": spec("light_source"),
    "voa": spec("attenuator"),
}


def lab_of(name: str = "opus", **more: Any) -> Any:
    given: dict[str, Any] = {
        "instruments": {}, "servers": {}, "nic_ports": [], "plans": {}, "system": "opus",
        "switches": {}, "optical_switches": {}, "only_namespaces": False,
    }  # fmt: skip
    given |= {"out": OutOfService(), **more}
    return SimpleNamespace(name=name, working_ports=given["nic_ports"], **given)


def server(namespace: bool = False, gpus: int = 0) -> Any:
    return SimpleNamespace(is_namespace=namespace, gpus=SimpleNamespace(count=gpus))


def nic(owner: str) -> Any:
    return SimpleNamespace(port=Port(owner, "nic0"))


def test_a_test_is_spread_over_every_choice_of_instruments() -> None:
    lab = lab_of(instruments=INSTRUMENTS)
    kinds = ["light_source", "power_meter"]
    found = list(collection.parameter_rows(lab, [("a", 2), ("b", 4)], ["instruments"], kinds))
    assert [(each[1:3], dict(each[3]), each[3].several) for each in found] == [
        (moved, {"light_source": laser, "power_meter": "meter"}, ["light_source"])
        for moved in (("a", 2), ("b", 4))
        for laser in ("laser1", "laser2")
    ]
    assert list(collection.parameter_rows(lab, [("a",)], ["plan"], [])) == [(lab, "a")]
    assert list(collection.parameter_rows(lab, [("a",)], ["plan"], ["oscilloscope"])) == []


def test_moves_are_plans_pairs_or_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [SimpleNamespace(link_counts=lambda lab, n=n: iter(range(1, n + 1))) for n in (4, 2, 1)]
    monkeypatch.setattr(collection, "plan_pairs", lambda lab: pairs)
    lab = lab_of(plans={"one": 1, "two": 2})
    moves = {
        ("testbed", "plan"): [("one",), ("two",)],
        ("testbed",): [()],
        ("testbed", "transition"): [(pair,) for pair in pairs],
        # All circuits together are what a transition without a count moves.
        ("testbed", "transition", "moving"): [(pairs[0], 1), (pairs[0], 2), (pairs[1], 1)],
    }
    assert {
        wanted: list(collection.move_parameters(lab, list(wanted))) for wanted in moves
    } == moves


def test_an_id_has_a_part_for_each_value() -> None:
    pair = PlanPair(SimpleNamespace(name="ring"), SimpleNamespace(name="mesh"))  # type: ignore[arg-type]
    lab = object.__new__(Testbed)
    object.__setattr__(lab, "name", "opus")
    one = InstrumentSelection(light_source="laser1", power_meter="meter")
    one.several = ["light_source"]
    none = InstrumentSelection(power_meter="meter")
    none.several = []
    assert list(collection.id_parts((lab, pair, 4, one, none, "straight"))) == [
        *("opus", "ring-to-mesh", "4-circuits", "laser1", "straight")
    ]


class Function:
    """A test function with fixtures and marks, as pytest describes it."""

    def __init__(self, *fixtures: str, unavailable: Any = None, **marks: tuple[str, ...]) -> None:
        self.fixturenames = fixtures
        self.definition: Any = self
        self._marks = marks
        self.ihook = SimpleNamespace(pytest_lightrig_unavailable=unavailable or (lambda **_: None))

    def iter_markers(self, name: str) -> list[Any]:
        return [SimpleNamespace(args=self._marks[name])] if name in self._marks else []


NAMESPACES = {"s0": server(namespace=True), "s1": server(namespace=True)}
MIXED = {"s0": server(namespace=True), "s1": server()}


@pytest.mark.parametrize(
    ("function", "lab", "reason"),
    [
        (Function(of_testbed=("opus2",)), lab_of(), "for another testbed"),
        (Function(of_testbed=("opus2", "opus")), lab_of(), None),
        (Function(of_system=("acos", "railx")), lab_of(), "not a testbed of acos or railx"),
        (Function(of_system=("acos", "opus")), lab_of(), None),
        (Function("light_source"), lab_of(instruments=INSTRUMENTS), None),
        (Function("oscilloscope", "light_source"), lab_of(instruments=INSTRUMENTS),
         "no oscilloscope"),
        (Function("oscilloscope", "climate_chamber"), lab_of(instruments=INSTRUMENTS),
         "no climate chamber and no oscilloscope"),
        (Function("nic_ports", "oscilloscope", "attenuator"), lab_of(),
         "no attenuator, no oscilloscope and no physical NIC port"),
        (Function("nic_ports"), lab_of(servers=NAMESPACES, nic_ports=[nic("s0"), nic("s1")]),
         "no physical NIC port"),
        (Function("nic_ports"), lab_of(servers=MIXED, nic_ports=[nic("s0"), nic("s1")]), None),
        (Function("bench", "fabric", unavailable=lambda fixture, testbed: (
            f"{testbed.name} has no {fixture}" if fixture == "fabric" else ""
        )), lab_of(), "opus has no fabric"),
        (Function("bench"), lab_of(), None),
    ],
)  # fmt: skip
def test_why_a_testbed_cannot_run_a_function(function: Any, lab: Any, reason: str | None) -> None:
    assert collection.function_obstacle(lab, function) == reason


@pytest.mark.parametrize(
    ("gpus", "only_namespaces", "can"),
    [
        ((8, 8), False, True),
        ((8, 0), False, False),
        ((8,), False, False),
        ((0,), True, True),
        ((), False, False),
    ],
)
def test_collectives_need_two_servers_with_gpus_or_namespaces(
    gpus: tuple[int, ...], only_namespaces: bool, can: bool
) -> None:
    servers = {str(number): server(gpus=count) for number, count in enumerate(gpus)}
    lab = lab_of(servers=servers, only_namespaces=only_namespaces)
    reason = None if can else "no two servers with GPUs, and no namespaces"
    assert jobs.pytest_lightrig_unavailable("collectives", lab) == reason


def test_one_switch_with_telemetry_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    drivers: dict[str, Any] = {"plain": object(), "measuring": SimpleNamespace(telemetry=1)}

    def driver(model: str) -> Any:
        if model not in drivers:
            raise NoDriverError(model)
        return drivers[model]

    monkeypatch.setattr(collection, "driver", driver)
    for models, reason in (
        (("plain", "unknown", "measuring"), None),
        (("plain", "unknown"), "no transceivers with telemetry"),
    ):
        switches = {model: SimpleNamespace(model=model) for model in models}
        lab = lab_of(optical_switches=switches)
        function: Any = Function("modules")
        assert collection.function_obstacle(lab, function) == reason


def test_a_bridge_of_the_kernel_overhears_ports_of_namespaces() -> None:
    ports = {"servers": MIXED, "nic_ports": [nic("s0"), nic("s1")]}
    both = {"switches": {"ocs": 1, "tor": 2, "agg": 3}, "optical_switches": {"ocs": 1}}
    optical = {"switches": {"ocs": 1}, "optical_switches": {"ocs": 1}}
    real = {"servers": {"s1": server()}, "nic_ports": [nic("s1")]}
    for fixture in ("plan", "transition"):
        function: Any = Function(fixture)
        reason = collection.function_obstacle(lab_of(**ports, **both), function)
        assert reason is not None
        assert reason.startswith("every port at agg, tor, a bridge of the kernel, receives")
        assert collection.function_obstacle(lab_of(**ports, **optical), function) is None
        assert collection.function_obstacle(lab_of(**real, **both), function) is None


@pytest.mark.parametrize(("name", "eps"), [("mixnet8", True), ("mixnet", False), ("rings4", False)])
def test_ports_at_a_bridge_of_the_kernel_hear_all_others(name: str, eps: bool) -> None:
    function: Any = Function("plan")
    reason = collection.function_obstacle(load(f"testbeds/{name}.yaml"), function)
    assert (reason is not None) == eps
    assert reason is None or reason.startswith("every port at eps")


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        (["plan"], "plan"),
        (["transition"], "two plans"),
        (["transition", "moving"], "two plans of which some circuits can move alone"),
    ],
)
def test_the_missing_plan_is_named(wanted: list[str], missing: str) -> None:
    assert collection.missing_plan(wanted) == missing


# ------------------------------------------------------------------------------- deselected


class Item:
    """A test on a testbed, with its marks of needs."""

    def __init__(self, name: str, of: Any = None, *needs: dict[str, Any], **known: Any) -> None:
        self.name, self.keywords = name, {"needs"} if needs else set()
        self._needs = needs
        params = {f"lightrig_{key}": value for key, value in known.items()}
        if of is not None:
            params["lightrig_testbed"] = of
        self.callspec = SimpleNamespace(params=params)

    def iter_markers(self, name: str) -> list[Any]:
        assert name == "needs"
        return [SimpleNamespace(kwargs=each) for each in self._needs]


def lab_named(name: str) -> Testbed:
    made = object.__new__(Testbed)
    object.__setattr__(made, "name", name)
    object.__setattr__(made, "plans", {"straight": f"plan of {name}"})
    object.__setattr__(made, "out", OutOfService())
    return made


OPUS, ACOS = lab_named("opus"), lab_named("acos")


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (Item("a", OPUS), None),
        (Item("a", None, {"circuits": 3}), None),
        (Item("a", OPUS, {"lacks": lambda plan, testbed: f"{plan}, {testbed.name}"},
              plan="straight"), "plan of opus, opus"),
        (Item("a", OPUS, {"lacks": lambda testbed: ""}, {"lacks": lambda testbed: "second"}),
         "second"),
        (Item("a", OPUS, {"circuits": 3}, transition=SimpleNamespace(counts=lambda: [1, 2, 4])),
         "no transition of 3 circuits"),
        (Item("a", OPUS, {"circuits": 4}, transition=SimpleNamespace(counts=lambda: [1, 2, 4])),
         None),
        (Item("a", OPUS, {"circuits": 3}), None),
        (Item("a", OPUS, {"lacks": lambda testbed: None},
              transition=SimpleNamespace(counts=lambda: [1])), None),
    ],
)  # fmt: skip
def test_reason_of_a_mark(item: Any, reason: str | None) -> None:
    assert collection.item_obstacle(item) == reason


def test_tests_are_in_the_order_of_testbeds_and_what_cannot_run_is_counted() -> None:
    dropped: list[Any] = []
    stash: Any = pytest.Stash()
    stash[TESTBEDS] = [OPUS, ACOS]
    hook = SimpleNamespace(pytest_deselected=lambda *, items: dropped.extend(items))
    config: Any = SimpleNamespace(stash=stash, hook=hook)
    never: Any = object.__new__(NotApplicable)
    never.testbed, never.reason = "acos", "no NIC"
    lacks = {"lacks": lambda testbed: "no OCS"}
    names = (("a", ACOS), ("b", OPUS), ("c", None), ("d", ACOS))
    kept = {name: Item(name, of) for name, of in names}
    bad = [Item("x", ACOS, lacks), Item("y", OPUS, lacks), Item("z", ACOS, lacks)]
    items: list[Any] = [kept["a"], bad[0], never, kept["b"], bad[1], kept["c"], bad[2], kept["d"]]
    collection.pytest_collection_modifyitems(config, items)
    assert [item.name for item in items] == ["c", "b", "a", "d"]
    assert dropped == [bad[1], bad[0], never, bad[2]]
    assert stash[DESELECTED] == {
        "opus": Counter({"no OCS": 1}),
        "acos": Counter({"no OCS": 2, "no NIC": 1}),
    }
    dropped.clear()
    collection.pytest_collection_modifyitems(config, items)
    assert (dropped, stash[DESELECTED]) == ([], {})


# ------------------------------------------------------------------------------ testbeds


@pytest.mark.parametrize(
    ("option", "environment", "ini", "conftest", "found"),
    [
        (["a"], "b", ["c"], ["d"], (["a"], True)),
        ([], "b::x", ["c"], ["d"], (["b", "x"], True)),
        ([], "", ["c"], ["d"], (["c"], True)),
        ([], "", [], ["d"], (["d"], False)),
        ([], "", [], None, ([], False)),
    ],
)
def test_a_testbed_that_a_person_names_goes_first(
    monkeypatch: pytest.MonkeyPatch, option: Any, environment: str, ini: Any, conftest: Any,
    found: Any,
) -> None:  # fmt: skip
    monkeypatch.setenv("LIGHTRIG_TESTBED", environment)
    config: Any = SimpleNamespace(
        getoption={"testbed": option}.get,
        getini={"lightrig_testbed": ini}.get,
        hook=SimpleNamespace(pytest_lightrig_testbeds=lambda config: conftest),
    )
    assert plugin.testbed_files(config) == found


@pytest.mark.parametrize("given", [False, True])
def test_without_a_testbed_only_tests_that_want_one_are_skipped(given: bool) -> None:
    stash: Any = pytest.Stash()
    if given:
        stash[FILES] = ["a.yaml"]
    marks: dict[str, list[Any]] = {}

    def item(name: str, fixtures: list[str], mark: object = None) -> Any:
        return SimpleNamespace(
            fixturenames=fixtures,
            get_closest_marker={"of_system": mark}.get,
            add_marker=marks.setdefault(name, []).append,
        )

    items = [
        item("plain", ["tmp_path"]),
        item("wants", ["lightrig_testbed"]),
        item("marked", [], object()),
    ]
    plugin.pytest_collection_modifyitems(SimpleNamespace(stash=stash), items)  # type: ignore[arg-type]
    skipped = {name: [mark.kwargs["reason"] for mark in each] for name, each in marks.items()}
    wanted = [] if given else [NO_TESTBED]
    assert skipped == {"plain": [], "wants": wanted, "marked": wanted}
