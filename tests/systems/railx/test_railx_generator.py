"""Generated testbeds: every fiber and plan is what the planning says, in any size."""

import json
import pathlib
from itertools import combinations

import pytest
import typer
from typer.testing import CliRunner

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.systems.commands import generate
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.planning.physical import RailFabric, RailxError
from lightrig.harness.systems.railx.planning.topologies import hyperx, torus
from lightrig.suites.claims.railx.further_topologies import hyperx_graph, same_graph
from lightrig.testbeds import load
from lightrig.testbeds.plans import Port

HOME = pathlib.Path("testbeds")
SHIPPED = {
    "railx": render(5, 5),
    "railx5": render(5, 1, namespaces=True),
    "railx-9x1-4": render(9, 1, phases=(3, 3)),
}


@pytest.fixture
def loaded(tmp_path):
    def loaded(text):
        path = tmp_path / "testbed.yaml"
        path.write_text(text)
        return load(path)

    return loaded


def nic_port(port):
    return Port(f"node{port.i}-{port.j}", f"{port.dimension}{port.rail}.p{0 if port.plus else 1}")


def links_of(settings):
    """The links that cross-connects close, by name."""
    ends = {switch: nic_port(port) for port, switch in settings.fabric.cabling()}
    found = set()
    for switch in settings.switches():
        for made in settings.cross_connects(*switch):
            a, b = (ends[(*switch, number)] for number in (made.plus, made.minus))
            found.add(frozenset((a, b)))
    return found


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_file_is_what_the_generator_writes(name):
    assert (HOME / f"{name}.yaml").read_text() == SHIPPED[name]


@pytest.mark.parametrize(
    ("columns", "rows", "mesh", "ports"), [(5, 5, 2, 2), (3, 7, 2, 1), (2, 3, 1, 1), (9, 1, 2, 2)]
)
def test_fibers_follow_the_cabling_of_the_plan(loaded, columns, rows, mesh, ports):
    testbed = loaded(render(columns, rows, mesh=mesh, ports=ports))
    radix = 2 * max(columns, rows)
    cabled = 0
    for port, switch in RailFabric(mesh, ports, columns, rows, radix).cabling():
        name = f"{switch.dimension}ocs{switch.line}-{switch.rail}"
        if name in testbed.switches:
            cabled += 1
            sent = testbed.cabling.fiber_from(nic_port(port)).sink
            received = testbed.cabling.fiber_from(Port(name, str(switch.port + radix))).sink
            assert (sent, received) == (Port(name, str(switch.port)), nic_port(port))
    assert cabled == len(testbed.nic_ports)


@pytest.mark.parametrize(
    ("name", "planned"), [("torus", torus), ("hyperx", hyperx)], ids=["torus", "hyperx"]
)
@pytest.mark.parametrize("nodes", [5, 3])
def test_plans_close_the_links_of_the_planned_topology(loaded, name, planned, nodes):
    testbed = loaded(render(nodes, nodes))
    settings = planned(RailFabric(2, 2, nodes, nodes, 2 * nodes))
    found = {frozenset((link.a, link.b)) for link in testbed.links(name)}
    assert found == links_of(settings)


@pytest.mark.parametrize("nodes", [4, 6])
def test_sizes_without_a_decomposition_get_one_link_a_pair(loaded, nodes):
    testbed = loaded(render(nodes, 1, mesh=nodes - 1, ports=1))
    pairs = sorted(tuple(sorted((link.a.owner, link.b.owner))) for link in testbed.links("hyperx"))
    every = list(combinations(sorted(testbed.servers), 2))
    assert pairs == sorted(every * (len(pairs) // len(every)))
    settings = (link.a.name.partition(".")[0] for link in testbed.links("hyperx"))
    # One matching among the rails of an even size: its switches leave ports dark.
    assert len(pairs) < nodes * len(set(settings))


def test_phases_lead_all_rails_to_each_of_two_groupings_in_turn(loaded):
    testbed = loaded(SHIPPED["railx-9x1-4"])
    groups = {}
    for name in ("context", "expert"):
        pairs = [
            tuple(sorted(int(end.owner[4]) for end in (link.a, link.b)))
            for link in testbed.links(name)
        ]
        groups[name] = set(pairs)
        assert len(pairs) == 9 * 4
    assert groups["context"] == {
        (3 * g + a, 3 * g + b) for g in range(3) for a, b in ((0, 1), (0, 2), (1, 2))
    }
    assert groups["expert"] == {
        (a + g, b + g) for g in range(3) for a, b in ((0, 3), (0, 6), (3, 6))
    }


@pytest.mark.parametrize("before", ["torus", "context"])
def test_a_change_that_leaves_circuits_out_stays_within_the_limit(loaded, before):
    """What is left out is disconnected first: a command of 20 ms more on each switch."""
    testbed = loaded(SHIPPED["railx-9x1-4"])
    bench = bind(testbed, "simulated", seed=1)
    try:
        fabric = Fabric(bench)
        fabric.apply(fabric.plans[before])
        latencies = [acknowledged_after(fabric, n) for _ in range(20) for n in ("hyperx", before)]
    finally:
        bench.close()
    leaving, coming_back = latencies[::2], latencies[1::2]
    # Each command takes 20 ms with a standard deviation of 0.5 ms, the slowest of four switches.
    assert min(leaving) > 38e6
    assert max(coming_back) < 23e6
    limit = testbed.limits["reconfiguration.acknowledged"]
    assert sorted(leaving)[int(limit.quantile * 20)] < limit.value


def acknowledged_after(fabric, plan):
    transition = fabric.prepare(fabric.plans[plan])
    sent = transition.begin()
    return max(at.latest for at in transition.acknowledgements().values()) - sent.earliest


def test_phases_leave_the_rails_of_columns_alone(loaded):
    testbed = loaded(render(9, 3, phases=(3, 3)))
    context, expert = (testbed.plans[name].circuits for name in ("context", "expert"))
    columns = [name for name in context if name.startswith("yocs")]
    assert len(columns) == 9 * 4
    assert all(context[name] == expert[name] for name in columns)


@pytest.mark.parametrize(("columns", "mesh"), [(64, 7), (65, 2)])
def test_a_large_grid_is_written_by_its_sizes(columns, mesh):
    text = render(columns, 64, mesh=mesh, ports=9 if mesh == 7 else 2)
    assert f"fabric: {{columns: {columns}, rows: 64, mesh: {mesh}, ports: " in text
    assert f"size: {2 * columns}x{2 * columns}" in text


def test_a_file_is_whole_up_to_2048_switches():
    assert "fibers:" in render(16, 16, mesh=7, ports=9)  # 2,016 switches
    assert "fabric:" in render(17, 16, mesh=7, ports=9)  # 2,079


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"columns": 1, "rows": 1}, "at least two"),
        ({"columns": 5, "rows": 5, "namespaces": True}, "400 ports"),
        ({"columns": 5, "rows": 1, "phases": (1, 3)}, "2 or more"),
        ({"columns": 5, "rows": 1, "phases": (3, 3)}, "do not fit"),
    ],
)
def test_impossible_sizes_are_refused_with_a_reason(sizes, message):
    with pytest.raises(RailxError, match=message):
        render(**sizes)


def test_the_command_writes_the_shipped_file():
    app = typer.Typer()
    app.add_typer(generate, name="generate")
    result = CliRunner().invoke(app, ["generate", "railx", "--rows", "1", "--namespaces", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["text"] == SHIPPED["railx5"]
    assert same_graph(hyperx(RailFabric(2, 2, 5, 5, 10)).node_graph(), hyperx_graph([5, 5]))
