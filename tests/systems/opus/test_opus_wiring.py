"""Topology identifiers, and the cross-connects that each of them wants."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from systems.opus.opus_world import attachments

from lightrig.harness.systems.opus.planning.messages import (
    NotProgrammed,
    NotRewired,
    Program,
    Programmed,
    Rewire,
    Rewired,
)
from lightrig.harness.systems.opus.planning.operations import OpusError, RailJob
from lightrig.harness.systems.opus.planning.orchestrator import Orchestrator
from lightrig.harness.systems.opus.planning.topology import (
    GIANT_RING,
    GiantRing,
    Topology,
    TopologyId,
)
from lightrig.harness.systems.opus.planning.wiring import RailWiring
from lightrig.harness.systems.opus.runtime.on_fabric import attachments_of
from lightrig.testbeds import Circuit, load
from lightrig.testbeds.plans import port_used_twice

OPUS = Path(__file__).parents[3] / "testbeds" / "opus.yaml"


@st.composite
def jobs(draw: st.DrawFn) -> RailJob:
    stages = draw(st.integers(1, 5))
    widths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    return RailJob.grid("any", stages, widths)


@st.composite
def wired(draw: st.DrawFn, count: int = 1) -> tuple[RailWiring, list[TopologyId]]:
    job = draw(jobs())
    dimensions = max(group.dimension for group in job.groups.values())
    digits = st.text(
        [str(digit) for digit in range(dimensions + 1)], min_size=job.stages, max_size=job.stages
    )
    return RailWiring.of(job, 0, attachments(job, 0)), [
        TopologyId(draw(digits)) for _ in range(count)
    ]


def test_leading_zeros_are_preserved() -> None:
    """The paper's example: three stages in DP, then stages 0 and 1 go over to the pipeline."""
    everybody = TopologyId.uniform(3, 1)
    assert str(everybody) == "111"
    after = everybody.with_stages({0: 0, 1: 0})
    assert str(after) == "001"
    assert everybody.changed(after) == {0, 1}
    assert [after[stage] for stage in range(3)] == [0, 0, 1]


def test_a_rank_that_leaves_a_pipeline_parts_its_neighbours() -> None:
    """Fig. 8's second case: the stages that were connected to the one that leaves."""
    assert TopologyId("000").rewired(TopologyId("010")) == {0, 1, 2}
    assert TopologyId("0001").rewired(TopologyId("0101")) == {0, 1, 2}
    assert TopologyId("001").rewired(TopologyId("000")) == {2}
    assert TopologyId("111").rewired(TopologyId("001")) == {0, 1}


@pytest.mark.parametrize("text", ["", "0x1", "-1", "٣"])
def test_an_invalid_topology_is_refused(text: str) -> None:
    with pytest.raises(OpusError, match="one digit a stage"):
        TopologyId(text)


def test_groups_of_a_grid() -> None:
    """PP 3, DP 2, CP 2: 2 x 3 DP groups, 2 x 3 CP groups, 4 columns of a pipeline (§4.1)."""
    job = RailJob.grid("fig8", 3, [2, 2])
    by_dimension = {d: [g for g in job.groups.values() if g.dimension == d] for d in range(3)}
    assert len(by_dimension[1]) == len(by_dimension[2]) == 6
    assert len(by_dimension[0]) == 4 * 3  # a pair of neighbours each, the ring's last one included
    assert all(len(group.ranks) == 2 for group in job.groups.values())


def test_the_published_maps_come_out() -> None:
    """A map of a pipeline, one of data parallelism, and the giant ring, port by port."""
    testbed = load(OPUS)
    job = RailJob.grid("llama", 2, [2], rails=2)
    wirings = [RailWiring.of(job, rail, attachments_of(testbed, job, rail)[1]) for rail in range(2)]
    topologies: dict[str, Topology] = {
        "east-west": TopologyId("00"),
        "north-south": TopologyId("11"),
        "giant-ring": GIANT_RING,
    }
    for plan, topology in topologies.items():
        ours = frozenset(c for wiring in wirings for c in wiring.circuits(topology))
        assert ours == testbed.plans[plan].circuits["ocs"], plan


@settings(max_examples=60)
@given(wired())
def test_no_port_is_used_twice_and_every_link_has_two_directions(
    wired: tuple[RailWiring, list[TopologyId]],
) -> None:
    wiring, (topology,) = wired
    for circuits in (wiring.circuits(topology), wiring.giant_ring):
        assert port_used_twice(sorted(circuits)) is None
        assert circuits == {Circuit(c.egress - 100, c.ingress + 100) for c in circuits}
        ingress, egress = wiring.ports()
        assert all(c.ingress in ingress and c.egress in egress for c in circuits)


@settings(max_examples=60)
@given(wired())
def test_ranks_that_communicate_have_a_path(wired: tuple[RailWiring, list[TopologyId]]) -> None:
    wiring, (topology,) = wired
    circuits, job = wiring.circuits(topology), wiring.job
    for name, group in job.groups.items():
        owned = all(topology[job.stage_of[rank]] == group.dimension for rank in group.ranks)
        path = wiring.carrying(name, topology)
        assert bool(path) == (len(group.ranks) > 1)
        assert not owned or path <= circuits
        assert wiring.carrying(name, GIANT_RING) == wiring.giant_ring


@settings(max_examples=60)
@given(wired(2))
def test_a_shift_moves_circuits_of_the_stages_that_it_names_alone(
    wired: tuple[RailWiring, list[TopologyId]],
) -> None:
    wiring, (before, after) = wired
    moved = wiring.circuits(before) ^ wiring.circuits(after)
    stage_of = {
        port.ingress: wiring.job.stage_of[rank]
        for rank, ports in attachments(wiring.job, 0).items()
        for port in ports
    }
    ends = {stage_of[c.ingress] for c in moved} | {stage_of[c.egress - 100] for c in moved}
    joined = after.rewired(before)
    assert ends <= before.rewired(after) | joined
    # Who joins a pipeline moves nothing of those that are in it.
    for stage in range(len(before)):
        if before[stage] == after[stage]:
            gone = wiring.circuits(before) - wiring.circuits(after)
            assert all(
                {stage_of[c.ingress], stage_of[c.egress - 100]} & before.changed(after)
                for c in gone
                if stage in {stage_of[c.ingress], stage_of[c.egress - 100]}
            )


# ---------------------------------------------------------------------------- orchestrator


def two_jobs() -> tuple[Orchestrator, RailWiring, RailWiring]:
    one, other = RailJob.grid("one", 2, [2]), RailJob.grid("other", 2, [2])
    wirings = (
        RailWiring.of(one, 0, attachments(one, 0)),
        RailWiring.of(other, 0, attachments(other, 0, 20)),
    )
    begun = TopologyId("00")
    both = {"one": (wirings[0], begun), "other": (wirings[1], begun)}
    return Orchestrator.of(0, both), *wirings


def test_another_job_on_the_switch_is_left_alone() -> None:
    orchestrator, one, other = two_jobs()
    after, (rewire,) = orchestrator.receive(
        Program(0, "one", 1, 1, TopologyId("11"), frozenset({0, 1}))
    )
    assert isinstance(rewire, Rewire)
    assert rewire.remove == one.circuits(TopologyId("00"))
    assert rewire.add == one.circuits(TopologyId("11"))
    done, (acknowledged,) = after.receive(Rewired(0, "one", 1, 1))
    assert acknowledged == Programmed(0, "one", 1)
    assert done.circuits() == one.circuits(TopologyId("11")) | other.circuits(TopologyId("00"))


def test_jobs_that_share_a_port_are_refused() -> None:
    one, other = RailJob.grid("one", 2, [2]), RailJob.grid("other", 2, [2])
    both = {
        job.name: (RailWiring.of(job, 0, attachments(job, 0)), TopologyId("00"))
        for job in (one, other)
    }
    with pytest.raises(OpusError, match="of rail 0 is other's and one's"):
        Orchestrator.of(0, both)


def test_the_same_program_again_sends_nothing_to_the_switch() -> None:
    orchestrator, _, _ = two_jobs()
    program = Program(0, "one", 1, 1, TopologyId("11"), frozenset({0, 1}))
    undelivered, _ = orchestrator.receive(program)
    assert undelivered.receive(program) == (undelivered, ())
    done, _ = undelivered.receive(Rewired(0, "one", 1, 1))
    assert done.receive(program) == (done, (Programmed(0, "one", 1),))
    assert done.receive(Program(0, "one", 0, 1, TopologyId("00"), frozenset({0, 1}))) == (done, ())


def test_a_topology_that_moves_nothing_is_acknowledged_at_once() -> None:
    job = RailJob.grid("thin", 3, [1])
    wiring = RailWiring.of(job, 0, attachments(job, 0))
    orchestrator = Orchestrator.of(0, {"thin": (wiring, TopologyId("110"))})
    assert wiring.circuits(TopologyId("110")) == wiring.circuits(TopologyId("111")) == frozenset()
    _, sent = orchestrator.receive(Program(0, "thin", 1, 1, TopologyId("111"), frozenset({2})))
    assert sent == (Programmed(0, "thin", 1),)


def test_after_a_failure_the_ring_is_made_from_whatever_is_there() -> None:
    orchestrator, one, _ = two_jobs()
    failing, _ = orchestrator.receive(Program(0, "one", 1, 1, TopologyId("11"), frozenset({0, 1})))
    same, (told,) = failing.receive(NotRewired(0, "one", 1, 1, "silent"))
    assert told == NotProgrammed(0, "one", 1, 1, "silent")
    _, (rewire,) = same.receive(Program(0, "one", 2, 1, GIANT_RING, frozenset({0, 1})))
    assert isinstance(rewire, Rewire)
    before, meant = one.circuits(TopologyId("00")), one.circuits(TopologyId("11"))
    ring = one.circuits(GiantRing())
    for there in (before, meant, (before - ring) | (meant & ring)):
        assert (there - rewire.remove) | rewire.add == ring
