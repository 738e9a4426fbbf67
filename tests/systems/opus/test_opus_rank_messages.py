"""What the ranks of jobs send to their controllers: answered, kept over a restart, or refused."""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from systems.opus.test_opus_job_controllers import SHAPE, client

from lightrig.harness.orchestration.jobs import OrchestrationError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.opus.generator import render
from lightrig.harness.systems.opus.runtime.job_controllers import JobControllers
from lightrig.harness.systems.opus.runtime.rail_layout import RailLayout
from lightrig.testbeds import load
from tests.campaigns.switchroom import Switchroom, joined

PAIR = {"stages": 1, "widths": [2]}


class Service:
    """The service of six servers on one rail, which can be ended and started again."""

    def __init__(self, root: Path) -> None:
        (root / "rails.yaml").write_text(render(2, 3, 1))
        self.testbed, self.root = load(root / "rails.yaml"), root
        self.room, self.heard = Switchroom(self.testbed, "ingress"), root / "heard.json"
        self._stack = contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        from lightrig.harness.orchestration import http_api

        layout = RailLayout(self.testbed)
        self.running = Orchestrator(self.testbed, layout, self.room, self.root / "s.json")
        self.running.start()
        ranks = JobControllers(self.running, self.heard)
        self._stack.callback(ranks.close)
        ranks.start()
        listening = http_api.unix_socket(self.root / "api.socket")
        server = http_api.HttpServer(self.running, listening, None, ranks=ranks)
        self._stack.callback(server.close)
        self.api = client(self.root)
        self._stack.callback(self.api.close)

    def stop(self) -> None:
        self._stack.close()

    def send(self, job: str, wait: float = 60, **message: Any) -> tuple[int, Mapping[str, Any]]:
        path = f"/v1/jobs/{job}/messages"
        answered = self.api.post(path, params={"wait": wait}, json=message)
        return answered.status_code, answered.json()

    def all_at_once(self, *messages: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Send messages of the job `first`, each on a connection of its own."""
        found: dict[int, Mapping[str, Any]] = {}

        def one(number: int) -> None:
            with client(self.root) as api:
                path, params = "/v1/jobs/first/messages", {"wait": 60}
                found[number] = api.post(path, params=params, json=messages[number]).json()

        threads = [threading.Thread(target=one, args=(n,)) for n in range(len(messages))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [found[number] for number in range(len(messages))]


def write(rank: int, turn: int, group: str, **more: Any) -> dict[str, Any]:
    """A write of the job `first`, on servers 0 to 3: two stages of two ranks."""
    about = {"do": "topo_write", "rank": rank, "turn": turn, "node": f"server{rank}"}
    return {**about, "group": group, "index": turn - 1, "stage": rank // 2, **more}


def release(rank: int, turn: int) -> dict[str, Any]:
    return {"do": "release", "rank": rank, "turn": turn, "node": f"server{rank}"}


SENDS = [write(rank, 1, f"r0.pp0-1.{rank % 2}") for rank in range(4)]
DATA = [write(rank, 2, f"r0.d1.s{rank // 2}.0") for rank in range(4)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    for name, shape in (("first", SHAPE), ("second", PAIR)):
        made.running.request({"do": "submit", "job": name, "shape": shape})
    yield made
    made.stop()


def light(service: Service) -> dict[str, set[str]]:
    return dict(joined(service.testbed, service.room.circuits))


def test_circuits_follow_what_all_ranks_of_a_stage_ask_for(service: Service) -> None:
    ring = {"server4": {"server5"}, "server5": {"server4"}}
    assert {each["answer"] for each in service.all_at_once(*SENDS)} == {"granted"}
    pipeline = {"server0": {"server2"}, "server1": {"server3"}}
    pipeline |= {"server2": {"server0"}, "server3": {"server1"}}
    assert light(service) == {**pipeline, **ring}
    # Half of stage 0 asks for data: nothing moves, it waits.
    assert service.send("first", **release(1, 1)) == (
        200,
        {
            "answer": "released",
            "rank": 1,
            "turn": 1,
            "rail": None,
            "topology": None,
            "reason": None,
        },
    )
    assert service.send("first", wait=0.2, **DATA[0])[1]["answer"] == "waits"
    assert light(service) == {**pipeline, **ring}
    # The rest of both stages follows, and what waited is sent again.
    found = service.all_at_once(*DATA)
    assert [each["answer"] for each in found] == ["granted"] * 4
    data = {"server0": {"server1"}, "server1": {"server0"}}
    data |= {"server2": {"server3"}, "server3": {"server2"}}
    assert light(service) == {**data, **ring}
    assert "11" in {each["topology"] for each in found}  # of the stage that moved last


def test_a_grant_and_what_waits_are_known_after_a_restart(service: Service) -> None:
    service.all_at_once(*SENDS)
    assert service.send("first", wait=0, **DATA[0])[1]["answer"] == "waits"
    service.stop()
    service.room.commands.clear()
    service.start()
    # The same grant once more, and no circuit that its ranks still use is moved.
    assert service.send("first", wait=0, **SENDS[1])[1]["answer"] == "granted"
    assert service.send("first", wait=0.2, **DATA[0])[1]["answer"] == "waits"
    assert not service.room.commands
    assert {each["answer"] for each in service.all_at_once(*DATA[1:])} == {"granted"}
    assert service.send("first", **DATA[0])[1]["answer"] == "granted"


@pytest.mark.parametrize(
    ("message", "status", "says"),
    [
        (
            write(0, 1, "r0.d1.s0.0", node="server4"),
            403,
            "rank 0 of job first is on server0; the circuits of server4 are job second's",
        ),
        (write(0, 1, "r0.d1.s0.0", node="abc"), 403, "server0; abc is no server of its"),
        (write(4, 1, "r0.d1.s0.0"), 403, "job first has 4 ranks, and none is 4"),
        (
            write(0, 1, "r0.d1.s1.0"),
            403,
            "rank 0 of job first is not in group r0.d1.s1.0, whose ranks are 2, 3",
        ),
        (write(0, 1, "r1.d1.s0.0"), 403, "job first has no group r1.d1.s0.0"),
        (write(0, 1, "r0.d1.s0.0", stage=1), 403, "rank 0 of job first is in stage 0, not 1"),
        (release(0, 1), 409, "rank 0 of job first was granted nothing"),
        ({**release(0, 1), "group": "x"}, 400, "group: Extra inputs are not permitted"),
        ({"do": "else"}, 400, "found using 'do' does not match any of the expected tags"),
    ],
)
def test_what_is_not_a_ranks_own_is_refused_by_name(
    service: Service, message: Mapping[str, Any], status: int, says: str
) -> None:
    service.room.commands.clear()
    code, problem = service.send("first", wait=0, **message)
    assert (code, says in problem["detail"]) == (status, True), problem
    assert not service.room.commands


def test_ranks_that_were_started_again_say_so(service: Service) -> None:
    service.all_at_once(*SENDS)
    service.send("first", wait=0, **DATA[0])
    code, problem = service.send("first", wait=0, **SENDS[0])
    assert (code, "state a greater run" in problem["detail"]) == (409, True)
    again = [{**each, "run": 1} for each in SENDS]
    assert {each["answer"] for each in service.all_at_once(*again)} == {"granted"}
    code, problem = service.send("first", wait=0, **DATA[1])
    assert (code, problem["detail"]) == (409, "run 0 of job first is over: run 1 is on")


def test_a_job_that_has_other_servers_is_started_again(service: Service) -> None:
    service.all_at_once(*SENDS)
    service.running.request({"do": "withdraw", "job": "second"})
    service.running.request({"do": "failed", "nodes": ["server1"]})
    code, problem = service.send("first", wait=0, **DATA[0])
    assert (code, "is on server0, server4, server2, server3 now" in problem["detail"]) == (
        409,
        True,
    )
    again = [{**each, "run": 1} for each in SENDS]
    again[1]["node"] = "server4"
    assert {each["answer"] for each in service.all_at_once(*again)} == {"granted"}


def test_topologies_are_stated_by_ranks_alone_once_they_ask(service: Service) -> None:
    service.all_at_once(*SENDS)
    again = {"do": "submit", "job": "first", "shape": SHAPE}
    found = service.api.post("/v1/requests", json=again).json()  # as one that keeps alive
    assert found["jobs"]["first"]["shape"]["topologies"] == ["00"]
    again["shape"] = {**SHAPE, "topologies": ["ring"]}
    refused = service.api.post("/v1/requests", json=again)
    assert (refused.status_code, "state no topologies" in refused.text) == (409, True)


def test_a_rank_of_a_job_that_ends_is_told(service: Service) -> None:
    assert service.send("none", wait=0, **SENDS[0])[0] == 404
    threading.Timer(0.3, service.running.request, [{"do": "withdraw", "job": "first"}]).start()
    code, problem = service.send("first", **SENDS[0])
    assert (code, problem["detail"]) == (404, "job first has ended")


def test_a_switch_that_takes_no_order_ends_in_a_named_failure(service: Service) -> None:
    service.all_at_once(*SENDS)
    service.room.refusing.add("ocs")
    found = service.all_at_once(*DATA)
    assert {each["answer"] for each in found} == {"failed"}
    assert found[0]["reason"] == "no rail is left: circuits of job first are not set"


def test_another_job_of_the_same_name_begins_anew(service: Service) -> None:
    service.all_at_once(*SENDS)
    service.api.delete("/v1/jobs/first").raise_for_status()
    service.running.request({"do": "submit", "job": "first", "shape": SHAPE})
    assert {each["answer"] for each in service.all_at_once(*SENDS)} == {"granted"}
    assert light(service)["server0"] == {"server2"}  # it has left its ring for the pipeline


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda text: text[:-9], "it is cut or damaged"),
        (lambda text: text.replace('"turns": [1', '"turns": [7'), "its digest is that of another"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "format: Input should be 1"),
        (lambda text: text.replace('"run": 0', '"run": 0, "run": 1'), "run"),
    ],
)
def test_a_damaged_file_of_what_was_heard_is_refused(
    service: Service, damage: Any, says: str
) -> None:
    service.all_at_once(*SENDS)
    text = service.heard.read_text()
    assert json.loads(text)["jobs"][0]["job"] == "first"
    service.stop()
    assert damage(text) != text
    service.heard.write_text(damage(text))
    with pytest.raises(OrchestrationError, match="is no state of controllers") as found:
        service.start()
    assert says in str(found.value)
