"""Regions of jobs that a service moves, each by a controller: through the API, by the light."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lightrig.harness.jobs.training import RESULTS, TrainingRequest, TrainingRequestError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.served_job import ServedJob, ServiceError
from lightrig.harness.systems.mixnet.generator import render
from lightrig.harness.systems.mixnet.runtime.region_controllers import RegionControllers
from lightrig.harness.systems.mixnet.runtime.region_layout import RegionLayout
from lightrig.harness.systems.mixnet.runtime.served_regions import ServedRegions, shape_of
from lightrig.testbeds import Testbed, load
from tests.campaigns.switchroom import Switchroom, joined

PAIRS = [[0, 9, 1, 0], [0, 0, 0, 2], [0, 0, 0, 8], [0, 0, 0, 0]]
"""Demand of four servers: most between 0 and 1, and between 2 and 3."""
CROSS = [[0, 1, 0, 9], [0, 0, 7, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
"""The same two links each, between 0 and 3 and between 1 and 2, after one between 0 and 1."""


class Service:
    """The service of two regions of four servers with two NICs on circuits."""

    def __init__(self, root: Path) -> None:
        (root / "regions.yaml").write_text(render(4, 2, 2, 1, 2))
        self.testbed: Testbed = load(root / "regions.yaml")
        self.room, self._root = Switchroom(self.testbed, "ingress"), root
        self.socket = root / "api.socket"
        self._stack = contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        from lightrig.harness.orchestration import http_api

        layout = RegionLayout(self.testbed)
        self.running = Orchestrator(self.testbed, layout, self.room, self._root / "s.json")
        self.running.start()
        ranks = RegionControllers(self.running, self._root / "unused.json")
        self._stack.callback(ranks.close)
        ranks.start()
        listening = http_api.unix_socket(self.socket)
        server = http_api.HttpServer(self.running, listening, None, ranks=ranks)
        self._stack.callback(server.close)

    def stop(self) -> None:
        self._stack.close()

    def job(self, name: str, servers: int, regions: int) -> ServedJob:
        shape = {"servers": servers, "regions": regions}
        return ServedJob(self.socket, name, shape, away_s=30.0)

    def light(self) -> dict[str, set[str]]:
        return dict(joined(self.testbed, self.room.circuits))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def job(service: Service) -> Iterator[ServedJob]:
    made = service.job("moe", 4, 2)
    yield made
    made.withdraw()


def demand(job: ServedJob, region: int, turn: int, rows: Any, do: str = "demand") -> Any:
    return job.send({"do": do, "region": region, "turn": turn, "demand": rows})


def servers(first: int) -> tuple[str, ...]:
    return tuple(f"server{number}" for number in range(first, first + 4))


def test_a_controller_sets_its_region_and_leaves_the_others(
    service: Service, job: ServedJob
) -> None:
    """Each pair with a demand gets its first link before any gets a second."""
    assert job.groups == (servers(0), servers(4))
    planned = demand(job, 1, 1, PAIRS, "plan")
    assert planned["answer"] == "planned"
    assert not any(service.room.circuits.values())
    found = demand(job, 1, 1, PAIRS)
    assert (found["answer"], found["links"]) == ("set", planned["links"])
    # 4-5: 9, 6-7: 8, 5-7: 2 and 4-6: 1; all ports are used then.
    ring = {
        "server4": {"server5", "server6"}, "server5": {"server4", "server7"},
        "server6": {"server7", "server4"}, "server7": {"server6", "server5"},
    }  # fmt: skip
    assert service.light() == ring
    assert not service.room.circuits["ocs0"]
    service.room.commands.clear()
    demand(job, 0, 1, CROSS)
    assert {switch for switch, _ in service.room.commands} == {"ocs0"}
    # 0-3: 9, 1-2: 7 and 0-1: 1, after which 0 and 1 have no port; 2 and 3 have no demand.
    assert service.light() == ring | {
        "server0": {"server3", "server1"}, "server1": {"server2", "server0"},
        "server2": {"server1"}, "server3": {"server0"},
    }  # fmt: skip


def test_a_demand_that_comes_again_moves_nothing(service: Service, job: ServedJob) -> None:
    first = demand(job, 0, 1, PAIRS)
    service.room.commands.clear()
    assert demand(job, 0, 1, PAIRS) == first
    assert demand(job, 0, 2, PAIRS)["links"] == first["links"]
    assert not service.room.commands
    with pytest.raises(ServiceError, match="region 0 of job moe was at turn 2 before turn 1 came"):
        demand(job, 0, 1, PAIRS)


def test_a_service_that_is_started_again_keeps_links_that_fit(
    service: Service, job: ServedJob
) -> None:
    first = demand(job, 0, 1, PAIRS)
    service.stop()
    service.start()
    service.room.commands.clear()
    assert demand(job, 0, 2, PAIRS)["links"] == first["links"]
    assert not service.room.commands


@pytest.mark.parametrize(
    ("region", "rows", "why"),
    [
        (2, PAIRS, "job moe has 2 regions, none 2"),
        (0, [[0, 1], [0, 0]], "found a demand of 2 rows, expected 4 x 4"),
        (0, np.ones((4, 4)).tolist(), "not above the diagonal"),
        (0, [[0, -1, 0, 0], *[[0] * 4] * 3], "demand.0.1"),
    ],
)
def test_other_demands_are_refused_and_move_nothing(
    service: Service, job: ServedJob, region: int, rows: Any, why: str
) -> None:
    with pytest.raises(ServiceError, match=why):
        demand(job, region, 1, rows)
    assert not service.room.commands


def test_a_switch_that_takes_no_order_fails_its_region_alone(
    service: Service, job: ServedJob
) -> None:
    service.room.refusing.add("ocs0")
    with pytest.raises(ServiceError, match="ocs0"):
        demand(job, 0, 1, PAIRS)
    assert demand(job, 1, 1, PAIRS)["answer"] == "set"


def test_jobs_share_a_region_and_have_circuits_of_their_own(service: Service) -> None:
    """Two servers each; the second job is placed beside the first, not on the empty region."""
    first, second = service.job("first", 2, 1), service.job("second", 2, 1)
    assert (first.groups, second.groups) == (
        (("server0", "server1"),), (("server2", "server3"),),
    )  # fmt: skip
    for job in (first, second):
        demand(job, 0, 1, [[0, 1], [0, 0]])
    assert service.light()["server0"] == {"server1"}
    assert service.light()["server3"] == {"server2"}
    third = service.job("third", 3, 1)
    assert third.groups == (("server4", "server5", "server6"),)
    with pytest.raises(ServiceError, match="job fourth has no place"):
        service.job("fourth", 2, 1)
    with pytest.raises(ServiceError, match="found 1 regions of 5 servers, expected what fits"):
        service.job("fifth", 5, 1)
    for job in (first, second, third):
        job.withdraw()
    assert not any(service.room.circuits.values())


def test_links_that_a_person_states_join_two_ports_of_one_switch(service: Service) -> None:
    def submit(links: Any) -> Mapping[str, Any]:
        shape = {"servers": 2, "regions": 1, "links": [links]}
        return service.running.request({"do": "submit", "job": "one", "shape": shape})

    for links, why in (
        ([["server0.nic0", "server4.nic0"]], "not two NIC ports on one circuit switch"),
        ([["server0.nic0", "server1.nic2"]], "not two NIC ports on one circuit switch"),
    ):
        with pytest.raises(ValueError, match=why):
            submit(links)
    submit([["server0.nic0", "server1.nic1"]])
    assert service.light() == {"server0": {"server1"}, "server1": {"server0"}}


def test_training_asks_the_controller_of_its_servers(service: Service, job: ServedJob) -> None:
    """Region 0 of the script is on the job's second group."""
    bench: Any = SimpleNamespace(
        saved_states=None, external={}, testbed=service.testbed, switches={}
    )
    with contextlib.ExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        patched.setattr(ServedRegions.__bases__[0], "__init__", lambda self, bench: None)
        fabric = ServedRegions(bench, job)
        planned = fabric.planned(0, servers(4), np.array(PAIRS, float))
        assert not service.light()
        assert fabric.set(0, servers(4), np.array(PAIRS, float)) == planned
        assert {port.owner for link in planned for port in (link.a, link.b)} == {*servers(4)}
        assert service.light().keys() == {*servers(4)}
        with pytest.raises(ServiceError, match="server1, server2 exchange rows, and the service"):
            fabric.planned(0, ("server1", "server2"), np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("parallel", "expected"),
    [
        ({"ep": 8}, {"servers": 4, "regions": 1}),
        ({"ep": 4, "tp": 2, "pp": 2}, {"servers": 4, "regions": 2}),
        ({"ep": 4, "dp": 8}, {"servers": 2, "regions": 2}),
        ({"dp": 8}, "states --parallel ep"),
        ({"ep": 2}, "regions of 2 of 2 ranks, expected"),
        ({"ep": 3, "dp": 8}, "regions of 3 of 8 ranks, expected"),
    ],
)
def test_degrees_state_the_regions_of_a_job(
    service: Service, parallel: dict[str, int], expected: Any
) -> None:
    request = TrainingRequest("", "moe.py", (), parallel, "provisioning", RESULTS)
    if isinstance(expected, dict):
        assert shape_of(service.testbed, request) == expected
    else:
        with pytest.raises(TrainingRequestError, match=expected):
            shape_of(service.testbed, request)
