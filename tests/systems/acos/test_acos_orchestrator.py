"""ACOS's rings as the orchestrator joins them: by the file's own plans, past what fails."""

import re
from pathlib import Path

import pytest

from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import SimulatedSwitches
from lightrig.harness.systems.acos.generator import render, render_rings
from lightrig.harness.systems.acos.runtime.layout import ServerRingLayout
from lightrig.testbeds import Circuit, Testbed, load
from tests.campaigns.sequences import Rings
from tests.campaigns.switchroom import Switchroom

RINGS = {"inner": "01234", "outer": "02413"}
AUTO = {"do": "submit", "job": "a", "shape": {}}


@pytest.fixture
def testbed(tmp_path: Path) -> Testbed:
    (tmp_path / "rings.yaml").write_text(render_rings())
    return load(tmp_path / "rings.yaml")


@pytest.fixture
def room(testbed: Testbed) -> Switchroom:
    return Switchroom(testbed)


@pytest.fixture
def service(testbed: Testbed, room: Switchroom, tmp_path: Path) -> Orchestrator:
    made = Orchestrator(testbed, ServerRingLayout(testbed), room, tmp_path / "s.json")
    made.start()
    return made


def ring_of(service: Orchestrator, job: str = "a") -> tuple[str, str] | None:
    (group,) = service.status()["jobs"][job]["groups"]
    if group is None:
        return None
    return group["details"]["ring"], "".join(node.removeprefix("gpu") for node in group["nodes"])


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("failed", [None, *range(5)])
def test_circuits_are_those_of_the_plan_of_the_file(testbed, ring: str, failed) -> None:
    nodes = tuple(f"gpu{number}" for number in RINGS[ring] if number != str(failed))
    job = Job("a", {"ring": ring}, 0, False, False, (Group(nodes, {"ring": ring}),))
    found = ServerRingLayout(testbed).circuits(job)
    plan = testbed.plans[ring if failed is None else f"{ring}-without-gpu{failed}"]
    assert found == {name: plan.circuits[name] for name in found}
    assert len(found) == len(nodes) * 8


def test_a_ring_leads_past_a_server_that_fails_and_takes_it_in_again(service, room) -> None:
    service.request(AUTO)
    assert ring_of(service) == ("inner", "01234")
    room.silent = {f"{way}-gpu1-lane{lane}" for way in ("tx", "rx") for lane in (0, 1)}
    room.commands.clear()
    for _ in range(2):
        service.step()
    assert ring_of(service) == ("inner", "0234")
    changed = {switch for switch, _ in room.commands}
    assert changed == {
        "inner-skip-out-0-0", "inner-skip-in-2-0", "inner-skip-out-2-1", "inner-skip-in-0-1",
    }  # fmt: skip
    room.silent = set()
    for _ in range(3):
        service.step()
    assert ring_of(service) == ("inner", "01234")


def test_a_dead_switch_costs_its_ring_and_not_the_service(service, room) -> None:
    service.request(AUTO)
    room.silent = {"inner-skip-in-3-1"}
    for _ in range(2):
        service.step()
    assert ring_of(service) == ("outer", "02413")
    assert service.status()["faulty"] == {}
    service.request({"do": "withdraw", "job": "a"})
    service.request({"do": "submit", "job": "b", "shape": {"ring": "inner"}})
    assert ring_of(service, "b") == ("inner", "0124")


def test_simulated_switches_take_light_from_other_switches(testbed, tmp_path: Path) -> None:
    switches = SimulatedSwitches(testbed)
    service = Orchestrator(testbed, ServerRingLayout(testbed), switches, tmp_path / "t.json")
    service.start()
    assert service.request(AUTO)["jobs"]["a"]["ready"]
    assert (service.status()["settled"], service.status()["silent"]) == (True, {})


def test_two_neighbours_that_fail_leave_the_ring_on_which_they_are_none(service) -> None:
    service.request(AUTO)
    service.request({"do": "failed", "nodes": ["gpu0", "gpu1"]})
    assert ring_of(service) == ("outer", "243")
    service.request({"do": "failed", "nodes": ["gpu2"]})
    assert ring_of(service) is None


def test_a_second_job_waits_for_the_servers(service) -> None:
    service.request(AUTO)
    service.request({"do": "submit", "job": "b", "shape": {"ring": "outer"}})
    assert ring_of(service, "b") is None
    service.request({"do": "withdraw", "job": "a"})
    assert ring_of(service, "b") == ("outer", "02413")


def test_a_ring_that_there_is_not_is_refused(service) -> None:
    with pytest.raises(OrchestrationError, match="found ring left, expected auto, inner, outer"):
        service.request({"do": "submit", "job": "a", "shape": {"ring": "left"}})


def test_a_testbed_without_rings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "acos.yaml").write_text(render())
    with pytest.raises(OrchestrationError, match="has no rings through all servers"):
        ServerRingLayout(load(tmp_path / "acos.yaml"))


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("lane to the other ring", "gpu2 is joined to"),
        ("server left out", r"\['gpu0', 'gpu2', 'gpu3', 'gpu4'\] are in a ring of"),
        ("failed server on the ring", r"with {'gpu1'} failed"),
        ("two rings at once", "2 jobs have a ring at once"),
        ("job without its ring", "waits"),
    ],
)
def test_the_checker_of_random_sequences_names_a_wrong_ring(
    service, room, fault: str, problem: str
) -> None:
    service.request(AUTO)
    status = service.status()
    assert Rings().problems(room, status) == []
    groups = status["jobs"]["a"]["groups"]
    match fault:
        case "lane to the other ring":
            room.circuits["tx-gpu2-lane0"] = frozenset({Circuit(1, 3)})
        case "server left out":
            groups[0]["nodes"] = [node for node in groups[0]["nodes"] if node != "gpu1"]
        case "failed server on the ring":
            room.silent = {"rx-gpu1-lane1"}
        case "two rings at once":
            status["jobs"]["b"] = status["jobs"]["a"]
        case _:
            groups[0] = None
    assert re.search(problem, "\n".join(Rings().problems(room, status)))
