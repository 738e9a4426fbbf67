import copy
import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.testbeds import (
    Circuit,
    LightrigError,
    Link,
    PartialMoveError,
    Plan,
    PlanError,
    Port,
    TestbedError,
    difference,
    independent_moves,
    load,
    partial_move,
)


@st.composite
def circuits(draw):
    """Some partial matching of ingress 1-8 to egress 9-16."""
    egress = draw(st.permutations(range(9, 17)))
    used = draw(st.sets(st.integers(0, 7)))
    return frozenset(Circuit(i + 1, egress[i]) for i in used)


def plans(name):
    return st.dictionaries(st.sampled_from(["a", "b"]), circuits()).map(lambda c: Plan(name, c))


def ports(change):
    changed = change.remove | change.add
    return {("in", c.ingress) for c in changed} | {("out", c.egress) for c in changed}


def some(*texts):
    return frozenset(map(Circuit.parse, texts))


def test_a_circuit_is_read_and_written():
    assert Circuit.parse(" 3 > 35") == (3, 35)
    assert str(Circuit(3, 35)) == "3>35"
    for text in ("3", "3>", "3-35", "a>b", "3>35>1", "", "-3>4"):
        with pytest.raises(PlanError, match="expected ingress>egress"):
            Circuit.parse(text)


def test_a_link_has_no_direction():
    a, b = Port("server0", "nic0"), Port("server1", "nic0")
    assert Link(b, a) == Link(a, b)
    assert str(Link(b, a)) == "server0.nic0 <-> server1.nic0"
    with pytest.raises(PlanError):
        Link(a, a)


@pytest.mark.parametrize(
    ("pair", "message"),
    [(("1>9", "1>10"), "ingress 1 is used twice"), (("1>9", "2>9"), "egress 9 is used twice")],
)
def test_a_plan_uses_no_port_twice(pair, message):
    with pytest.raises(PlanError, match=message):
        Plan("p", {"ocs": some(*pair)})
    assert issubclass(PlanError, LightrigError)


def test_a_plan_is_a_value():
    plan = Plan("p", {"ocs": some("1>9", "2>10")})
    assert {plan: 1}[Plan("p", {"ocs": some("2>10", "1>9")})] == 1
    assert pickle.loads(pickle.dumps(plan)) == copy.deepcopy(plan) == plan
    assert len(plan) == 2
    with pytest.raises(TypeError):
        plan.circuits["ocs"] = frozenset()


def test_moves_are_split_where_they_share_no_port():
    before = some("1>9", "2>10", "3>11", "4>12")
    after = some("1>10", "2>9", "3>11", "4>13")
    first, second = independent_moves(before, after)
    assert (first.remove, first.add) == (some("1>9", "2>10"), some("1>10", "2>9"))
    assert (second.remove, second.add) == (some("4>12"), some("4>13"))
    assert first.keep == frozenset()
    assert difference(before, after).keep == some("3>11")


def test_partial_move_error_lists_possible_counts():
    before = Plan("x", {"ocs": some("1>9", "2>10", "3>11", "4>12")})
    after = Plan("y", {"ocs": some("1>10", "2>9", "3>12", "4>11")})
    assert partial_move(before, after, 2).circuits["ocs"] == some("1>10", "2>9", "3>11", "4>12")
    with pytest.raises(PartialMoveError, match="possible 0, 2, 4") as caught:
        partial_move(before, after, 3)
    assert caught.value.possible == (0, 2, 4)
    with pytest.raises(PartialMoveError):
        partial_move(before, after, -1)


def test_a_partial_move_takes_the_fewest_components():
    before = Plan("x", {"ocs": some("1>9", "2>10", "3>11", "4>12")})
    after = Plan("y", {"ocs": some("1>13", "2>14", "3>12", "4>11")})
    assert partial_move(before, after, 2).circuits["ocs"] == some("1>9", "2>10", "3>12", "4>11")


def test_a_switch_that_is_not_named_is_left_alone():
    before = Plan("x", {"a": some("1>9"), "b": some("1>9")})
    after = Plan("y", {"a": some("1>10")})
    assert partial_move(before, after, 1).circuits == {"a": some("1>10"), "b": some("1>9")}


@given(circuits(), circuits())
def test_a_difference_leads_from_before_to_after(before, after):
    change = difference(before, after)
    assert before - change.remove | change.add == after
    assert change.keep == before & after
    assert not change.remove & change.add


@given(circuits(), circuits())
def test_independent_moves_lead_to_after_in_any_order(before, after):
    moves = independent_moves(before, after)
    for order in (moves, moves[::-1]):
        state = before
        for move in order:
            state = state - move.remove | move.add
            Plan("valid at every step", {"ocs": state})
        assert state == after
    assert moves == independent_moves(before, after)
    for i, move in enumerate(moves):
        assert all(not ports(move) & ports(second) for second in moves[i + 1 :])


@given(circuits(), circuits())
def test_no_move_can_be_split_further(before, after):
    for move in independent_moves(before, after):
        changed = move.remove | move.add
        reached = {min(changed)}
        while more := {
            c
            for c in changed - reached
            if any(c.ingress == r.ingress or c.egress == r.egress for r in reached)
        }:
            reached |= more
        assert reached == changed


def reachable(before, after):
    """All sums of components, by trying every set of them."""
    gains = [
        len(move.add)
        for switch, wanted in after.circuits.items()
        for move in independent_moves(before.circuits.get(switch, frozenset()), wanted)
    ]
    return {
        sum(taken)
        for size in range(len(gains) + 1)
        for taken in itertools.combinations(gains, size)
    }


@given(plans("x"), plans("y"), st.integers(0, 16))
def test_a_partial_move_adds_exactly_that_many(before, after, moving):
    total = sum(
        len(after.circuits[s] - before.circuits.get(s, frozenset())) for s in after.circuits
    )
    possible = reachable(before, after)
    assert {0, total} <= possible
    if moving not in possible:
        with pytest.raises(PartialMoveError) as caught:
            partial_move(before, after, moving)
        assert set(caught.value.possible) == possible
        return
    part = partial_move(before, after, moving)
    added = 0
    for switch, now in part.circuits.items():
        was = before.circuits.get(switch, frozenset())
        added += len(now - was)
        wanted = after.circuits.get(switch, was)
        assert now <= was | wanted
        assert was & wanted <= now
    assert added == moving
    if moving == total:
        for switch, wanted in after.circuits.items():
            assert part.circuits[switch] == wanted


_PAIR = """
name: pair
switches:
  a[0-1]: {model: osw-ascii, address: 'serial:///dev/{name}', size: 1x2}
  b[0-1]: {model: osw-ascii, address: 'serial:///dev/{name}', size: 2x1}
servers: {}
fibers: ["a[0-1].[2-3] -> b[0-1].[1-2]"]
plans:
  first: {circuits: {"a[0-1]": ["1>2"], "b[0-1]": ["1>3"]}}
simulation: {switches: {"a[0-1]": {loss: {mean: 2 dB}}}}
"""


def _loaded(folder, text):
    path = folder / "pair.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path)


def test_a_range_of_switches_takes_the_circuits_and_parameters_of_one_line(tmp_path):
    fibers = 'fibers: ["laser[0-1] -> a[0-1].1", "b[0-1].3 -> meter.[1-2]", '
    lasers = (
        "instruments:\n"
        "  laser[0-1]: {kind: light_source, model: keysight-n7776c, "
        "address: 'scpi://{name}.invalid', launch: {max: 3 dBm}}\n"
        "  meter: {kind: power_meter, model: keysight-n7745a, address: 'scpi://m.invalid', "
        "channels: 2}\n"
    )
    text = _PAIR.replace("fibers: [", lasers + fibers)
    testbed = _loaded(tmp_path, text)
    assert testbed.plans["first"].circuits == {
        "a0": {Circuit(1, 2)},
        "a1": {Circuit(1, 2)},
        "b0": {Circuit(1, 3)},
        "b1": {Circuit(1, 3)},
    }
    losses = {name: each.loss.mean for name, each in testbed.simulation.switches.items()}
    assert losses == {"a0": 2.0, "a1": 2.0, "b0": 1.2, "b1": 1.2}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('{"a[0-1]": ["1>2"]', '{"a[0-2]": ["1>2"]', "unknown optical switch 'a2'"),
        ('{"a[0-1]": ["1>2"]', '{"a[1-0]": ["1>2"]', "the range '1-0' runs downwards"),
        ('{"a[0-1]": {loss', '{"a[0-9]": {loss', "unknown optical switch 'a2'"),
        ('{"a[0-1]": {loss', '{"a[": {loss', r"'a\['"),
        ('{"a[0-1]": {loss', '{a1: {}, "a[0-1]": {loss', "a1 has parameters twice"),
    ],
)
def test_a_wrong_range_of_switches_is_named(tmp_path, before, after, message):
    with pytest.raises(TestbedError, match=message):
        _loaded(tmp_path, _PAIR.replace(before, after))
