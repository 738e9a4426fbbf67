"""Controllers as a service: ranks of two jobs on the same switches, over sockets and wires.

The truth is the light: whenever a rank may communicate, the served switches must join its server
with those that the paper's words give it, followed along the fibers of the testbed.
"""

import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightrig.harness.systems.opus.planning.messages import (
    Failed,
    Granted,
    Release,
    Released,
    TopoWrite,
    ToShim,
)
from lightrig.harness.systems.opus.planning.operations import RailJob
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.planning.shim import Mode, Shim
from lightrig.harness.systems.opus.planning.topology import GIANT_RING, TopologyId
from lightrig.suites.claims.opus.steps import pipeline_step
from tests.campaigns import wire_sequences
from tests.campaigns.rails_case import Rails, joined_ranks
from tests.campaigns.switchroom import beams

# httpcore 1.0 does not close the socket of a connection that is refused.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket.socket fd=.*, family=1,"
    ":pytest.PytestUnraisableExceptionWarning"
)

SHAPE = {"stages": 2, "widths": [2]}
GRID = RailJob.grid("job", 2, [2], 2)
AWAY_S = 100.0


@dataclass
class Ranks:
    """The ranks of a job, each a thread with a shim and a connection of its own.

    granted: how many operations ran. wrong: what a rank saw that must not be.
    """

    place: Path
    name: str
    nodes: Sequence[str]
    room: wire_sequences.ServedRoom
    steps: int
    mode: Mode = "default"
    run: int = 0
    granted: int = 0
    wrong: list[str] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        for rank in range(len(GRID.stage_of)):
            self.threads.append(threading.Thread(target=self._rank, args=(rank,), daemon=True))
            self.threads[-1].start()

    def _rank(self, rank: int) -> None:
        try:
            with client(self.place) as api:
                self._program(api, rank)
        except Exception as error:  # a thread's own is seen by nobody
            self.wrong.append(f"{self.name} {rank}: {error!r}")

    def _program(self, api: httpx.Client, rank: int) -> None:
        operations = pipeline_step(GRID, rank, microbatches=1)
        shim = Shim(rank, GRID.stage_of[rank], PhaseTable(operations, self.steps), self.mode)
        while (operation := shim.table.at(shim.position)) is not None:
            shim, _, sent = shim.pre_comm(operation)
            shim = self._send(api, shim, sent)
            assert shim.may_start, shim.notice
            shim = shim.started()
            for _ in range(2):
                self._look(rank, operation.group, operation.dimension)
                time.sleep(0.001)
            self.granted += 1
            shim, sent = shim.post_comm(operation)
            shim = self._send(api, shim, sent)

    def _send(self, api: httpx.Client, shim: Shim, sent: Sequence[Any]) -> Shim:
        for message in sent:
            shim = shim.receive(self.told(api, message))
        return shim

    def told(self, api: httpx.Client, message: TopoWrite | Release) -> ToShim:
        """Send a message, again while the service is away or lets it wait."""
        ends = time.monotonic() + AWAY_S
        while time.monotonic() < ends:
            try:
                answered = api.post(
                    f"/v1/jobs/{self.name}/messages",
                    params={"wait": 5},
                    json=document(message, self.nodes[message.rank // GRID.rails], self.run),
                )
            except httpx.TransportError:
                time.sleep(0.05)
                continue
            assert answered.status_code == 200, answered.text
            if answered.json()["answer"] != "waits":
                return message_of(answered.json())
        raise AssertionError(f"no answer to {message}")

    def _look(self, rank: int, group: str, dimension: int) -> None:
        """Note where the light does not join the server with the others of the group."""
        rail, place = rank % GRID.rails, rank // GRID.rails
        others = {member // GRID.rails for member in GRID.groups[group].ranks} - {place}
        # Any digits of the other stage: only links of this one's own dimension count.
        near = {
            b if a == place else a
            for a, b in joined_ranks(2, [2], str(dimension) * 2)
            if place in {a, b}
        }
        assert others <= near
        seen = {
            sink.owner
            for source, sink in beams(self.room.testbed, self.room.circuits)
            if source.owner == self.nodes[place] and int(source.name[3]) == rail
        }
        if not {self.nodes[other] for other in others} <= seen:
            self.wrong.append(f"{self.name} {rank}: {self.nodes[place]} sees {seen}, {group}")


def client(place: Path) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(place / "api.socket"), verify=False)
    return httpx.Client(base_url="http://lightrig", transport=transport, timeout=60)


def document(message: TopoWrite | Release, node: str, run: int = 0) -> dict[str, Any]:
    about = {"rank": message.rank, "turn": message.turn, "node": node, "run": run}
    if isinstance(message, Release):
        return {"do": "release", **about}
    asks = {"group": message.group, "index": message.index, "stage": message.stage}
    return {"do": "topo_write", **about, **asks}


def message_of(answer: Mapping[str, Any]) -> ToShim:
    about = answer["rank"], answer["turn"]
    if answer["answer"] == "released":
        return Released(*about)
    if answer["answer"] == "failed":
        return Failed(*about, answer["reason"])
    text = answer["topology"]
    return Granted(*about, answer["rail"], GIANT_RING if text == "ring" else TopologyId(text))


class Lab:
    """Eight servers on two rails with a served switch each, and the service in a process."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        wire_sequences.preload_services()
        self.room, self._file = stack.enter_context(wire_sequences.served(Rails(), root))
        self.place, self._stack = root / "service", stack
        self.place.mkdir()
        self.start()

    def start(self) -> None:
        self.service = wire_sequences.Process("opus", self._file, self.place)
        self._stack.callback(self.service.close)

    def submit(self, name: str) -> Sequence[str]:
        request = {"do": "submit", "job": name, "shape": SHAPE}
        nodes: Sequence[str] = self.service.request(request)["jobs"][name]["groups"][0]["nodes"]
        return nodes


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    for name in ("LIGHTRIG_STATE", wire_sequences.LOGIN):
        monkeypatch.setenv(name, "")  # restored afterwards
    with ExitStack() as stack:
        yield Lab(tmp_path, stack)


def until(condition: Any) -> None:
    ends = time.monotonic() + AWAY_S
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_jobs_on_the_same_switches_end_although_the_service_is_killed(lab: Lab) -> None:
    jobs = [
        Ranks(lab.place, name, lab.submit(name), lab.room, steps=6, mode=mode)
        for name, mode in (("first", "default"), ("second", "provisioning"))
    ]
    owners = {node: job.name for job in jobs for node in job.nodes}
    assert len(owners) == 8
    for job in jobs:
        job.start()
    until(lambda: all(job.granted > 60 for job in jobs))
    # One job cannot ask for circuits of the other.
    with client(lab.place) as api:
        strange = document(TopoWrite(0, 99, "r0.d1.s0.0", 0, 0), jobs[1].nodes[0])
        refused = api.post("/v1/jobs/first/messages", json=strange)
    assert refused.status_code == 403
    assert refused.json()["detail"] == (
        "rank 0 of job first is on server0; the circuits of server4 are job second's"
    )
    lab.service.kill()
    lab.service.close()
    assert lab.service.was_killed
    before = [job.granted for job in jobs]
    lab.start()
    for thread in itertools.chain(*(job.threads for job in jobs)):
        thread.join(AWAY_S)
    assert [job.wrong for job in jobs] == [[], []]
    operations = sum(len(pipeline_step(GRID, rank, microbatches=1)) for rank in range(8))
    assert [job.granted for job in jobs] == [6 * operations] * 2
    assert all(granted < 6 * operations for granted in before)
    # No circuit ever joined servers of different jobs.
    ports = {
        (fiber.sink.owner, "in", int(fiber.sink.name)): fiber.source.owner
        for fiber in lab.room.testbed.fibers
        if fiber.sink.owner in lab.room.circuits
    } | {
        (fiber.source.owner, "out", int(fiber.source.name)): fiber.sink.owner
        for fiber in lab.room.testbed.fibers
        if fiber.source.owner in lab.room.circuits
    }
    for switch, circuit in lab.room.commands:
        ends = ports[switch, "in", circuit.ingress], ports[switch, "out", circuit.egress]
        assert owners[ends[0]] == owners[ends[1]]
