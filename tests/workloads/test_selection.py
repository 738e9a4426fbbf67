"""Links that ranks select, by themselves or together: every order of events, and steps by hand."""

from lightrig.harness.systems.acos.planning.selection_control import start_times
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.graph import Graph, Group, Kind, Node, Pattern, Workload
from lightrig.harness.workloads.networks import PhasedLinks, SelectedLinks
from lightrig.harness.workloads.selection import LinkSelection
from lightrig.harness.workloads.simulator import Simulator

WISHES = (("a", "dp"), ("b", "dp"), ("c", "pp"), ("d", "dp"))


def _after(state: LinkSelection, wanted: int) -> list[tuple[LinkSelection, int]]:
    """Return each state that may follow, with how many of the wishes have come then."""
    found = []
    if wanted < len(WISHES):
        found.append((state.wants(*WISHES[wanted]), wanted + 1))
    if state.due == "start":
        found.append((state.start(), wanted))
    if state.due == "select":
        found.append((state.begin(), wanted))
    if state.selecting:
        found += [(state.over(), wanted), (state.over(failed=True).refuse(), wanted)]
    return found + [(state.end(one), wanted) for one in state.running]


def test_links_never_change_under_what_runs():
    """In every order of wishes, starts, changes, failures and ends nothing runs on other links."""
    start = (LinkSelection(), 0)
    known, waiting = {start}, [start]
    kinds, ended = dict(WISHES), 0
    while waiting:
        state, wanted = waiting.pop()
        assert not (state.selecting and state.running)
        assert {kinds[one] for one in state.running} <= {state.selected}
        order = [one for one, _ in state.waiting]
        assert order == sorted(order)
        assert not state.running or max(state.running) < min(order, default="z")
        follows = _after(state, wanted)
        if not follows:
            ended += 1
            assert not state.waiting
        for each in set(follows) - known:
            known.add(each)
            waiting.append(each)
    assert ended
    assert len(known) > 50


def test_a_failed_change_is_due_again():
    state = LinkSelection("dp").wants(1, "pp").begin().over(failed=True)
    assert (state.selected, state.due) == (None, "select")
    assert state.refuse().due == "nothing"


def test_a_rank_selects_while_its_partner_still_carries():
    """Rank 0 ends a ring with rank 3 at 510, and selects for 300 to send 100 bytes to rank 1.

    That one receives from rank 2 until 2,510 over links that it need not change: it has the
    message at 2,620, since rank 0 was ready long before.
    """
    ring = Node(Kind.COLLECTIVE, (), 0, Pattern.BROADCAST, 500, "ring")
    receives = [Node(Kind.RECEIVE, (), amount=100, peer=peer) for peer in (-1, 1)]
    workload = Workload(
        (
            Graph.of([ring, Node(Kind.SEND, (0,), amount=100, peer=1)]),
            Graph.of(receives),
            Graph.of([Node(Kind.SEND, (), amount=2500, peer=-1)]),
            Graph.of([ring]),
        ),
        (0, 1, 2, 3),
        ({"ring": Group("dp", (0, 3), 2)}, {}, {}, {"ring": Group("dp", (0, 3), 2)}),
    )
    network = SelectedLinks({"dp": 1.0, "pp": 1.0}, Timing(latency=10), 300)
    step = Simulator(workload, network).run()
    assert step.ends == [2510 + 110, 2510 + 110, 2510, 510]
    assert step.changes == 1


def test_servers_start_when_the_closed_form_has_it():
    """Two servers alternate between two rings, with computing that differs by server and turn.

    Collectives of one byte on links of 1 GB/s without latency take a nanosecond and less.
    """
    computes = ((300, 50, 700, 20), (100, 900, 10, 400))
    programs = (("dp", "cp", "dp", "cp"),) * 2
    expected = start_times({"dp": [(0, 1)], "cp": [(0, 1)]}, programs, computes, 2000)
    graphs = []
    for compute in computes:
        nodes: list[Node] = []
        for turn, kind in enumerate(programs[0]):
            needs = (len(nodes) - 1,) if nodes else ()
            nodes.append(Node(Kind.COMPUTE, needs, compute[turn]))
            nodes.append(Node(Kind.COLLECTIVE, (len(nodes) - 1,), 0, Pattern.BROADCAST, 0, kind))
        graphs.append(Graph.of(nodes))
    groups = {kind: Group(kind, (0, 1), 2) for kind in ("dp", "cp")}
    network = SelectedLinks({"dp": 1.0, "cp": 1.0}, Timing(latency=0), 2000)
    step = Simulator(Workload(tuple(graphs), (0, 1), (groups, groups)), network).run()
    # The closed form has the servers select at first, too, which links here do beforehand, and each
    # of them before the other one wants the collective, where the simulator has both want it first.
    assert expected[0][-1] == 300 + 900 + 700 + 400 + 4 * 2000
    assert step.step == expected[0][-1] - 2000


def test_a_phase_is_that_of_all_ranks():
    """Two rings run beside each other until 510 and 910, and then a message and a third ring.

    Rank 0 wants to send from 510 on. Links between stages are there at 910 + 300, so it has sent
    100 bytes at 1,320; the ring that ranks 1 and 3 want from 910 on waits behind it, for a second
    change, and takes 200 + 10.
    """
    first, second = (
        Node(Kind.COLLECTIVE, (), 0, Pattern.BROADCAST, size, "ring") for size in (500, 900)
    )
    third = Node(Kind.COLLECTIVE, (0,), 0, Pattern.BROADCAST, 200, "third")
    send, receive = (Node(kind, (0,), amount=100, peer=peer)
                     for kind, peer in ((Kind.SEND, 2), (Kind.RECEIVE, -2)))  # fmt: skip
    rings = [{"ring": Group("dp", members, 2)} for members in ((0, 1), (2, 3))]
    behind = {"third": Group("dp", (1, 3), 2)}
    workload = Workload(
        tuple(map(Graph.of, ([first, send], [first, third], [second, receive], [second, third]))),
        (0, 1, 2, 3),
        (rings[0], rings[0] | behind, rings[1], rings[1] | behind),
    )
    network = PhasedLinks({"dp": 1.0, "pp": 1.0}, Timing(latency=10), 300)
    step = Simulator(workload, network).run()
    assert step.ends == [1320, 1320 + 300 + 210, 1320, 1320 + 300 + 210]
    assert step.changes == 2
    # Of 800 in which rank 1 waits for its second ring, what ranks send is no wait for circuits.
    assert step.waits[0]["circuits"] == 300
