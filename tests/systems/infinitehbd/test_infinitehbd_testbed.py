"""Testbeds of any size: what is generated loads, and its light goes where the wiring says."""

import json
import pathlib

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.systems.commands import generate
from lightrig.harness.systems.infinitehbd.generator import render, render_fixed
from lightrig.harness.systems.infinitehbd.planning.rings import Path, bundles, circuits
from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError, k_hop
from lightrig.testbeds import load
from lightrig.testbeds.plans import Circuit, Port

HOME = pathlib.Path("testbeds")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generated")

    def loaded(text):
        path = folder / "testbed.yaml"
        path.write_text(text)
        return load(path)

    return loaded


@settings(max_examples=6, deadline=None)
@given(st.integers(7, 20), st.integers(2, 3), st.booleans())
def test_every_link_of_the_wiring_has_light_both_ways(loaded, nodes, hops, line):
    testbed = loaded(render(nodes, hops=hops, line=line))
    wiring = k_hop(nodes, hops, closed=not line)
    lit = set()
    for node in range(nodes):
        for bundle, pair in enumerate(bundles(wiring)):
            for path, hop in enumerate(pair):
                far = wiring.neighbour(node, hop)
                if far is None:
                    continue
                sender, receiver = testbed.cabling.light_path(
                    f"trx{bundle}-node{node}", Circuit(1, path + 2)
                )
                assert sender == Port(f"node{node}", f"trx{bundle}.p0")
                assert receiver.owner == f"node{far}"
                lit.add((node, far))
    links = {tuple(row) for row in wiring.links().tolist()}
    assert lit == links | {(b, a) for a, b in links}


def test_the_loopback_leads_into_the_module_itself(loaded):
    cabling = loaded(render(8)).cabling
    assert cabling.light_path("trx1-node3", Circuit(1, 4)) == (
        Port("node3", "trx1.p0"),
        Port("node3", "trx1.p2"),
    )


def test_its_plans_make_rings_and_pass_a_failed_node(loaded):
    testbed = loaded(render(8, group=3))
    assert [str(link) for link in testbed.links("whole")] == [
        "node0.trx0.p0 <-> node1.trx1.p0",
        "node1.trx0.p0 <-> node2.trx1.p0",
        "node3.trx0.p0 <-> node4.trx1.p0",
        "node4.trx0.p0 <-> node5.trx1.p0",
    ]
    bypass = testbed.plans["bypass"].circuits
    assert bypass["trx0-node3"] == {Circuit(1, 3)}
    assert not any(switch.endswith("node4") for switch in bypass)
    assert testbed.simulation.switches["trx1-node7"].settle.mean == 70_000


def test_simulated_modules_bypass_a_failed_node_and_no_other_moves(loaded):
    """From the failure to the paths that modules report, over their own wires."""
    testbed = loaded(render(7, group=3))
    bench = bind(testbed, "simulated", 1)
    try:
        fabric = Fabric(bench)
        fabric.apply(testbed.plans["whole"])
        before = {name: switch.circuits() for name, switch in bench.switches.items()}
        fabric.apply(testbed.plans["bypass"])
        after = {name: switch.circuits() for name, switch in bench.switches.items()}
    finally:
        bench.close()
    moved = {name for name in after if after[name] != before[name]}
    # Nodes 3 and 5 join over their farther links; the spare node 6 ends the ring in loopback.
    right, left = "trx0", "trx1"
    assert {name: after[name] for name in moved} == {
        f"{right}-node3": circuits(Path.EXTERNAL_2, 1),
        f"{left}-node5": circuits(Path.EXTERNAL_2, 1),
        f"{right}-node5": circuits(Path.EXTERNAL_1, 1),
        f"{right}-node6": circuits(Path.LOOPBACK, 1),
    }
    assert after[f"{left}-node6"] == circuits(Path.EXTERNAL_1, 1)  # as it starts


def test_the_rounds_of_a_binary_exchange_are_plans_of_namespaces(loaded):
    """Appendix G's example by hand: of eight, node 0 meets 4, then 2, then 1."""
    text = render(8, hops=3, line=True, namespaces=True, binary=True)
    assert text == HOME.joinpath("infinitehbd-binary8.yaml").read_text()
    testbed = loaded(text)
    met = {
        name: {(int(link.a.owner[4:]), int(link.b.owner[4:])) for link in testbed.links(name)}
        for name in testbed.plans
    }
    assert met == {
        "over4": {(0, 4), (1, 5), (2, 6), (3, 7)},
        "over2": {(0, 2), (1, 3), (4, 6), (5, 7)},
        "over1": {(0, 1), (2, 3), (4, 5), (6, 7)},
    }
    with pytest.raises(InfiniteHbdError, match="found 9 nodes, expected 8: 3 links to a side make"):
        render(9, hops=3, line=True, namespaces=True, binary=True)


def test_namespaces_are_one_ring_and_the_file_is_as_generated(loaded):
    text = render(5, namespaces=True)
    assert text == HOME.joinpath("infinitehbd5.yaml").read_text()
    testbed = loaded(text)
    assert len(testbed.links("whole")) == 5
    assert [str(link) for link in testbed.links("bypass")] == [
        "node0.trx0.p0 <-> node1.trx1.p0",
        "node0.trx1.p0 <-> node4.trx0.p0",
        "node1.trx0.p1 <-> node3.trx1.p1",
        "node3.trx0.p0 <-> node4.trx1.p0",
    ]


def test_the_fixed_ring_of_32_gpus(loaded):
    testbed = loaded(render_fixed(8))
    assert sum(server.gpus.count for server in testbed.servers.values()) == 32
    assert len(testbed.fibers) == 16
    assert not testbed.switches


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (lambda: render(5000), "found 5000 nodes, expected at most 4096"),
        (lambda: render(20, hops=5), "found 5 hops, expected 2 to the 4 GPUs"),
        (lambda: render(4), "found 4 nodes, expected at least 5"),
        (lambda: render(8, group=9), "found 8 nodes, expected at least the 9"),
        (lambda: render(41, namespaces=True), "found 41 nodes, expected at most 40 on one"),
        (lambda: render(8, namespaces=True, line=True), "found a line, expected a ring"),
        (lambda: render_fixed(2), "found 2 nodes, expected 3 to"),
    ],
)
def test_sizes_that_cannot_be_are_refused(made, what):
    with pytest.raises(InfiniteHbdError, match=what):
        made()


def test_the_command_writes_a_file_that_loads(tmp_path):
    app = typer.Typer()
    app.add_typer(generate, name="generate")
    command = ["generate", "infinitehbd"]
    path = tmp_path / "mine.yaml"
    run = CliRunner().invoke
    assert run(app, [*command, "--nodes", "9", "--hops", "3", "--output", str(path)]).exit_code == 0
    assert len(load(path).servers) == 9
    assert run(app, [*command, "--nodes", "8"]).stdout == render(8)
    told = json.loads(run(app, [*command, "--json"]).stdout)
    assert told == {"file": None, "text": render(8)}
    assert run(app, [*command, "--fixed"]).stdout == render_fixed(8)
    refused = run(app, [*command, "--nodes", "4"])
    assert refused.exit_code == 2
    assert "expected at least 5" in refused.stderr
    assert run(app, [*command, "--output", str(tmp_path / "no" / "x.yaml")]).exit_code == 2
