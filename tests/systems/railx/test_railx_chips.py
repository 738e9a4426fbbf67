"""Chips as namespaces: their testbed, ways of packets, and all-reduces between processes."""

import itertools
import json
import queue
import threading
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lightrig.harness.systems.railx.chip_testbed import MESH_RATE, RAIL_RATE, nics_of
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.planning.chip_lanes import (
    LANES,
    MESH,
    X,
    Y,
    chip_lanes,
    chip_of,
    mesh_cycle,
    rings_of,
)
from lightrig.harness.systems.railx.planning.physical import RailFabric, RailxError
from lightrig.harness.systems.railx.runtime.chips import mesh_links
from lightrig.instruments.jobs.programs.hierarchical_program import HierarchicalWorker
from lightrig.testbeds import load

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def testbed():
    return load(ROOT / "testbeds" / "railx36.yaml")


def test_the_testbed_is_the_generated_one():
    text = (ROOT / "testbeds" / "railx36.yaml").read_text()
    assert text == render(3, 3, mesh=2, ports=1, chips=True)


@pytest.mark.parametrize(("mesh", "ports"), [(2, 1), (2, 2), (3, 1), (4, 2)])
def test_a_node_has_the_links_and_ports_of_the_paper(mesh, ports):
    """2 m (m - 1) mesh links and 4 m n optical ports a node (section 3.2)."""
    fabric = RailFabric(mesh, ports, 2, 2, 4)
    rates = [
        rate
        for u, v in itertools.product(range(mesh), repeat=2)
        for rate in nics_of(fabric, u, v).values()
    ]
    assert rates.count(MESH_RATE) == 2 * 2 * mesh * (mesh - 1)
    assert rates.count(RAIL_RATE) == 4 * mesh * ports


@pytest.mark.parametrize("name", ["hyperx", "torus"])
def test_each_pair_of_a_ring_is_one_rail_and_one_mesh_link_away(testbed, name):
    plan = testbed.plans[name]
    lanes = chip_lanes([*testbed.links(plan), *mesh_links(testbed)])
    rings = rings_of(tuple(testbed.servers))

    def ports(lane: int, source: str, sink: str) -> list[str]:
        found = []
        while source != sink:
            hop = lanes[lane][source, sink]
            assert hop.port.owner == source
            found.append(hop.port.name)
            source = hop.towards.owner
        return found

    for chip, of in rings.items():
        assert [ring.lane for ring in of.values()] == [MESH, X, Y, X, Y]
        for ring in of.values():
            after = ring.chips[(ring.chips.index(chip) + 1) % len(ring.chips)]
            steps = ports(ring.lane, chip, after)
            if ring.lane == MESH:
                assert len(steps) == 1
            else:
                rails = [step for step in steps if step[0] == LANES[ring.lane]]
                assert (len(rails), len(steps)) == (1, 2)


def test_links_of_a_plan_make_the_chip_graph(testbed):
    import networkx as nx

    graph = nx.Graph(
        (link.a.owner, link.b.owner)
        for link in [*testbed.links(testbed.plans["hyperx"]), *mesh_links(testbed)]
    )
    assert len(graph) == 36
    assert {d for _, d in graph.degree} == {4}  # two of the mesh, an X- and a Y-rail
    assert nx.is_connected(graph)


@pytest.mark.parametrize("side", [2, 4, 6])
def test_a_mesh_with_an_even_side_has_a_ring_of_neighbours(side):
    cycle = mesh_cycle(side)
    assert sorted(cycle) == [*itertools.product(range(side), repeat=2)]
    for (u, v), (x, y) in itertools.pairwise([*cycle, cycle[0]]):
        assert abs(u - x) + abs(v - y) == 1


def test_odd_meshes_and_other_servers_are_refused():
    with pytest.raises(RailxError, match="3 x 3 chips has no ring"):
        mesh_cycle(3)
    with pytest.raises(RailxError, match="found the server node0-0"):
        chip_of("node0-0")
    for sizes, message in [((3, 3, 1, 1), "mesh of 1 chip"), ((3, 1, 2, 1), "two rows")]:
        columns, rows, mesh, ports = sizes
        with pytest.raises(RailxError, match=message):
            render(columns, rows, mesh=mesh, ports=ports, chips=True)
    with pytest.raises(RailxError, match="ports, expected at most 250"):
        render(5, 5, chips=True)


class Rank:
    """A worker that answers requests, as the harness sends them."""

    def __init__(self) -> None:
        self.requests: queue.Queue[bytes | None] = queue.Queue()
        self.lines: queue.Queue[str] = queue.Queue()
        self.worker = HierarchicalWorker(self)
        served = iter(self.requests.get, None)
        threading.Thread(target=self.worker.serve, args=(served,), daemon=True).start()

    def write(self, line: str) -> None:
        self.lines.put(line)

    def flush(self) -> None:
        pass

    def submit(self, verb: str, **body) -> None:
        self.requests.put(json.dumps({"id": 1, "do": verb, **body}).encode())

    def answer(self) -> dict:
        text = ""
        while not text.strip():
            text = self.lines.get(timeout=60)
        return json.loads(text)["ok"]


@pytest.mark.parametrize("values", [72, 1000, 5])
def test_every_rank_gets_all_sums(values):
    """Two nodes by two of two by two ranks over loopback: sums by hand, remainders too."""
    names = [f"chip{i}-{j}-{u}-{v}" for i, j, u, v in itertools.product(range(2), repeat=4)]
    rings, ranks, ports = rings_of(names), {name: Rank() for name in names}, {}
    for name, rank in ranks.items():
        rank.submit("listen", addresses=["127.0.0.1"] * 5)
        ports[name] = rank.answer()["ports"]
    for number, (name, rank) in enumerate(ranks.items()):
        joined = []
        for which, ring in enumerate(rings[name].values()):
            place = ring.chips.index(name)
            after = ring.chips[(place + 1) % len(ring.chips)]
            following = ["127.0.0.1", ports[after][which]]
            joined.append({"place": place, "size": len(ring.chips), "next": following})
        rank.submit("join", rank=number, ranks=len(names), rings=joined)
    for rank in ranks.values():
        assert rank.answer() == {}
    blocks = [array("I", [1000 * n + at for at in range(values)]).tobytes() for n in range(16)]
    with ThreadPoolExecutor(16) as pool:
        found = [
            *pool.map(
                lambda rank, block: rank.worker.communicate("all_reduce", block),
                ranks.values(),
                blocks,
            )
        ]
    expected = [1000 * sum(range(16)) + 16 * at for at in range(values)]
    assert [array("I", each).tolist() for each in found] == [expected] * 16
    for rank in ranks.values():
        rank.submit("run", collective="all_reduce", sizes=[4 * values], warm_up=1, iterations=2)
    assert [rank.answer()["sizes"][0]["wrong"] for rank in ranks.values()] == [0] * 16
    for rank in ranks.values():
        rank.submit("leave")
        rank.answer()
        rank.requests.put(None)
