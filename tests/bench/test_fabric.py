"""Plans are applied, verified and restored; foreign circuits stay."""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.served_lab import (
    CABLED_EGRESS,
    CABLED_INGRESS,
    CROSSED,
    FOREIGN,
    LEFT,
    STRAIGHT,
    circuits,
    describe,
    set_circuits,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.bench.fabric import ForeignChangeError, ForeignPortError, Transition
from lightrig.harness.bench.lease import Lease, LeaseLostError
from lightrig.harness.bench.restoring import NotRestoredError
from lightrig.harness.bench.saved_state import SavedCircuits, SavedStates, StateConflictError
from lightrig.instruments.clock import Span
from lightrig.instruments.core.errors import InstrumentError, NotDoneError
from lightrig.instruments.simulated import lab as simulated_lab
from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.protocols.tl1_device import Tl1Denial, Tl1Reply, Tl1Request
from lightrig.testbeds import Circuit, Plan, load
from lightrig.testbeds.plans import Change


class Behaviour:
    """Outcome of the next change of circuits at a faulty switch, and what it was `asked`."""

    def __init__(self) -> None:
        self.falsely_acknowledges = False
        self.refuses_after: int | None = None
        self.asked: list[str] = []


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour()


OF_BOTH_KINDS = pytest.mark.parametrize(
    "bench", [True, False], ids=["rerouting", "parting first"], indirect=True
)
"""Also on a switch that refuses ports in use, where a change of circuits is two commands."""


@pytest.fixture(scope="module")
def bench(
    request: pytest.FixtureRequest, behaviour: Behaviour, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    class FaultySwitch(SimulatedPolatis):
        """Acknowledges without a change, or refuses, on request."""

        def execute(self, request: Tl1Request) -> Tl1Reply:
            behaviour.asked.append(request.verb)
            if request.verb != "ENT-PATCH":
                return super().execute(request)
            if behaviour.refuses_after is not None:
                if behaviour.refuses_after == 0:
                    raise Tl1Denial("SROF", "Optics failure")
                behaviour.refuses_after -= 1
            return Tl1Reply() if behaviour.falsely_acknowledges else super().execute(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulated_lab, "simulated_device", FaultySwitch)
        path = describe(tmp_path_factory.mktemp("lab"), rerouting=getattr(request, "param", True))
        bound = bind(load(path), "simulated", 1)
    yield bound
    bound.close()


@pytest.fixture
def switch(bench: Bench, behaviour: Behaviour) -> Any:
    """The switch with the circuits that the laboratory left."""
    behaviour.falsely_acknowledges, behaviour.refuses_after = False, None
    switch = bench.switches["ocs"]
    set_circuits(switch, LEFT | FOREIGN)  # type: ignore[arg-type]
    return switch


@pytest.fixture
def saved(tmp_path: Path) -> SavedStates:
    return SavedStates(tmp_path)


@pytest.fixture
def fabric(bench: Bench, switch: Any, saved: SavedStates) -> Fabric:
    return Fabric(bench, saved)


def found(saved: SavedStates) -> dict[str, frozenset[Circuit]]:
    """Return the saved circuits by switch."""
    return {state.origin.instrument: state.found for state in saved.read_all()[0]}  # type: ignore[misc]


def plan(*texts: str) -> Plan:
    return Plan("made up", {"ocs": circuits(*texts)})


@contextlib.contextmanager
def sent(behaviour: Behaviour) -> Iterator[list[str]]:
    """Collect the commands that are sent to the switch in the context."""
    mark, commands = len(behaviour.asked), list[str]()
    yield commands
    commands += behaviour.asked[mark:]


@OF_BOTH_KINDS
def test_plan_is_applied_and_restored(fabric: Fabric, switch: Any, saved: SavedStates) -> None:
    fabric.apply(fabric.plans["straight"])
    assert switch.circuits() == STRAIGHT | FOREIGN
    assert found(saved) == {"ocs": LEFT}
    fabric.apply(fabric.plans["crossed"])
    assert switch.circuits() == CROSSED | FOREIGN
    assert found(saved) == {"ocs": LEFT}
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN
    assert not saved.read_all()[0]


def test_second_application_only_reads(fabric: Fabric, switch: Any, behaviour: Behaviour) -> None:
    fabric.apply(fabric.plans["straight"])
    with sent(behaviour) as commands:
        fabric.apply(fabric.plans["straight"])
        transition = fabric.prepare(fabric.plans["straight"])
        begun = transition.begin()
        assert begun == transition.acknowledged() == Span(begun.earliest, begun.earliest)
    assert set(commands) == {"RTRV-PATCH"}
    assert transition.moved == 0


def test_only_differences_are_sent(fabric: Fabric, switch: Any) -> None:
    fabric.apply(plan("1>9", "2>12"))
    change = fabric.prepare(plan("1>9", "2>10")).changes["ocs"]
    assert change.keep == circuits("1>9")
    assert change.remove == circuits("2>12")
    assert change.add == circuits("2>10")


def test_preparing_changes_nothing(
    fabric: Fabric, switch: Any, saved: SavedStates, behaviour: Behaviour
) -> None:
    with sent(behaviour) as commands:
        fabric.prepare(fabric.plans["straight"])
    assert set(commands) == {"RTRV-PATCH"}
    assert found(saved) == {"ocs": LEFT}


def test_nothing_applied_nothing_restored(
    fabric: Fabric, switch: Any, behaviour: Behaviour
) -> None:
    with sent(behaviour) as commands:
        fabric.restore()
    assert commands == []


def test_empty_plan_removes_only_circuits_of_the_testbed(fabric: Fabric, switch: Any) -> None:
    fabric.apply(plan())
    assert switch.circuits() == FOREIGN
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN


@pytest.mark.parametrize("text", ["5>9", "1>14", "6>15", "1>16"])
def test_foreign_ports_are_not_touched(
    fabric: Fabric, switch: Any, text: str, behaviour: Behaviour
) -> None:
    with sent(behaviour) as commands, pytest.raises(ForeignPortError, match=text):
        fabric.apply(plan(text))
    assert set(commands) == {"RTRV-PATCH"}
    assert switch.circuits() == LEFT | FOREIGN


@pytest.mark.parametrize(("present", "wanted"), [("1>15", "1>10"), ("6>10", "1>10")])
def test_circuit_with_one_foreign_port_is_refused(
    bench: Bench, switch: Any, present: str, wanted: str
) -> None:
    set_circuits(switch, circuits(present))
    with pytest.raises(ForeignPortError, match=f"wants {wanted} on ocs, but {present} is there"):
        Fabric(bench).apply(plan(wanted))
    assert switch.circuits() == circuits(present)
    Fabric(bench).apply(plan("3>11"))
    assert switch.circuits() == circuits(present, "3>11")


@OF_BOTH_KINDS
def test_false_acknowledgement_raises_not_done_error(
    fabric: Fabric, switch: Any, behaviour: Behaviour
) -> None:
    behaviour.falsely_acknowledges = True
    with pytest.raises(NotDoneError) as fails:
        fabric.apply(fabric.plans["straight"])
    shown = str(fails.value)
    assert shown.startswith("ocs (Polatis N-VST-8x8-")
    assert "acknowledged the change, but is not in plan straight" in shown
    assert "missing   1>11, 3>9, 4>10" in shown
    assert "RTRV-PATCH" in shown
    behaviour.falsely_acknowledges = False
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN


def test_a_missing_circuit_that_was_to_stay_raises_not_done_error(
    fabric: Fabric, switch: Any
) -> None:
    fabric.apply(plan("1>9", "2>12"))
    transition = fabric.prepare(plan("1>9", "2>11"))
    transition.begin()
    transition.acknowledged()
    set_circuits(switch, circuits("2>11") | FOREIGN)
    with pytest.raises(NotDoneError, match="missing   1>9"):
        transition.verify()


@OF_BOTH_KINDS
def test_failed_restore_keeps_the_saved_state(
    bench: Bench, fabric: Fabric, switch: Any, behaviour: Behaviour, saved: SavedStates
) -> None:
    fabric.apply(fabric.plans["straight"])
    behaviour.refuses_after = 0
    with pytest.raises(NotRestoredError, match=r"NOT as found: ocs; run `lightrig restore .*lab"):
        fabric.restore()
    assert found(saved) == {"ocs": LEFT}
    behaviour.refuses_after = None
    later = Fabric(bench, saved)
    later.apply(later.plans["crossed"])
    later.restore()
    assert switch.circuits() == LEFT | FOREIGN
    assert not saved.read_all()[0]


@OF_BOTH_KINDS
def test_restore_after_a_refusal(fabric: Fabric, switch: Any, behaviour: Behaviour) -> None:
    behaviour.refuses_after = 1
    fabric.apply(fabric.plans["straight"])
    with pytest.raises(InstrumentError, match="Optics failure"):
        fabric.apply(fabric.plans["crossed"])
    behaviour.refuses_after = None
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN


def test_restore_after_an_interrupt(fabric: Fabric, switch: Any) -> None:
    fabric.prepare(fabric.plans["straight"]).begin()
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN


def test_restore_of_the_state_of_a_killed_run(
    bench: Bench, switch: Any, saved: SavedStates
) -> None:
    killed = Fabric(bench, saved)
    killed.apply(killed.plans["straight"])
    after = Fabric(bench, saved)
    after.apply(after.plans["crossed"])
    after.restore()
    assert switch.circuits() == LEFT | FOREIGN
    assert not saved.read_all()[0]


def sent_and_done(*spans: Span) -> Any:
    """A switch whose changes were sent and acknowledged at `spans`."""
    operation = SimpleNamespace(sent=spans[0], done=lambda: spans[1])
    return SimpleNamespace(change=lambda remove, add: operation)


def test_the_span_of_a_transition_is_that_of_all_its_switches() -> None:
    """The first write begins at 30, the last ends at 90; c is not changed."""
    switches = {
        "a": sent_and_done(Span(40, 90), Span(100, 300)),
        "b": sent_and_done(Span(30, 60), Span(200, 210)),
        "c": sent_and_done(Span(1, 999), Span(999, 999)),
    }
    bench: Any = SimpleNamespace(switches=switches, clock=SimpleNamespace(now=lambda: 77))
    one, two = Circuit(1, 6), Circuit(2, 5)
    changes = {
        "a": Change(frozenset({one}), frozenset(), frozenset({two})),
        "b": Change(frozenset(), frozenset({one}), frozenset({two})),
        "c": Change(frozenset(), frozenset({one}), frozenset()),
    }
    moved = Transition(bench, Plan("p", {}), changes)
    assert moved.moved == 2
    assert moved.begin() == Span(30, 90)
    assert moved.acknowledgements() == {"a": Span(100, 300), "b": Span(200, 210)}
    assert moved.acknowledged() == Span(200, 210)
    still = Transition(bench, Plan("p", {}), {"c": changes["c"]})
    assert (still.begin(), still.acknowledged()) == (Span(77, 77), Span(77, 77))


@pytest.mark.parametrize(
    ("present", "message"),
    [
        ({(1, 6), (2, 8), (4, 9)}, "still there 4>9"),
        ({(1, 6)}, "missing   2>8"),
        ({(1, 6), (2, 8)}, None),
        ({(1, 6), (2, 8), (3, 7)}, None),
        ({(1, 6), (3, 7)}, "3>7 was made by somebody else"),
        # Ports 5 and 10 are not cabled.
        ({(1, 6), (5, 7)}, "missing   2>8"),
        ({(1, 6), (3, 10)}, "missing   2>8"),
    ],
)
def test_what_is_read_back_is_compared_with_what_was_wanted(
    present: set[tuple[int, int]], message: str | None
) -> None:
    switch = SimpleNamespace(
        circuits=lambda: frozenset(Circuit(*each) for each in present), wire=list
    )
    cabling = SimpleNamespace(cabled_ports=lambda name: ({1, 2, 3, 4}, {6, 7, 8, 9}))
    bench: Any = SimpleNamespace(
        switches={"ocs": switch}, testbed=SimpleNamespace(cabling=cabling), identities={"ocs": "x"}
    )
    change = Change(
        remove=frozenset({Circuit(4, 9)}),
        keep=frozenset({Circuit(1, 6)}),
        add=frozenset({Circuit(2, 8)}),
    )
    read: list[str] = []
    moved = Transition(bench, Plan("p", {}), {"ocs": change}, read.append)
    if message is None:
        moved.verify()
        assert read == ["ocs"]
        return
    with pytest.raises(NotDoneError) as caught:
        moved.verify()
    assert message in str(caught.value)
    if (3, 7) not in present:
        assert "somebody" not in str(caught.value)
    assert read == []


def test_moves_alternate(fabric: Fabric) -> None:
    before, after = fabric.plans["straight"], fabric.plans["crossed"]
    pairs = list(fabric.moves(before, after, 2, 4))
    assert len(pairs) == 4
    for (start, end), (following, _) in itertools.pairwise(pairs):
        assert end == following
        assert len(end.circuits["ocs"] - start.circuits["ocs"]) == 2


def matchings(ingress: range, egress: range) -> st.SearchStrategy[frozenset[Circuit]]:
    """Circuits between some of the ports, none used twice."""
    return st.permutations(egress).flatmap(
        lambda order: st.sets(st.sampled_from(ingress)).map(
            lambda used: frozenset(Circuit(port, order[ingress.index(port)]) for port in used)
        )
    )


cabled = matchings(CABLED_INGRESS, CABLED_EGRESS)
foreign = matchings(range(5, 9), range(13, 17))


@OF_BOTH_KINDS
@settings(max_examples=10)
@given(left=cabled, foreign=foreign, plans=st.lists(cabled, min_size=1, max_size=3))
def test_any_sequence_of_plans_is_restored(
    bench: Bench,
    behaviour: Behaviour,
    tmp_path_factory: pytest.TempPathFactory,
    left: frozenset[Circuit],
    foreign: frozenset[Circuit],
    plans: list[frozenset[Circuit]],
) -> None:
    behaviour.falsely_acknowledges, behaviour.refuses_after = False, None
    switch: Any = bench.switches["ocs"]
    set_circuits(switch, left | foreign)
    fabric = Fabric(bench, SavedStates(tmp_path_factory.mktemp("state")))
    for wanted in plans:
        fabric.apply(Plan("drawn", {"ocs": wanted}))
        assert switch.circuits() == wanted | foreign
    fabric.restore()
    assert switch.circuits() == left | foreign


def test_restoring_is_tried_again_until_the_switch_answers(
    fabric: Fabric, switch: Any, behaviour: Behaviour, saved: SavedStates
) -> None:
    fabric.apply(fabric.plans["straight"])
    behaviour.falsely_acknowledges = True
    sentences: list[str] = []

    def heal(sentence: str) -> None:
        sentences.append(sentence)
        behaviour.falsely_acknowledges = len(sentences) < 3

    fabric.restore(notify=heal)
    assert len(sentences) == 3
    assert "not restored yet, tried for " in sentences[0]
    assert switch.circuits() == LEFT | FOREIGN
    assert not saved.read_all()[0]


def test_restoring_ends_after_the_stated_time(
    bench: Bench, fabric: Fabric, switch: Any, behaviour: Behaviour, saved: SavedStates
) -> None:
    fabric.apply(fabric.plans["straight"])
    behaviour.falsely_acknowledges = True
    began = bench.clock.now()
    with pytest.raises(NotRestoredError, match="acknowledged the change") as failed:
        fabric.restore(keep_trying=60_000_000_000)
    assert 60_000_000_000 <= bench.clock.now() - began < 70_000_000_000
    assert failed.value.failures.keys() == {"ocs"}
    assert found(saved) == {"ocs": LEFT}


def test_circuits_that_somebody_made_after_a_kill_stop_the_next_run(
    bench: Bench, switch: Any, saved: SavedStates, behaviour: Behaviour
) -> None:
    killed = Fabric(bench, saved)
    killed.apply(killed.plans["straight"])
    by_hand = circuits("2>9", "3>12")
    set_circuits(switch, by_hand | FOREIGN)
    stopped = Fabric(bench, saved)
    with pytest.raises(StateConflictError) as conflict:
        stopped.apply(killed.plans["crossed"])
    with sent(behaviour) as commands:
        stopped.restore()
    assert commands == []
    text = str(conflict.value)
    assert "2>9, 3>12 made by somebody else" in text
    assert "found     1>9, 2>12, 3>11" in text
    assert "--force restores what was found, --forget keeps what is there now" in text
    assert switch.circuits() == by_hand | FOREIGN
    assert found(saved) == {"ocs": LEFT}
    forced = Fabric(bench, saved)
    forced.save_initial_state(force=True)
    with pytest.raises(NotRestoredError, match="2>9, 3>12 made by somebody else"):
        forced.restore()
    forced.restore(force=True)
    assert switch.circuits() == LEFT | FOREIGN


def test_a_run_that_was_killed_amid_a_change_has_left_only_its_own_circuits(
    bench: Bench, switch: Any, saved: SavedStates
) -> None:
    killed = Fabric(bench, saved)
    killed.apply(killed.plans["straight"])
    killed.prepare(killed.plans["crossed"])
    kept = STRAIGHT & CROSSED
    for reached in (STRAIGHT, kept, kept | set(list(CROSSED)[:2]), CROSSED):
        set_circuits(switch, reached | FOREIGN)
        Fabric(bench, saved).save_initial_state()


def test_another_cabling_stops_a_restore(
    bench: Bench, switch: Any, saved: SavedStates, tmp_path: Path
) -> None:
    killed = Fabric(bench, saved)
    killed.apply(killed.plans["straight"])
    ((state,), _) = saved.read_all()
    assert isinstance(state, SavedCircuits)
    moved = {**state.cabling, "2": "server1.nic0.p1", "6": "server2.nic0"}
    saved.save(replace(state, cabling=moved))
    with pytest.raises(StateConflictError, match="recabled since: port 2, 6"):
        Fabric(bench, saved).save_initial_state()


def test_a_circuit_that_somebody_makes_during_a_run_is_reported_once(
    fabric: Fabric, switch: Any
) -> None:
    fabric.apply(fabric.plans["straight"])
    set_circuits(switch, circuits("1>9", "2>12", "3>11") | FOREIGN)
    with pytest.raises(ForeignChangeError, match=r"ocs: 1>9, 3>11 made; ocs: 1>11, 3>9, 4>10 rem"):
        fabric.apply(fabric.plans["crossed"])
    assert switch.circuits() == LEFT | FOREIGN
    fabric.apply(fabric.plans["crossed"])
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN


def test_a_circuit_that_somebody_only_removes_is_reported_once(fabric: Fabric, switch: Any) -> None:
    fabric.apply(fabric.plans["straight"])
    set_circuits(switch, circuits("1>11", "2>12", "3>9") | FOREIGN)
    with pytest.raises(ForeignChangeError, match=r"this run: ocs: 4>10 removed\n"):
        fabric.apply(fabric.plans["crossed"])
    fabric.apply(fabric.plans["crossed"])


def test_a_lost_lease_ends_every_change_and_the_restore(
    bench: Bench, fabric: Fabric, switch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lost(Lease):
        def check(self) -> None:
            raise LeaseLostError("lost")

    fabric.apply(fabric.plans["straight"])
    monkeypatch.setattr(bench, "lease", Lost([], "a test"))
    with pytest.raises(LeaseLostError):
        fabric.apply(fabric.plans["crossed"])
    with pytest.raises(LeaseLostError):
        fabric.restore()
    assert switch.circuits() == STRAIGHT | FOREIGN
    monkeypatch.setattr(bench, "lease", None)
    fabric.restore()
