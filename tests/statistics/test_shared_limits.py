"""Which flows share a limit: against all subsets of small worlds, and the binomial table."""

import itertools
from collections.abc import Collection, Sequence

import pytest

from lightrig.harness.jobs.statistics.shared_limits import (
    LOOKS,
    Loss,
    SharedLimits,
    find_shared_limits,
    judged,
)

FLOWS = ("a0", "a1", "b0", "b1", "c0", "c1", "d0")
GROUPS = {
    "a sending": ("a0", "a1"),
    "b": ("b0", "b1", "c0"),
    "everything": FLOWS,
    "d": ("d0",),
}


class World:
    """Flows of rate 1 that cross limits; those of a limit that is exceeded lose alike."""

    def __init__(
        self, *limits: tuple[Collection[str], float], unclear: Collection[str] = ()
    ) -> None:
        self.limits, self.unclear = limits, unclear
        self.runs: list[tuple[str, ...]] = []

    def run(self, flows: Sequence[str]) -> dict[str, Loss]:
        self.runs.append(tuple(flows))
        found = {}
        for flow in flows:
            shares = [
                rate / len(set(limited) & set(flows))
                for limited, rate in self.limits
                if flow in limited
            ]
            found[flow] = Loss.LOSES if min(shares, default=1.0) < 0.9 else Loss.HOLDS
            if flow in self.unclear:
                found[flow] = Loss.UNDECIDED
        return found

    def search(self) -> SharedLimits[str]:
        return find_shared_limits(FLOWS, GROUPS, self.run)


def sets(found: SharedLimits[str]) -> list[tuple[tuple[str, ...], str, bool]]:
    return [(one.flows, one.shared, one.confirmed) for one in found.sets]


def test_each_pair_that_shares_is_named_after_few_loads() -> None:
    for pair in itertools.combinations(FLOWS, 2):
        world = World((pair, 1.0))
        found = world.search()
        assert [one.flows for one in found.sets] == [pair], pair
        assert found.sets[0].shared == ("a sending" if pair == ("a0", "a1") else "")
        assert not found.alike
        assert not found.undecided
        assert len(world.runs) == 2


@pytest.mark.parametrize("size", [3, 4, 5])
def test_a_set_is_the_least_that_loses(size: int) -> None:
    """A limit of two flows among more of them: any three lose, no two do, by trying all subsets."""
    for limited in itertools.combinations(FLOWS, size):
        world = World((limited, 2.0))
        whole = world.search()
        (found,) = whole.sets
        assert sorted((*found.flows, *whole.beside)) == sorted(limited)
        losing = [
            subset
            for count in range(2, size + 1)
            for subset in itertools.combinations(FLOWS, count)
            if all(one is Loss.LOSES for one in World((limited, 2.0)).run(subset).values())
        ]
        assert len(found.flows) == min(map(len, losing))
        assert found.flows in losing


def test_two_pairs_are_two_sets() -> None:
    world = World((("a0", "c1"), 1.0), (("b1", "d0"), 1.2))
    assert sorted(one.flows for one in world.search().sets) == [("a0", "c1"), ("b1", "d0")]


def test_what_the_file_says_they_share_is_named_and_what_holds_in_it_is_not() -> None:
    assert sets(World((("b0", "b1", "c0"), 1.0)).search()) == [(("b0", "b1", "c0"), "b", True)]
    # Of the three of b one holds: b is not what the others share.
    assert sets(World((("b0", "c0"), 1.0)).search()) == [(("b0", "c0"), "", True)]


def test_nothing_is_named_where_nothing_loses() -> None:
    world = World()
    assert world.search() == SharedLimits()
    assert world.runs == [FLOWS]


def test_all_alike_are_all_of_them_or_the_bench() -> None:
    """No group loses for itself where five and more are needed."""
    found = World((FLOWS, 4.9)).search()
    assert found.alike
    assert not found.sets


def test_parts_of_all_that_lose_are_named_beside_the_rest() -> None:
    found = World((FLOWS, 4.9), (("a0", "a1"), 1.0)).search()
    assert sets(found) == [(("a0", "a1"), "a sending", True)]
    assert found.alike


def test_what_loses_only_beside_flows_that_hold_is_not_confirmed() -> None:
    class Beside(World):
        def run(self, flows: Sequence[str]) -> dict[str, Loss]:
            found = super().run(flows)
            if "d0" in flows:
                found |= {"a0": Loss.LOSES, "b1": Loss.LOSES}
            return found

    found = Beside().search()
    assert sets(found) == [(("a0", "b1"), "", False)]


def test_flows_of_which_nothing_can_be_told_are_undecided_and_never_named() -> None:
    found = World((("a0", "b1", "d0"), 1.0), unclear=("d0", "c0")).search()
    assert found.undecided == ("c0", "d0")
    assert sets(found) == [(("a0", "b1"), "", True)]


# One-sided sign test, a third of 5 % a look: 6 of 6 has 1/64 and 5 of 6 7/64; 9 of 9 has 1/512 and
# 8 of 9 10/512 = 0.0195; 11 of 12 has 13/4096 and 10 of 12 79/4096 = 0.0193 (binomial table).
@pytest.mark.parametrize(
    ("below", "rounds", "expected"),
    [
        (6, 6, Loss.LOSES), (5, 6, Loss.UNDECIDED), (1, 6, Loss.UNDECIDED), (0, 6, Loss.HOLDS),
        (5, 5, Loss.UNDECIDED), (0, 5, Loss.UNDECIDED),
        (9, 9, Loss.LOSES), (8, 9, Loss.UNDECIDED), (1, 9, Loss.UNDECIDED),
        (11, 12, Loss.LOSES), (10, 12, Loss.UNDECIDED), (2, 12, Loss.UNDECIDED),
        (1, 12, Loss.HOLDS),
    ],
)  # fmt: skip
def test_shares_are_judged_by_the_sign_test(below: int, rounds: int, expected: Loss) -> None:
    shares = [0.55 + 0.01 * each for each in range(below)]
    shares += [0.91 + 0.02 * each for each in range(rounds - below)]
    assert judged(shares, LOOKS) is expected
    assert judged(shares[::-1]) is expected
