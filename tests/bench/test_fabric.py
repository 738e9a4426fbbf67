"""Plans are applied, verified and restored; foreign circuits stay."""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
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
from lightrig.harness.bench.fabric import ForeignPortError
from lightrig.harness.bench.saved_state import SavedState
from lightrig.instruments.clock import Span
from lightrig.instruments.core.errors import DeniedError, InstrumentError, NotDoneError
from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.protocols.tl1_device import Tl1Denial, Tl1Reply, Tl1Request
from lightrig.instruments.simulated.world import world
from lightrig.testbeds import Circuit, LightrigError, Plan, load


class Behaviour:
    """Outcome of the next change of circuits at a faulty switch."""

    def __init__(self) -> None:
        self.falsely_acknowledges = False
        self.refuses_after: int | None = None


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour()


@pytest.fixture(scope="module", params=[True, False], ids=["rerouting", "parting first"])
def bench(
    request: pytest.FixtureRequest, behaviour: Behaviour, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    class FaultySwitch(SimulatedPolatis):
        """Acknowledges without a change, or refuses, on request."""

        def _connect(self, request: Tl1Request) -> Tl1Reply:
            if behaviour.refuses_after is not None:
                if behaviour.refuses_after == 0:
                    raise Tl1Denial("SROF", "Optics failure")
                behaviour.refuses_after -= 1
            return Tl1Reply() if behaviour.falsely_acknowledges else super()._connect(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "simulated_device", FaultySwitch)
        path = describe(tmp_path_factory.mktemp("lab"), rerouting=request.param)
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
def saved(tmp_path: Path) -> SavedState:
    return SavedState("lab", tmp_path)


@pytest.fixture
def fabric(bench: Bench, switch: Any, saved: SavedState) -> Fabric:
    return Fabric(bench, saved)


def plan(*texts: str) -> Plan:
    return Plan("made up", {"ocs": circuits(*texts)})


@contextlib.contextmanager
def sent(switch: Any) -> Iterator[list[str]]:
    """Collect the commands that are sent to the switch in the context."""
    mark = len(list(switch._commands.trace.pieces()))
    commands: list[str] = []
    yield commands
    pieces = list(switch._commands.trace.pieces())[mark:]
    commands += [piece.text.partition(":")[0] for piece in pieces if piece.direction == ">"]


def test_plan_is_applied_and_restored(fabric: Fabric, switch: Any, saved: SavedState) -> None:
    fabric.apply(fabric.plans["straight"])
    assert switch.circuits() == STRAIGHT | FOREIGN
    assert saved.read() == {"ocs": LEFT}
    fabric.apply(fabric.plans["crossed"])
    assert switch.circuits() == CROSSED | FOREIGN
    assert saved.read() == {"ocs": LEFT}
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN
    assert saved.read() is None


def test_second_application_only_reads(fabric: Fabric, switch: Any) -> None:
    fabric.apply(fabric.plans["straight"])
    with sent(switch) as commands:
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


def test_preparing_changes_nothing(fabric: Fabric, switch: Any, saved: SavedState) -> None:
    with sent(switch) as commands:
        fabric.prepare(fabric.plans["straight"])
    assert set(commands) == {"RTRV-PATCH"}
    assert saved.read() == {"ocs": LEFT}


def test_nothing_applied_nothing_restored(fabric: Fabric, switch: Any) -> None:
    with sent(switch) as commands:
        fabric.restore()
    assert commands == []


def test_empty_plan_removes_only_circuits_of_the_testbed(fabric: Fabric, switch: Any) -> None:
    fabric.apply(plan())
    assert switch.circuits() == FOREIGN
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN


@pytest.mark.parametrize("text", ["5>9", "1>14", "6>15", "1>16"])
def test_foreign_ports_are_not_touched(fabric: Fabric, switch: Any, text: str) -> None:
    with sent(switch) as commands, pytest.raises(ForeignPortError, match=text):
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


def test_a_circuit_that_was_to_be_kept_and_is_gone_raises_not_done_error(
    fabric: Fabric, switch: Any
) -> None:
    fabric.apply(plan("1>9", "2>12"))
    transition = fabric.prepare(plan("1>9", "2>11"))
    transition.begin()
    transition.acknowledged()
    set_circuits(switch, circuits("2>11") | FOREIGN)
    with pytest.raises(NotDoneError, match="missing   1>9"):
        transition.verify()


def test_failed_restore_keeps_the_saved_state(
    bench: Bench, fabric: Fabric, switch: Any, behaviour: Behaviour, saved: SavedState
) -> None:
    fabric.apply(fabric.plans["straight"])
    behaviour.refuses_after = 0
    with pytest.raises(DeniedError, match="Optics failure"):
        fabric.restore()
    assert saved.read() == {"ocs": LEFT}
    behaviour.refuses_after = None
    later = Fabric(bench, saved)
    later.apply(later.plans["crossed"])
    later.restore()
    assert switch.circuits() == LEFT | FOREIGN
    assert saved.read() is None


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


def test_restore_of_the_state_of_a_killed_run(bench: Bench, switch: Any, saved: SavedState) -> None:
    killed = Fabric(bench, saved)
    killed.apply(killed.plans["straight"])
    after = Fabric(bench, saved)
    after.apply(after.plans["crossed"])
    after.restore()
    assert switch.circuits() == LEFT | FOREIGN
    assert saved.read() is None


def test_saved_state_of_an_unknown_switch_is_refused(
    bench: Bench, switch: Any, saved: SavedState
) -> None:
    saved.save({"ocs": LEFT, "gone": circuits("1>9")})
    fabric = Fabric(bench, saved)
    fabric.apply(fabric.plans["straight"])
    with pytest.raises(LightrigError, match="gone"):
        fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN
    assert saved.read() is not None


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


@settings(max_examples=40)
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
    fabric = Fabric(bench, SavedState("lab", tmp_path_factory.mktemp("state")))
    for wanted in plans:
        fabric.apply(Plan("drawn", {"ocs": wanted}))
        assert switch.circuits() == wanted | foreign
    fabric.restore()
    assert switch.circuits() == left | foreign
