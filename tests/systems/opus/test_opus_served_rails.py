"""Rails of a job that a service moves: through the API, with switches in memory."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.served_job import ServiceError, part_of
from lightrig.harness.systems.opus.generator import render
from lightrig.harness.systems.opus.planning.messages import Rewire
from lightrig.harness.systems.opus.planning.operations import RailJob
from lightrig.harness.systems.opus.planning.topology import GIANT_RING, TopologyId
from lightrig.harness.systems.opus.runtime.rail_layout import RailLayout
from lightrig.harness.systems.opus.runtime.served_rails import RailsOfService, ServedRails
from lightrig.instruments.clock import SystemClock
from lightrig.testbeds import Testbed, load
from tests.campaigns.switchroom import Switchroom, joined

PAIRS = {"stages": 2, "widths": [2]}
JOB = RailJob.grid("job", 2, [2], 2)


class Service:
    """The service of eight servers on two rails, which can be stopped and started again."""

    def __init__(self, root: Path) -> None:
        (root / "rails.yaml").write_text(render(2, 4, 2))
        self.testbed: Testbed = load(root / "rails.yaml")
        self.room, self._root = Switchroom(self.testbed, "ingress"), root
        self.socket = root / "api.socket"
        self._stack = contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        from lightrig.harness.orchestration import http_api

        layout = RailLayout(self.testbed)
        self.running = Orchestrator(self.testbed, layout, self.room, self._root / "s.json")
        self.running.start()
        listening = http_api.unix_socket(self.socket)
        self._stack.callback(http_api.HttpServer(self.running, listening, None).close)

    def stop(self) -> None:
        self._stack.close()

    def rails(self, job: RailsOfService) -> ServedRails:
        bench = SimpleNamespace(clock=SystemClock())
        fabric: Any = SimpleNamespace(testbed=part_of(self.testbed, job.nodes), bench=bench)
        return ServedRails(fabric, JOB, job)

    def light(self) -> dict[str, set[str]]:
        return dict(joined(self.testbed, self.room.circuits))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def job(service: Service) -> Iterator[RailsOfService]:
    """The second of two jobs."""
    with contextlib.ExitStack() as stack:
        for name in ("first", "second"):
            made = RailsOfService(service.socket, name, PAIRS, away_s=30.0)
            stack.callback(made.withdraw)
        yield made


def test_rails_are_changed_a_stage_at_a_time(service: Service, job: RailsOfService) -> None:
    assert job.nodes == ("server4", "server5", "server6", "server7")
    rails = service.rails(job)
    assert rails.make(GIANT_RING)["ocs"] == rails.circuits()["ocs"]
    made = rails.make(TopologyId("00"))["ocs"]
    assert made
    assert made <= rails.circuits()["ocs"]
    # Stage 0 of rail 0 goes to data: its ranks, on servers 4 and 5, are joined there.
    pipeline, data = (rails.wirings[0].circuits(TopologyId(t)) for t in ("00", "10"))
    change = Rewire(
        0, "job", 1, 1, pipeline - data, data - pipeline, TopologyId("10"), frozenset({0})
    )
    service.room.commands.clear()
    rails.apply([change])
    assert service.light()["server4"] == {"server5", "server6"}  # rail 1 has its pipeline
    assert service.light()["server6"] == {"server4"}
    assert {circuit for _, circuit in service.room.commands} == pipeline ^ data
    assert rails.settled() == rails.circuits()
    assert service.running.status()["jobs"]["second"]["shape"]["topologies"] == ["10", "00"]


def test_a_change_waits_for_a_service_that_is_started_again(
    service: Service, job: RailsOfService
) -> None:
    rails = service.rails(job)
    service.stop()
    changing = threading.Thread(target=rails.make, args=(TopologyId("11"),))
    changing.start()
    service.start()
    changing.join()
    assert service.light()["server4"] == {"server5"}


def test_a_service_that_stays_away_is_named(service: Service) -> None:
    job = RailsOfService(service.socket, "job", PAIRS, away_s=0.5)
    service.stop()
    with pytest.raises(ServiceError, match="does `lightrig orchestrate` run there"):
        job.set([GIANT_RING, GIANT_RING])
    job.withdraw()


def test_a_switch_that_takes_no_order_fails_the_change(
    service: Service, job: RailsOfService
) -> None:
    rails = service.rails(job)
    rails.make(TopologyId("00"))
    service.room.refusing.add("ocs")
    with pytest.raises(ServiceError, match="the circuits of job second are not set"):
        rails.make(TopologyId("11"))
    service.room.refusing.clear()
    assert rails.make(TopologyId("11"))  # tried again


def test_a_job_that_was_given_other_servers_is_told_so(
    service: Service, job: RailsOfService
) -> None:
    service.running.request({"do": "withdraw", "job": "first"})
    service.running.request({"do": "failed", "nodes": ["server5"]})
    with pytest.raises(ServiceError, match="server0, server6, server7 now, since one failed"):
        job.set([GIANT_RING, GIANT_RING])


def test_a_job_without_a_place_is_not_kept(service: Service, job: RailsOfService) -> None:
    with pytest.raises(ServiceError, match="job third has no place: 0 of the 8 nodes"):
        RailsOfService(service.socket, "third", PAIRS)
    assert service.running.status()["jobs"].keys() == {"first", "second"}


def test_a_job_is_submitted_again_and_again_and_ends_with_its_client(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    submits, request = threading.Semaphore(0), service.running.request

    def noted(wish: Mapping[str, Any]) -> Mapping[str, Any]:
        submits.release()
        return request(wish)

    monkeypatch.setattr(service.running, "request", noted)
    job = RailsOfService(service.socket, "job", PAIRS, keep_alive_s=1.0)
    for _ in range(3):
        submits.acquire()
    job.withdraw()
    assert not service.running.status()["jobs"]
    assert not service.room.circuits["ocs"]
