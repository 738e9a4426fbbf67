"""The rails of a job whose circuits a service moves, which other jobs share with it.

`lightrig orchestrate` has the switches; this process has the job's ranks and their servers. It
submits the job, is given servers, and asks for the topologies of its rails by further submits. A
service that was killed and started again goes on: circuits stay meanwhile, and requests wait.
"""

from __future__ import annotations

import re
import socket
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from lightrig.harness.bench import Fabric, bind_only
from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.fabric import Applied
from lightrig.harness.jobs.training import TrainingRequest, TrainingRequestError
from lightrig.harness.orchestration.listener_account import AccountTransport
from lightrig.harness.signals import uninterrupted
from lightrig.harness.systems.opus.planning.messages import Rewire
from lightrig.harness.systems.opus.planning.operations import RailJob
from lightrig.harness.systems.opus.planning.topology import (
    GIANT_RING,
    Topology,
)
from lightrig.harness.systems.opus.runtime.on_fabric import FabricRails
from lightrig.harness.systems.opus.runtime.rail_layout import changed_topology, topology_text
from lightrig.instruments.clock import Span, boot_time
from lightrig.testbeds import Circuit, LightrigError, Testbed

KEEP_ALIVE_S = 10.0
"""Time after which the service gives the servers of a killed process to others."""

AWAY_S = 60.0
"""How long a request waits for a service that does not answer, such as one that is restarted."""

_AGAIN_S = 0.2
_TIMEOUT_S = 30.0


class ServiceError(LightrigError):
    """The service refused, does not answer, or has given the job other servers."""


class ServedJob:
    """A job of a service, submitted again and again until `withdraw`.

    Args:
        path: of the Unix socket of the service.
        name: of the job, which no other has.
        shape: as `RailShape` has it, without topologies.
        keep_alive_s: see `KEEP_ALIVE_S`.

    Attributes:
        nodes: its servers, in the order of ranks.

    Raises `ServiceError` where the service has no place for it, which it then does not keep.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        shape: Mapping[str, Any],
        *,
        keep_alive_s: float = KEEP_ALIVE_S,
        away_s: float = AWAY_S,
    ) -> None:
        self.name, self._path, self._away_s = name, path, away_s
        self._shape, self._keep_alive_s = dict(shape), keep_alive_s
        self._client = httpx.Client(
            base_url="http://lightrig",
            transport=AccountTransport(_TIMEOUT_S, path),
            timeout=_TIMEOUT_S,
        )
        self._turn, self._over = threading.Lock(), threading.Event()
        self.nodes: tuple[str, ...] = ()
        try:
            found = self._submit()
            if found["missing"]:
                raise ServiceError(f"job {name} has no place: {found['reason']['detail']}")
            self.nodes = tuple(found["groups"][0]["nodes"])
        except BaseException:
            self.withdraw()
            raise
        self._thread = threading.Thread(target=self._keep, daemon=True, name="keep-alive")
        self._thread.start()

    def set(self, topologies: Sequence[Topology]) -> None:
        """Bring each rail to its topology; raises `ServiceError`."""
        with self._turn:
            self._shape["topologies"] = [topology_text(each) for each in topologies]
            found = self._submit()
        if found["without"]:
            raise ServiceError(f"{', '.join(found['without'])} failed: see the service's status")
        if not found["ready"]:
            raise ServiceError(f"the circuits of job {self.name} are not set")

    def withdraw(self) -> None:
        """End the job, whose servers others may have then; a lost service ends it by itself."""
        self._over.set()
        with self._turn, closing(self._client), suppress(httpx.HTTPError, OSError):
            self._reach()
            self._client.delete(f"/v1/jobs/{self.name}")

    def _submit(self) -> Mapping[str, Any]:
        request = {
            "do": "submit",
            "job": self.name,
            "shape": self._shape,
            "keep_alive": self._keep_alive_s,
        }
        # A first submit finds a service, or there is none.
        ends = boot_time() + (self._away_s * 1e9 if self.nodes else 0)
        while True:
            try:
                self._reach()
                answered = self._client.post("/v1/requests", json=request)
            except (httpx.TransportError, OSError) as error:
                if boot_time() >= ends or self._over.is_set():
                    raise ServiceError(
                        f"no service at {self._path} ({error}): does `lightrig orchestrate` run "
                        "there?"
                    ) from error
                self._over.wait(_AGAIN_S)
                continue
            if answered.is_error:
                raise ServiceError(f"job {self.name} was refused: {_detail(answered)}")
            found: Mapping[str, Any] = answered.json()["jobs"][self.name]
            (group,) = found["groups"]
            if self.nodes and (group is None or tuple(group["nodes"]) != self.nodes):
                now = "no servers" if group is None else ", ".join(group["nodes"])
                raise ServiceError(
                    f"job {self.name} was on {', '.join(self.nodes)} and has {now} now, since one "
                    "failed or nothing was heard of the job: start it again"
                )
            return found

    def _reach(self) -> None:
        """Raise `OSError` where nothing listens; httpcore 1.0 would leave its socket open then."""
        with socket.socket(socket.AF_UNIX) as tried:
            tried.connect(str(self._path))

    def _keep(self) -> None:
        while not self._over.wait(self._keep_alive_s / 4):
            with self._turn:
                if self._over.is_set():
                    return
                try:
                    self._submit()
                except ServiceError:
                    return  # the next change of circuits is refused alike, and says so


class ServedRails(FabricRails):
    """The rails of a job that a service moves."""

    def __init__(
        self, fabric: Fabric, job: RailJob, served: ServedJob, without: Collection[int] = ()
    ) -> None:
        super().__init__(fabric, job, without=without)
        self._served = served
        self._topologies: list[Topology] = [GIANT_RING] * job.rails
        self._turn = threading.Lock()

    def make(self, topology: Topology) -> Mapping[str, frozenset[Circuit]]:
        """See `FabricRails`; raises `ServiceError`."""
        with self._turn:
            return self._bring([topology] * len(self._topologies))

    def apply(self, rewires: Sequence[Rewire]) -> Applied:
        """See `FabricRails`; raises `ServiceError`. Changes of several switches take turns.

        The service's own request and answer lie within: when its switch was told is not known.
        """
        switch, wanted = self._wanted(rewires)
        asked = self._fabric.bench.clock.now()
        with self._turn:
            topologies = list(self._topologies)
            for rewire in rewires:
                before = topologies[rewire.rail]
                topologies[rewire.rail] = changed_topology(before, rewire.topology, rewire.stages)
            self._moving[switch] = self._circuits[switch] ^ wanted
            try:
                self._bring(topologies)
            finally:
                self._moving[switch] = frozenset()
        answered = Span(asked, self._fabric.bench.clock.now())
        return Applied(answered, answered)

    def commands(self, rewires: Sequence[Rewire]) -> int:
        """Return 1: the service alone knows how its switches are told."""
        return 1

    def _bring(self, topologies: list[Topology]) -> Mapping[str, frozenset[Circuit]]:
        self._topologies = topologies
        self._served.set(topologies)
        before, self._circuits = self._circuits, dict(self.plan(topologies).circuits)
        return {name: each - before.get(name, frozenset()) for name, each in self._circuits.items()}


class ServedFabric(Fabric):
    """The servers of a job that a service has placed, and their circuits through it.

    Args:
        bench: with these servers alone, in the order of ranks.
        served: the job.
    """

    def __init__(self, bench: Bench, served: ServedJob) -> None:
        super().__init__(bench)
        self._served = served

    def rails(self, job: RailJob, without: Collection[int] = ()) -> ServedRails:
        """Return the rails of the job; `without` as for `FabricRails`."""
        return ServedRails(self, job, self._served, without)


def rails_of(
    fabric: Fabric, job: RailJob, servers: Sequence[str] = (), without: Collection[int] = ()
) -> FabricRails:
    """Return the rails of a job, on switches of this process or of a service.

    servers, without: as for `FabricRails`; a service decides about servers by itself.
    """
    if isinstance(fabric, ServedFabric):
        return fabric.rails(job, without)
    return FabricRails(fabric, job, servers, without)


def part_of(testbed: Testbed, servers: Sequence[str]) -> Testbed:
    """Return a testbed with these servers alone, in this order, and without plans."""
    return replace(testbed, servers={name: testbed.servers[name] for name in servers}, plans={})


@contextmanager
def served_fabric(
    testbed: Testbed, request: TrainingRequest, path: Path, about: str
) -> Iterator[Fabric]:
    """Give the fabric of a training job that a service places, and withdraw it afterwards.

    Raises `TrainingRequestError` where the request does not state its size, `ServiceError`, and as
    `bind_only`.
    """
    if not request.parallel or request.also or request.faults or request.spares:
        raise TrainingRequestError(
            "on circuits of a service a job states --parallel, and none of --also, --fault, --spare"
        )
    widths = [degree for name, degree in request.parallel.items() if name != "pp"] or [1]
    shape = {"stages": request.parallel.get("pp", 1), "widths": widths}
    name = f"{re.sub('[^A-Za-z0-9._-]', '-', Path(request.name).stem)[:40]}-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        served = ServedJob(path, name.lstrip("._-"), shape)
        stack.callback(_uninterrupted, served.withdraw)
        part = part_of(testbed, served.nodes)
        bench = bind_only(part, set(served.nodes), f"{about}, job {served.name}")
        stack.callback(_uninterrupted, bench.close)
        yield ServedFabric(bench, served)


def _uninterrupted(action: Callable[[], None]) -> None:
    with uninterrupted():
        action()


def _detail(answered: httpx.Response) -> str:
    try:
        return str(answered.json()["detail"])
    except (ValueError, LookupError, TypeError):
        return answered.reason_phrase
