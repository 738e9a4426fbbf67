"""Steps small enough to be computed on paper: each expected time is written out beside its sum."""

import pytest

from lightrig.harness.systems.opus.planning.archived_simulation import (
    ArchivedControl,
    circuits,
    marks,
    one_shot,
)
from lightrig.harness.systems.opus.planning.simulated_control import controlled
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.graph import Graph, Group, Kind, Node, Pattern, Workload
from lightrig.harness.workloads.networks import DedicatedLinks, SelectedLinks
from lightrig.harness.workloads.shared_links import SharedLinks
from lightrig.harness.workloads.simulator import Simulator

LATENCY = 10
TIMING = Timing(latency=LATENCY)
COMPUTE, SEND, RECEIVE = Kind.COMPUTE, Kind.SEND, Kind.RECEIVE


def ring(*needs, amount=1000, group="dp"):
    return Node(Kind.COLLECTIVE, needs, 0, Pattern.ALL_REDUCE, amount, group)


def two_stages():
    """Two ranks a stage: 100 ns, a message of 1,000 bytes; the second 100 ns, and an all-reduce."""
    first = [Node(COMPUTE, (), 100), Node(SEND, (0,), amount=1000, peer=2)]
    second = [Node(RECEIVE, (), amount=1000, peer=-2), Node(COMPUTE, (0,), 100), ring(1)]
    pairs = [Group("dp", (0, 1), 2), Group("dp", (2, 3), 2)]
    return Workload(
        (Graph.of(first), Graph.of(second)),
        (0, 0, 1, 1),
        tuple(
            {"dp": pairs[stage], "tp": Group("tp", (rank,), 1)}
            for rank, stage in enumerate((0, 0, 1, 1))
        ),
        stages=(0, 0, 1, 1),
    )


def test_packet_switches():
    """100 compute, 10 + 1000 the message, 100 compute, all-reduce 2 x (500 + 10)."""
    step = Simulator(two_stages(), DedicatedLinks({"dp": 1.0, "pp": 1.0}, TIMING)).run()
    assert step.step == 100 + 1010 + 100 + 1020
    assert step.compute == [100, 100, 100, 100]
    assert step.exposed == step.step - 100
    assert step.waits[2] == {"receive": 1110, "dp": 1020}


def test_one_shot_fabric():
    """Each kind of link at half its bandwidth: 2,000 for the message, 2 x 1,000 for the halves."""
    step = Simulator(two_stages(), DedicatedLinks({"dp": 0.5, "pp": 0.5}, TIMING)).run()
    assert step.step == 100 + 2010 + 100 + 2 * (1000 + LATENCY)


def test_one_shot_fabric_is_split_by_the_root_of_its_traffic():
    """Stage to stage 4,000 bytes, in rings 16,000: of equally many links these get 2 / 3."""
    graph = Graph.of([ring(amount=4000), ring(amount=1000, group="tp")])
    sender = Graph.of([*graph.nodes, Node(SEND, (), amount=1000, peer=2)])
    receiver = Graph.of([*graph.nodes, Node(RECEIVE, (), amount=1000, peer=-2)])
    groups = [Group("dp", (0, 1), 2), Group("dp", (2, 3), 2)]
    workload = Workload(
        (sender, receiver),
        (0, 0, 1, 1),
        tuple(
            {"dp": groups[stage], "tp": Group("tp", (rank,), 2)}
            for rank, stage in enumerate((0, 0, 1, 1))
        ),
        {"TP": 2},
        (0, 0, 1, 1),
    )
    # 8 ranks put 4,000 bytes into rings of two, 1,000 into pairs; 4 of them send 1,000 on.
    assert workload.traffic() == {"dp": 32_000, "tp": 8_000, "pp": 4_000}
    split = one_shot(workload, scale_out=30.0, scale_up=60.0)
    # Eight links of each kind; roots are 2, 1 and 1 / root 2 of that of tp; budget 90 a rank.
    parts = {"dp": 2.0, "tp": 1.0, "pp": 2**-0.5}
    assert split == pytest.approx({k: 90 * part / sum(parts.values()) for k, part in parts.items()})


def reconfigured(ahead=None):
    workload = two_stages()
    network = circuits(workload, {"dp": 1.0, "pp": 1.0}, TIMING, switching=1000)
    control = ArchivedControl(workload, network, ahead)
    return Simulator(workload, network, control).run(), control


def test_circuits_on_demand():
    """The message waits for its circuits, and so does the ring; a change costs 1,000 + 1.

    Of the two ranks of the ring the second vote asks; the first finds it granted once no event is
    left, which is when the circuits are ready.
    """
    step, _ = reconfigured()
    arrived = 100 + 1001 + 1000 + LATENCY
    assert step.step == arrived + 100 + 1001 + 1020
    assert step.changes == 2
    assert step.waits[3] == {"receive": 100 + 1000 + LATENCY, "circuits": 2 * 1001, "dp": 1020}


def test_circuits_ahead_of_demand():
    """What asks as soon as the message is there hides the 100 of compute behind the change.

    The first stage's first communication is the message itself, so nothing of it is hidden.
    """
    step, _ = reconfigured(marks(reconfigured()[1].ended_labels))
    arrived = 100 + 1001 + 1000 + LATENCY
    assert step.step == arrived + 1001 + 1020


def test_a_shared_link():
    """Two messages on one link of 1 byte a ns: of 1,000 and 3,000 bytes.

    Half the link each until the shorter is through at 2,000, then all of it: 2,000 more bytes.
    """
    first = [Node(SEND, (), amount=1000, peer=2)]
    second = [Node(SEND, (), amount=3000, peer=2)]
    short = [Node(RECEIVE, (), amount=1000, peer=-2)]
    long = [Node(RECEIVE, (), amount=3000, peer=-2)]
    graphs = tuple(map(Graph.of, (first, second, short, long)))
    workload = Workload(graphs, (0, 1, 2, 3), ({},) * 4)
    capacities = {("out", 0): 1.0, ("out", 1): 1.0, "up": 1.0}
    network = SharedLinks(capacities, lambda source, _: (("out", source), "up"), TIMING, {})
    step = Simulator(workload, network).run()
    assert step.ends == [2000 + LATENCY, 4000 + LATENCY, 2000 + LATENCY, 4000 + LATENCY]


def test_a_ring_shares_with_a_message():
    """A ring of 2 x 500 both ways, of which one direction crosses the link of a message of 500.

    Until 1,000 both have 0.5; the message is through and the ring has 500 of its 1,000 left.
    """
    sender = Graph.of([Node(SEND, (), amount=500, peer=3)])
    receiver = Graph.of([Node(RECEIVE, (), amount=500, peer=-3)])
    member = Graph.of([ring()])
    group = Group("dp", (1, 2), 2)
    workload = Workload(
        (sender, member, receiver), (0, 1, 1, 2), ({}, {"dp": group}, {"dp": group}, {})
    )
    shared = {(0, 3), (1, 2)}
    network = SharedLinks(
        {"up": 1.0, "else": 1.0},
        lambda source, target: ("up",) if (source, target) in shared else ("else",),
        Timing(latency=0),
        {},
    )
    step = Simulator(workload, network).run()
    assert step.ends == [1000, 1500, 1500, 1000]


def test_a_change_waits_for_a_ring_that_goes_on():
    """A ring of 10,000 bytes on the second stage: 2 x (5,000 + 10), begun by its last rank at 100.

    The message of the first stage is refused at 100, and asked for again once the ring has ended.
    """
    first = [Node(COMPUTE, (), 100), Node(SEND, (0,), amount=1000, peer=2)]
    second = [ring(amount=10_000), Node(RECEIVE, (), amount=1000, peer=-2)]
    groups = [{"dp": Group("dp", (0, 1), 2)}] * 2 + [{"dp": Group("dp", (2, 3), 2)}] * 2
    graphs = Graph.of(first), Graph.of(second)
    workload = Workload(graphs, (0, 0, 1, 1), tuple(groups), stages=(0, 0, 1, 1))
    network = circuits(workload, {"dp": 1.0, "pp": 1.0}, TIMING, switching=1000)
    step = Simulator(workload, network, ArchivedControl(workload, network)).run()
    assert step.step == 100 + 10_020 + 1001 + 1010
    assert step.changes == 1


@pytest.mark.parametrize(("mode", "hidden"), [("default", 0), ("provisioning", 100)])
def test_circuits_that_the_control_plane_of_training_changes(mode, hidden):
    """The first circuits are those of the first message, as a job begins: nothing to wait for.

    Both ranks of the ring ask once their 100 of compute are over, or with the message's end; the
    change waits 50 for further stages and takes 1,000, and the ring 2 x (500 + 10).
    """
    step = controlled(two_stages(), {"dp": 1.0, "pp": 1.0}, TIMING, 1000, mode, gathering=50)
    arrived = 100 + 1000 + LATENCY
    assert step.step == arrived + 100 - hidden + 50 + 1000 + 1020
    assert step.changes == 1
    assert step.waits[2]["receive"] == arrived
    assert step.waits[2]["circuits"] + step.waits[2]["dp"] == step.step - arrived - 100


def test_the_control_plane_changes_stages_apart():
    """Of three stages the last is done first, and its ring is made while the others still send.

    Stages 0 to 2 compute 100 each and hand on 1,000 bytes; then each has a ring, asked for when it
    has sent. A stage's ring is made without that of a stage behind it: of 1,000 each, in turn.
    """
    pairs = [Group("dp", (2 * stage, 2 * stage + 1), 2) for stage in range(3)]
    send = Node(SEND, (0,), amount=1000, peer=2)
    first = [Node(COMPUTE, (), 100), send, ring(1)]
    receive = Node(RECEIVE, (), amount=1000, peer=-2)
    middle = [receive, Node(COMPUTE, (0,), 100), send._replace(needs=(1,)), ring(2)]
    last = [receive, Node(COMPUTE, (0,), 100), ring(1)]
    stages = (0, 0, 1, 1, 2, 2)
    workload = Workload(
        tuple(map(Graph.of, (first, middle, last))),
        stages,
        tuple(
            {"dp": pairs[stage], "tp": Group("tp", (rank,), 1)} for rank, stage in enumerate(stages)
        ),
        stages=stages,
    )
    step = controlled(workload, {"dp": 1.0, "pp": 1.0}, TIMING, 1000, "default", gathering=50)
    sent = [100 + 1010, 2 * 1110]
    # Stage 0 asks when its message is there, stage 1 at 2,220. Stage 2 asks at 2,320, while stage
    # 1's change, which takes its links with stage 2, is under way: its own is due after that.
    assert step.ends[0] == sent[0] + 50 + 1000 + 1020
    assert step.ends[2] == sent[1] + 50 + 1000 + 1020
    assert step.ends[4] == sent[1] + 50 + 1000 + 50 + 1000 + 1020
    assert step.changes == 3


def test_links_that_ranks_select():
    """Links between stages are selected first; the ring's take 1,000 to select, once."""
    network = SelectedLinks({"dp": 1.0, "pp": 1.0}, TIMING, 1000)
    step = Simulator(two_stages(), network).run()
    arrived = 100 + 1000 + LATENCY
    assert step.step == arrived + 100 + 1000 + 1020
    assert step.changes == 1
    assert step.waits[2] == {"receive": arrived, "circuits": 1000, "dp": 1020}


def test_what_ranks_carry_ends_before_they_select():
    """Rank 1 receives 3,000 bytes, and at 500 could begin a ring with rank 0.

    The ring waits until 3,010, is selected for 200 and takes 2 x (500 + 10).
    """
    member = Graph.of([Node(COMPUTE, (), 500), ring(0)])
    receiver = [Node(RECEIVE, (), amount=3000, peer=1), Node(COMPUTE, (), 500), ring(1)]
    sender = Graph.of([Node(SEND, (), amount=3000, peer=-1)])
    group = Group("dp", (0, 1), 2)
    workload = Workload(
        (member, Graph.of(receiver), sender), (0, 1, 2), ({"dp": group}, {"dp": group}, {})
    )
    network = SelectedLinks({"dp": 1.0, "pp": 1.0}, TIMING, 200)
    step = Simulator(workload, network).run()
    assert step.ends[0] == 3000 + LATENCY + 200 + 1020


def test_a_switch_carries_an_all_to_all_straight_to_its_targets():
    """Three quarters of 4,000 bytes leave each of four; in a ring they pass on 1 + 2 + 3 parts."""
    exchange = Node(Kind.COLLECTIVE, (), 0, Pattern.ALL_TO_ALL, 4000, "ep")
    group = Group("ep", (0,), 4)
    straight = DedicatedLinks({"ep": 1.0}, TIMING, switched=True).collective(group, exchange)
    passed_on = DedicatedLinks({"ep": 1.0}, TIMING).collective(group, exchange)
    assert straight == 3000 + LATENCY
    assert passed_on == (1 + 2 + 3) * 1000 + 3 * LATENCY
