"""Jobs on shared rails: their places, circuits and topologies, by the light in memory."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.orchestration.jobs import ImpossibleError, JobConflictError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.opus.generator import render
from lightrig.harness.systems.opus.runtime.rail_layout import RailLayout
from lightrig.testbeds import load
from tests.campaigns.switchroom import Switchroom, joined


class Shared:
    """Six servers on two rails of one switch, and the service of their jobs."""

    def __init__(self, root: Path) -> None:
        (root / "rails.yaml").write_text(render(2, 3, 2))
        self.testbed, self._state = load(root / "rails.yaml"), root / "s.json"
        self.room = Switchroom(self.testbed, "ingress")
        self.service = self.started()

    def started(self) -> Orchestrator:
        service = Orchestrator(self.testbed, RailLayout(self.testbed), self.room, self._state)
        service.start()
        return service

    def submit(self, job: str, *topologies: str, **more: Any) -> Mapping[str, Any]:
        shape = {"stages": 2, "widths": [1], "topologies": [*topologies], **more.pop("shape", {})}
        wish = {"do": "submit", "job": job, "shape": shape, **more}
        found: Mapping[str, Any] = self.service.request(wish)["jobs"][job]
        return found

    def light(self) -> dict[str, set[str]]:
        return dict(joined(self.testbed, self.room.circuits))


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


def test_a_job_moves_its_own_circuits_alone(shared: Shared) -> None:
    four = {"widths": [2]}
    assert shared.submit("a")["groups"][0]["nodes"] == ["server0", "server1"]
    found = shared.submit("b", shape=four)
    assert found["groups"][0]["nodes"] == ["server2", "server3", "server4", "server5"]
    assert shared.light() == {
        "server0": {"server1"},
        "server1": {"server0"},
        # One ring of all ranks: down the stages of one column, up those of the next.
        "server2": {"server4", "server3"},
        "server4": {"server2", "server5"},
        "server5": {"server4", "server3"},
        "server3": {"server5", "server2"},
    }
    before = {c for c in shared.room.circuits["ocs"] if c.ingress <= 4}  # of rail 0, of a
    shared.room.commands.clear()
    assert shared.submit("b", "11", "00", shape=four)["ready"]
    # Ports 1 to 12 are those of rail 0, of two a server: of a 1 to 4, and 13 to 16 of rail 1.
    touched = {c.ingress for _, c in shared.room.commands}
    assert touched <= {*range(5, 13), *range(17, 25)}
    assert before == {c for c in shared.room.circuits["ocs"] if c.ingress <= 4}
    # Rail 0 joins the two servers of a stage, rail 1 those of a pipeline.
    assert shared.light()["server2"] == {"server3", "server4"}
    assert shared.light()["server5"] == {"server4", "server3"}


def test_a_job_that_is_not_heard_of_gives_its_servers_back(shared: Shared) -> None:
    shared.submit("stays")
    shared.submit("killed", keep_alive=1.0)
    assert shared.submit("waits", shape={"widths": [2]})["missing"] == 1
    ends = time.monotonic() + 60
    while "killed" in shared.service.status()["jobs"] and time.monotonic() < ends:
        shared.service.step()
        time.sleep(0.05)
    jobs = shared.service.status()["jobs"]
    assert jobs.keys() == {"stays", "waits"}
    assert jobs["waits"]["groups"][0]["nodes"] == ["server2", "server3", "server4", "server5"]
    assert shared.light()["server0"] == {"server1"}


def test_a_service_that_is_started_again_waits_as_long_again(shared: Shared) -> None:
    shared.submit("a", keep_alive=3600.0)
    shared.service = shared.started()
    shared.service.step()
    assert shared.service.status()["jobs"]["a"]["keep_alive"] == 3600.0
    with pytest.raises(JobConflictError, match=r"keep_alive 3600\.0, nodes any: withdraw it first"):
        shared.submit("a", keep_alive=5.0)


def test_a_server_that_fails_is_replaced_and_the_others_keep_their_ranks(shared: Shared) -> None:
    shared.submit("a", shape={"widths": [2]})
    shared.service.request({"do": "failed", "nodes": ["server1"]})
    (group,) = shared.service.status()["jobs"]["a"]["groups"]
    assert group["nodes"] == ["server0", "server4", "server2", "server3"]


@pytest.mark.parametrize(
    ("shape", "topologies", "why"),
    [
        ({"widths": [4]}, (), "2 stages of 4 are 8 servers, expected 2 to 6"),
        ({"stages": 1}, (), "1 stages of 1 are 1 servers"),
        ({}, ("11",), "found 1 topologies, expected 2 rails"),
        ({}, ("11", "111"), "found topology '111', expected ring or 2 digits from 0 to 1"),
        ({}, ("11", "02"), "found topology '02'"),
        ({}, ("11", "giant"), "found topology 'giant'"),
    ],
)
def test_what_no_rails_have_is_refused(shared: Shared, shape, topologies, why: str) -> None:
    with pytest.raises(ImpossibleError, match=why):
        shared.submit("a", *topologies, shape=shape)
    assert not shared.service.status()["jobs"]


def test_a_job_on_too_few_nodes_is_impossible(shared: Shared) -> None:
    with pytest.raises(ImpossibleError, match="it has 2 servers, and may have 1"):
        shared.submit("a", nodes=["server0"])
