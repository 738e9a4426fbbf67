"""Opus on a job of 3 stages of 5 ranks, and steps whose operations are not alike."""

import pytest
from uneven import COLUMNS, LINES

from lightrig.harness.systems.opus.planning.operations import (
    Operation,
    OpusError,
    RailJob,
    neighbours,
)
from lightrig.harness.systems.opus.planning.schedule import PhaseTable, numbered
from lightrig.harness.systems.opus.planning.topology import TopologyId
from lightrig.harness.systems.opus.planning.wiring import Attachment, RailWiring
from lightrig.testbeds import Circuit

JOB = RailJob.grid("uneven", LINES, [COLUMNS], rails=2)
"""Rank 2 n + r is on rail r; the ranks of stage 1 on rail 0 are 10, 12, 14, 16 and 18."""


def attachments(rail):
    """Ports 1 and 2 of the first rank of a rail, 3 and 4 of the next; egress from 101 on."""
    return {
        rank: tuple(Attachment(2 * n + p, 2 * n + p + 100) for p in (1, 2))
        for n, rank in enumerate(JOB.ranks(rail))
    }


@pytest.fixture(scope="module")
def wiring():
    return RailWiring.of(JOB, 0, attachments(0))


def both_ways(*pairs):
    """Return the circuits of links between two ports of the switch, of both directions."""
    return {Circuit(x, y + 100) for a, b in pairs for x, y in ((a, b), (b, a))}


def test_ranks_and_groups_of_an_oblong_job():
    assert JOB.stage_ranks(0, 1) == (10, 12, 14, 16, 18)
    assert JOB.stage_ranks(1, 2) == (21, 23, 25, 27, 29)
    assert (JOB.rails, len(JOB.ranks(1))) == (2, 15)
    assert neighbours(3) == [(0, 1), (1, 2), (2, 0)]
    assert neighbours(2) == [(0, 1)]
    by_dimension = [
        [group.ranks for group in JOB.groups.values() if group.dimension == d] for d in (0, 1)
    ]
    assert [len(groups) for groups in by_dimension] == [2 * 3 * 5, 2 * 3]
    assert (10, 12, 14, 16, 18) in by_dimension[1]
    assert (3, 13) in by_dimension[0]
    assert (23, 3) in by_dimension[0]
    assert RailJob.grid("two", 2, [3, 2]).groups["r0.d1.s1.1"].ranks == (7, 9, 11)
    assert RailJob.grid("two", 2, [3, 2]).groups["r0.d2.s1.2"].ranks == (8, 9)


def test_circuits_of_odd_rings_go_from_second_ports_to_first_ones(wiring):
    """Stage 1 has ports 11 to 20, column 2 of the pipeline ports 5, 6, 15, 16, 25 and 26."""
    symmetric = wiring.circuits(TopologyId("212"))
    assert symmetric == both_ways((12, 13), (14, 15), (16, 17), (18, 19), (20, 11))
    pipeline = wiring.circuits(TopologyId("000"))
    columns = [
        ((2 * c + 2, 2 * c + 11), (2 * c + 12, 2 * c + 21), (2 * c + 22, 2 * c + 1))
        for c in range(5)
    ]
    assert pipeline == both_ways(*(pair for column in columns for pair in column))
    # Only stages 1 and 2 are in the pipeline: the link between them alone.
    assert wiring.circuits(TopologyId("300")) == both_ways(*(column[1] for column in columns))


def test_the_giant_ring_goes_down_one_column_and_up_the_next(wiring):
    """Ranks 0, 10, 20, then 22, 12, 2, then 4 ...: 15 ranks, from second ports to first ones."""
    places = [0, 5, 10, 11, 6, 1, 2, 7, 12, 13, 8, 3, 4, 9, 14]
    pairs = [(2 * a + 2, 2 * b + 1) for a, b in zip(places, places[1:] + places[:1], strict=True)]
    assert wiring.giant_ring == both_ways(*pairs)


def test_circuits_that_touch_some_stages(wiring):
    only = wiring.touching(frozenset({1}))
    assert both_ways((12, 13)) <= only
    assert both_ways((2, 11)) <= only
    assert not both_ways((22, 1)) & only
    assert not both_ways((2, 3)) & only
    assert len(only) == 2 * (5 + 2 * 5)
    assert wiring.giant_ring <= wiring.touching(frozenset({0, 1, 2}))
    assert wiring.ports() == (frozenset(range(1, 31)), frozenset(range(101, 131)))


def test_rewired_stages_of_four_in_unlike_phases():
    was = TopologyId("0120")
    assert was.beside(frozenset({3})) == {2, 3, 0}
    assert was.changed(TopologyId("0220")) == {1}
    # Stages 0 and 3 are neighbours around the end.
    assert was.rewired(TopologyId("1120")) == {0, 3}
    assert was.rewired(TopologyId("0020")) == {1}
    with pytest.raises(OpusError, match="of different jobs"):
        was.changed(TopologyId("012"))


def operations(text):
    """Return operations of groups p, of the pipeline, d of dimension 1 and e of dimension 2."""
    dimension = {"p": 0, "d": 1, "e": 2}
    return numbered([Operation(letter, 0, dimension[letter]) for letter in text])


def test_positions_before_within_and_after_three_steps():
    table = PhaseTable(
        operations("ppded"), steps=3, before=operations("ed"), joined=(1, 1, 2, 1, 3, 1, 1)
    )
    assert [table.at(n).group for n in range(9)] == list("edppdedpp")
    assert table.at(2 + 15) is None
    assert table.at(2 + 14).group == "d"
    # The last step's: two of d a step, so 2 * 2 + 1; of the operations before, each is the first.
    assert (table.at(2 + 14).index, table.at(2 + 12).index, table.at(1).index) == (5, 4, 0)
    # After `ed`: both p ask, the first d after p, e after d, d after e, and p of the next step.
    assert [table.asks(n) for n in range(9)] == [True] * 9
    assert not PhaseTable(operations("ddp")).asks(1)
    assert [table.joined_at(n) for n in range(9)] == [1, 1, 2, 1, 3, 1, 1, 2, 1]
    assert table.steps_in(12) == [(2, 7), (7, 12)]
    assert table.steps_in(11) == [(2, 7)]
    assert len(table.all()) == 17
    assert table.shifts == 4  # d-p, p-d, d-e, e-d
    with pytest.raises(OpusError, match="how many steps"):
        PhaseTable(operations("pd")).all()
