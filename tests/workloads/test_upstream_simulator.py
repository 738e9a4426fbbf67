"""Collectives on shared links beside what ASTRA-sim printed for them.

astra-sim at c459ab61193bdb5b663ab61d2e923314dae8a77f with astra-network-analytical at
599a0473a9a74f5383f73b3cea5a12b9bc5ebaef, built with 62302019 of spdlog in place of the pinned one;
`AstraSim_Analytical_Congestion_Aware`. Input: for each rank a file of `chakra.write` with one
collective of 2^20 bytes of all ranks; network: topology Ring, Switch or FullyConnected, bandwidth
50.0, latency 500.0; system: the algorithm for all collectives, preferred-dataset-splits 1 or 4,
active-chunks-per-dimension 1, endpoint-delay 10, local-mem-bw 1600, scheduling LIFO, boost-mode 0;
no memory expansion.

Three of its rules are not ours, and are added here: a message has crossed one link before it begins
on the next, each with its latency; the addition of halves costs what the next, half as large
message would; and a ring's links each have their latency, of which we count one.
"""

import pytest

from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.graph import Graph, Group, Kind, Node, Pattern, Workload
from lightrig.harness.workloads.shared_links import SharedLinks
from lightrig.harness.workloads.simulator import Simulator

SIZE = 1 << 20
RATE = 50 * 2**30 / 1e9
LATENCY = 500
COUNTS = ((4, 1), (4, 4), (16, 1), (16, 4), (64, 1), (64, 4))
"""Ranks, and chunks."""

PRINTED = {
    ("ring", "ring", Pattern.ALL_REDUCE): (33_829, 43_000, 53_710, 99_640, 104_590, 296_896),
    ("ring", "halving-doubling", Pattern.ALL_REDUCE): (
        42_597,
        51_728,
        94_048,
        139_288,
        181_218,
        370_444,
    ),
    ("ring", "direct", Pattern.ALL_REDUCE): (31_811, 37_880, 89_990, 97_640, 324_530, 340_400),
    ("ring", "direct", Pattern.ALL_TO_ALL): (15_666, 18_720, 44_940, 48_780, 162_255, 170_208),
    ("switch", "ring", Pattern.ALL_REDUCE): (66_121, 84_280, 105_310, 196_240, 206_020, 587_200),
    ("switch", "halving-doubling", Pattern.ALL_REDUCE): (
        63_127,
        75_256,
        82_174,
        106_416,
        89_964,
        126_308,
    ),
    ("switch", "direct", Pattern.ALL_REDUCE): (41_575, 47_640, 41_190, 47_280, 41_100, 47_056),
    ("switch", "direct", Pattern.ALL_TO_ALL): (20_548, 23_600, 20_540, 23_600, 20_540, 23_536),
    ("full", "ring", Pattern.ALL_REDUCE): (33_829, 43_000, 53_710, 99_640, 104_590, 296_896),
    ("full", "halving-doubling", Pattern.ALL_REDUCE): (
        31_833,
        37_968,
        41_558,
        53_808,
        45_518,
        63_876,
    ),
    ("full", "direct", Pattern.ALL_REDUCE): (11_283, 14_360, 3_590, 6_680, 1_670, 4_752),
    ("full", "direct", Pattern.ALL_TO_ALL): (5_402, 6_960, 1_740, 3_300, 825, 2_384),
}
"""Nanoseconds, of each of `COUNTS`."""


def fabric(topology, members):
    """Return the capacities of links and the shortest route between two ranks."""
    if topology == "switch":
        ports = [(way, rank) for way in ("up", "down") for rank in range(members)]
        return dict.fromkeys(ports, RATE), lambda a, b: [("up", a), ("down", b)]
    if topology == "full":
        pairs = [(a, b) for a in range(members) for b in range(members)]
        return dict.fromkeys(pairs, RATE), lambda a, b: [(a, b)]

    def route(a, b):
        far = (b - a) % members
        way, hops = (1, far) if 2 * far <= members else (-1, members - far)
        return [((a + way * hop) % members, way) for hop in range(hops)]

    return dict.fromkeys([(a, way) for a in range(members) for way in (1, -1)], RATE), route


def computed(topology, algorithm, pattern, members, chunks):
    """Return the nanoseconds of a collective by our rules, chunk after chunk."""
    node = Node(Kind.COLLECTIVE, (), 0, pattern, SIZE // chunks, "all")
    ranks = tuple(range(members))
    groups = ({"all": Group("dp", ranks, members)},) * members
    workload = Workload((Graph.of([node]),) * members, ranks, groups)
    capacities, route = fabric(topology, members)
    crossed = 2 if topology == "switch" else 1
    timing = Timing(crossed * LATENCY, 12.5, 1600.0)
    network = SharedLinks(capacities, route, timing, {}, {"dp": algorithm})
    return chunks * Simulator(workload, network).run().step


def added(topology, algorithm, pattern, members, chunks):
    """Return the nanoseconds by which the rules differ."""
    reduces = pattern is Pattern.ALL_REDUCE
    chunk, phases = SIZE // chunks, 1 + reduces
    halves = [chunk >> step for step in range(1, members.bit_length())]
    found = 0.0
    if topology == "switch":  # the second link of each message, after the first one
        messages = {
            "ring": phases * (members - 1) * [chunk // members],
            "direct": phases * [chunk // members],
            "halving-doubling": phases * halves,
        }
        found += sum(messages[algorithm]) / RATE
    if topology == "ring" and algorithm == "halving-doubling":
        found += phases * LATENCY * sum((1 << step) - 1 for step in range(len(halves)))
    if topology == "ring" and algorithm == "direct":  # of what waits longest, the second link
        found += phases * LATENCY
    if algorithm == "halving-doubling":
        found -= Timing(memory=1600.0).reduction(halves[0])
    return chunks * found


@pytest.mark.parametrize("place", range(len(COUNTS)), ids=[f"{n}-{cut}" for n, cut in COUNTS])
@pytest.mark.parametrize("case", PRINTED, ids=lambda case: f"{case[0]}-{case[1]}-{case[2].name}")
def test_collectives_take_what_astra_sim_prints(case, place):
    members, chunks = COUNTS[place]
    found = computed(*case, members, chunks) + added(*case, members, chunks)
    topology, algorithm, _ = case
    rel = 0.01
    if algorithm == "direct" and chunks > 1:
        # Of small messages, 7 ns at an endpoint, and the latencies of all links of a ring.
        rel = 0.03 if topology == "ring" else 0.012
    assert found == pytest.approx(PRINTED[case][place], rel=rel)
