"""Generated testbeds: every fiber is there, and light goes where the planning traces it."""

import pathlib

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.systems.acos.generator import DeploymentError, render, render_rings
from lightrig.harness.systems.acos.planning.optics import FabricError, selected
from lightrig.harness.systems.acos.planning.rack_plans import configure, supported
from lightrig.harness.systems.acos.planning.server_rings import server_rings
from lightrig.suites.claims.acos.claims import rack
from lightrig.testbeds import load
from lightrig.testbeds.light_paths import light_paths

HOME = pathlib.Path("testbeds")


@pytest.fixture(scope="module")
def sixteen():
    return load(HOME / "acos.yaml")


def test_both_files_are_as_generated():
    assert render() == HOME.joinpath("acos.yaml").read_text(encoding="utf-8")
    assert render_rings() == HOME.joinpath("acos_rings.yaml").read_text(encoding="utf-8")


def test_sixteen_gpus_have_the_switches_of_the_paper(sixteen):
    sizes = [
        (switch.ingress_count, switch.egress_count)
        for name, switch in sixteen.switches.items()
        if not name.startswith("part-")
    ]
    assert {size: sizes.count(size) for size in set(sizes)} == {(1, 2): 32, (2, 1): 32, (2, 2): 12}
    assert all(switch.address.startswith("serial://") for switch in sixteen.switches.values())


def test_light_of_every_plan_goes_where_the_planning_traces_it(sixteen):
    made = rack("16")
    seen = 0
    for job in supported(made.spec):
        plan = configure(made, job)
        for topology, choice in plan.choice.items():
            trace = made.fabric.trace(selected(made.fabric, plan.states, choice))
            named = f"tp{job.tp}-dp{job.dp}-on-{topology.lower()}"
            found = {
                (str(path.source), str(path.sink))
                for path in light_paths(sixteen.cabling, sixteen.plans[named])
                if path.source.owner.startswith("gpu")
            }
            assert found == {
                (
                    f"gpu{gpu}.nic0.p{lane}",
                    f"gpu{trace.gpus[gpu, lane]}.nic0.p{trace.lanes[gpu, lane]}",
                )
                for gpu in range(16)
                for lane in range(2)
            }
            seen += 1
    assert seen == len(sixteen.plans) == 4


@pytest.mark.long
def test_a_cluster_of_64_gpus_loads_with_all_its_links(tmp_path):
    path = tmp_path / "acos64.yaml"
    path.write_text(render(64), encoding="utf-8")
    testbed = load(path)
    assert len(testbed.switches) == 1504
    # All lanes of a ring are lit; a pipeline's ends have a free half each.
    assert len(testbed.links("tp8-pp2-dp4-ep8-on-tp")) == 64 * 8 // 2
    assert len(testbed.links("tp8-pp2-dp4-ep8-on-pp")) < 64 * 8 // 2


def test_other_clusters_are_refused_with_those_that_there_are():
    with pytest.raises(DeploymentError, match=r"found 100 GPUs.*16, 18, 64, 72, 128, 144"):
        render(100)
    with pytest.raises(DeploymentError, match="found 4 lanes with 144 GPUs, expected 2 or 8"):
        render(144, 4)


@pytest.mark.parametrize("failed", range(5))
def test_two_rings_without_a_common_link_pass_any_failed_server(failed):
    rings = server_rings({"inner": (0, 1, 2, 3, 4), "outer": (0, 2, 4, 1, 3)})
    links = {}
    for name in rings.orders:
        whole = rings.fabric.trace(rings.states(name)).gpus
        links[name] = {frozenset((gpu, int(far))) for gpu in range(5) for far in whole[gpu]}
        assert len(links[name]) == 5
        past = rings.fabric.trace(rings.states(name, failed)).gpus
        assert (past[failed] < 0).all()
        order = [gpu for gpu in rings.orders[name] if gpu != failed]
        following = {gpu: order[(place + 1) % 4] for place, gpu in enumerate(order)}
        assert {gpu: int(past[gpu, 0]) for gpu in order} == following
    assert not links["inner"] & links["outer"]


def test_rings_of_different_servers_are_refused():
    with pytest.raises(FabricError, match="each of 0 to 3 once"):
        server_rings({"inner": (0, 1, 2, 3), "outer": (0, 1, 2, 4)})


def test_switches_turned_round_report_the_input_that_they_pass(sixteen):
    bench = bind(sixteen, "simulated", 1)
    try:
        fabric = Fabric(bench)
        for plan in sixteen.plans.values():
            fabric.apply(plan)
            present = {name: bench.switches[name].circuits() for name in plan.circuits}
            assert present == plan.circuits
    finally:
        bench.close()
