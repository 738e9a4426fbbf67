"""Requests that wait: which groups are complete is what counting them anew says."""

import random

import pytest

from lightrig.harness.systems.opus.planning.messages import TopoWrite
from lightrig.harness.systems.opus.planning.operations import RailJob
from lightrig.harness.systems.opus.planning.pending_asks import PendingAsks

JOB = RailJob.grid("job", 3, [2, 2])


def counted(asks):
    """Return the complete groups with who has asked, by counting."""
    members = {name: set(group.ranks) for name, group in JOB.groups.items()}
    found = {}
    for ask in asks:
        found.setdefault((ask.group, ask.index), {})[ask.rank] = ask
    return [
        (group, index, tuple(ask for _, ask in sorted(each.items())))
        for (group, index), each in sorted(found.items())
        if set(each) == members[group]
    ]


@pytest.mark.parametrize("seed", range(12))
def test_complete_groups_are_those_that_counting_finds(seed):
    """Ranks ask for an operation of one of their groups, change their mind, and are answered."""
    draw = random.Random(seed)
    asks, plain, seen = PendingAsks(JOB.groups), {}, 0
    of_rank = [
        [name for name, group in JOB.groups.items() if rank in group.ranks] for rank in range(12)
    ]
    for turn in range(1, 300):
        if draw.random() < 0.8:
            rank = draw.randrange(12)
            # Mostly the rank's first groups, so that these are complete now and then.
            group = of_rank[rank][min(draw.randrange(4), draw.randrange(len(of_rank[rank])))]
            ask = TopoWrite(rank, turn, group, draw.randrange(2), JOB.stage_of[rank])
            asks, plain = asks.with_ask(ask), {**plain, rank: ask}
        else:
            answered = draw.sample(range(12), 2)
            before = set(asks)
            after = asks.without(answered)
            assert set(asks) == before
            asks, plain = after, {rank: ask for rank, ask in plain.items() if rank not in answered}
        assert set(asks) == set(plain.values())
        assert all(asks.of(rank) == plain.get(rank) for rank in range(12))
        ready = [(each.group, each.index, each.asked) for each in asks.ready()]
        assert ready == counted(plain.values())
        seen += bool(ready)
        same = PendingAsks(JOB.groups, plain.values())
        assert asks == same
        assert hash(asks) == hash(same)
    assert seen > 20
