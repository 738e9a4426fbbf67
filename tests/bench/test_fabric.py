"""Plans are applied, verified and taken back; what is somebody else's stays."""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.served_lab import (
    CROSSED,
    FOREIGN,
    LEFT,
    OWN_EGRESS,
    OWN_INGRESS,
    STRAIGHT,
    circuits,
    describe,
    set_circuits,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.bench import Bench, Fabric, bind
from harness.bench.fabric import ForeignPortError
from harness.bench.keeping import FoundState
from instruments.clock import Span
from instruments.errors import DeniedError, InstrumentError, NotDoneError
from instruments.simulated import world
from instruments.simulated.polatis_peer import PolatisPeer
from instruments.simulated.tl1_peer import Answer, Refusal, Request
from testbeds import Circuit, LightrigError, Plan, load


class Mood:
    """How the next change of circuits turns out at a moody switch."""

    def __init__(self) -> None:
        self.lies = False
        self.refuses_after: int | None = None


@pytest.fixture(scope="module")
def mood() -> Mood:
    return Mood()


@pytest.fixture(scope="module", params=[True, False], ids=["rerouting", "parting first"])
def bench(
    request: pytest.FixtureRequest, mood: Mood, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    class MoodyPeer(PolatisPeer):
        """Says done without doing it, or refuses, when it is told to."""

        def _connect(self, request: Request) -> Answer:
            if mood.refuses_after is not None:
                if mood.refuses_after == 0:
                    raise Refusal("SROF", "Optics failure")
                mood.refuses_after -= 1
            return Answer() if mood.lies else super()._connect(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "peer", MoodyPeer)
        path = describe(tmp_path_factory.mktemp("lab"), rerouting=request.param)
        bound = bind(load(path), "simulated", 1)
    yield bound
    bound.close()


@pytest.fixture
def switch(bench: Bench, mood: Mood) -> Any:
    """The switch as people had left it."""
    mood.lies, mood.refuses_after = False, None
    switch = bench.switches["ocs"]
    set_circuits(switch, LEFT | FOREIGN)  # type: ignore[arg-type]
    return switch


@pytest.fixture
def found(tmp_path: Path) -> FoundState:
    return FoundState("lab", tmp_path)


@pytest.fixture
def fabric(bench: Bench, switch: Any, found: FoundState) -> Fabric:
    return Fabric(bench, found)


def plan(*texts: str) -> Plan:
    return Plan("made up", {"ocs": circuits(*texts)})


@contextlib.contextmanager
def sent(switch: Any) -> Iterator[list[str]]:
    """The commands that went to the switch meanwhile."""
    mark = len(list(switch._commands.trace.pieces()))
    commands: list[str] = []
    yield commands
    pieces = list(switch._commands.trace.pieces())[mark:]
    commands += [piece.text.partition(":")[0] for piece in pieces if piece.direction == ">"]


def test_a_plan_is_made_and_taken_back(fabric: Fabric, switch: Any, found: FoundState) -> None:
    fabric.apply(fabric.plans["straight"])
    assert switch.circuits() == STRAIGHT | FOREIGN
    assert found.read() == {"ocs": LEFT}
    fabric.apply(fabric.plans["crossed"])
    assert switch.circuits() == CROSSED | FOREIGN
    assert found.read() == {"ocs": LEFT}
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN
    assert found.read() is None


def test_a_second_time_nothing_is_sent_but_the_reading(fabric: Fabric, switch: Any) -> None:
    fabric.apply(fabric.plans["straight"])
    with sent(switch) as commands:
        fabric.apply(fabric.plans["straight"])
        transition = fabric.prepare(fabric.plans["straight"])
        begun = transition.begin()
        assert begun == transition.acknowledged() == Span(begun.earliest, begun.earliest)
    assert set(commands) == {"RTRV-PATCH"}
    assert transition.moved == 0


def test_only_what_differs_is_touched(fabric: Fabric, switch: Any) -> None:
    fabric.apply(plan("1>9", "2>12"))
    change = fabric.prepare(plan("1>9", "2>10")).changes["ocs"]
    assert change.keep == circuits("1>9")
    assert change.remove == circuits("2>12")
    assert change.add == circuits("2>10")


def test_preparing_changes_nothing(fabric: Fabric, switch: Any, found: FoundState) -> None:
    with sent(switch) as commands:
        fabric.prepare(fabric.plans["straight"])
    assert set(commands) == {"RTRV-PATCH"}
    assert found.read() == {"ocs": LEFT}


def test_nothing_applied_nothing_restored(fabric: Fabric, switch: Any) -> None:
    with sent(switch) as commands:
        fabric.restore()
    assert commands == []


def test_an_empty_plan_parts_only_what_is_ours(fabric: Fabric, switch: Any) -> None:
    fabric.apply(plan())
    assert switch.circuits() == FOREIGN
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN


@pytest.mark.parametrize("text", ["5>9", "1>14", "6>15", "1>16"])
def test_a_port_that_is_not_ours_is_not_touched(fabric: Fabric, switch: Any, text: str) -> None:
    with sent(switch) as commands, pytest.raises(ForeignPortError, match=text):
        fabric.apply(plan(text))
    assert set(commands) == {"RTRV-PATCH"}
    assert switch.circuits() == LEFT | FOREIGN


@pytest.mark.parametrize(("held", "wanted"), [("1>15", "1>10"), ("6>10", "1>10")])
def test_a_circuit_with_one_port_of_ours_is_told(
    bench: Bench, switch: Any, held: str, wanted: str
) -> None:
    set_circuits(switch, circuits(held))
    with pytest.raises(ForeignPortError, match=f"wants {wanted} on ocs, but {held} is there"):
        Fabric(bench).apply(plan(wanted))
    assert switch.circuits() == circuits(held)
    Fabric(bench).apply(plan("3>11"))
    assert switch.circuits() == circuits(held, "3>11")


def test_a_switch_that_says_done_and_is_not(fabric: Fabric, switch: Any, mood: Mood) -> None:
    mood.lies = True
    with pytest.raises(NotDoneError) as lie:
        fabric.apply(fabric.plans["straight"])
    shown = str(lie.value)
    assert shown.startswith("ocs (Polatis N-VST-8x8-")
    assert "said done, but is not in plan straight" in shown
    assert "missing   1>11, 3>9, 4>10" in shown
    assert "RTRV-PATCH" in shown
    mood.lies = False
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN


def test_a_switch_that_cannot_be_restored_keeps_the_state_on_disk(
    bench: Bench, fabric: Fabric, switch: Any, mood: Mood, found: FoundState
) -> None:
    fabric.apply(fabric.plans["straight"])
    mood.refuses_after = 0
    with pytest.raises(DeniedError, match="Optics failure"):
        fabric.restore()
    assert found.read() == {"ocs": LEFT}
    mood.refuses_after = None
    later = Fabric(bench, found)
    later.apply(later.plans["crossed"])
    later.restore()
    assert switch.circuits() == LEFT | FOREIGN
    assert found.read() is None


def test_after_a_refusal_in_the_middle_all_is_put_back(
    fabric: Fabric, switch: Any, mood: Mood
) -> None:
    mood.refuses_after = 1
    fabric.apply(fabric.plans["straight"])
    with pytest.raises(InstrumentError, match="Optics failure"):
        fabric.apply(fabric.plans["crossed"])
    mood.refuses_after = None
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN


def test_interrupted_before_the_acknowledgement_all_is_put_back(
    fabric: Fabric, switch: Any
) -> None:
    fabric.prepare(fabric.plans["straight"]).begin()
    fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN


def test_what_a_killed_run_had_found_is_put_back(
    bench: Bench, switch: Any, found: FoundState
) -> None:
    killed = Fabric(bench, found)
    killed.apply(killed.plans["straight"])
    after = Fabric(bench, found)
    after.apply(after.plans["crossed"])
    after.restore()
    assert switch.circuits() == LEFT | FOREIGN
    assert found.read() is None


def test_a_found_state_of_another_switch_is_told(
    bench: Bench, switch: Any, found: FoundState
) -> None:
    found.keep({"ocs": LEFT, "gone": circuits("1>9")})
    fabric = Fabric(bench, found)
    fabric.apply(fabric.plans["straight"])
    with pytest.raises(LightrigError, match="gone"):
        fabric.restore()
    assert switch.circuits() == LEFT | FOREIGN
    assert found.read() is not None


def test_moves_go_to_and_fro(fabric: Fabric) -> None:
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


own = matchings(OWN_INGRESS, OWN_EGRESS)
foreign = matchings(range(5, 9), range(13, 17))


@settings(max_examples=40)
@given(left=own, others=foreign, plans=st.lists(own, min_size=1, max_size=3))
def test_whatever_is_applied_the_switch_is_left_as_it_was_found(
    bench: Bench,
    mood: Mood,
    tmp_path_factory: pytest.TempPathFactory,
    left: frozenset[Circuit],
    others: frozenset[Circuit],
    plans: list[frozenset[Circuit]],
) -> None:
    mood.lies, mood.refuses_after = False, None
    switch: Any = bench.switches["ocs"]
    set_circuits(switch, left | others)
    fabric = Fabric(bench, FoundState("lab", tmp_path_factory.mktemp("state")))
    for wanted in plans:
        fabric.apply(Plan("drawn", {"ocs": wanted}))
        assert switch.circuits() == wanted | others
    fabric.restore()
    assert switch.circuits() == left | others
