"""The cluster manager as a service: it places jobs and drives the fabric managers of all nodes.

What is wanted is on disk before the first order for it goes out, in one file that is replaced as
a whole. A service that was killed between any two orders reads it when it is started again, reads
where the modules are, and sends the orders that are left. An order that comes twice changes
nothing twice, and so does a request.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path as File
from typing import Any

from lightrig.harness.bench import Bench, Fabric, bind_only
from lightrig.harness.bench.binding import state_folder
from lightrig.harness.bench.lab_folder import (
    LabFolderError,
    UntrustedFileError,
    file_name,
    opened,
)
from lightrig.harness.systems.infinitehbd.planning.bypass import plan_of, wiring_of
from lightrig.harness.systems.infinitehbd.planning.cluster import Cluster
from lightrig.harness.systems.infinitehbd.planning.managers import (
    NodeFabricManager,
    PathChange,
    Paths,
)
from lightrig.harness.systems.infinitehbd.planning.rings import Path, bundles, circuits
from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError
from lightrig.testbeds import LightrigError, Plan, Testbed
from lightrig.testbeds.json_text import from_json

Connect = Callable[[int], Fabric]
"""Opens the modules of one node; raises `LightrigError` where they do not answer."""


def orchestrator(testbed: Testbed, state: File | None = None) -> "Orchestrator":
    """The orchestrator of the modules that a testbed cables, on hardware.

    state: its file; by default in the folder of saved states. Raises `InfiniteHbdError` for
    another testbed, and for a file that is no state of this one.
    """
    name = f"orchestrate-{file_name(str(File(testbed.path).absolute()))}.json"
    return Orchestrator(testbed, _Modules(testbed), state or state_folder(testbed) / name)


class Orchestrator:
    """The cluster manager, and the fabric manager of each node.

    A node whose modules do not take an order has failed, and what it carried is placed again.
    `request` may be called by several threads; requests are carried out one after the other.

    Args:
        testbed: as `lightrig generate infinitehbd` names its parts.
        connect: opens a node's modules; it may be asked again after an error.
        state: the file of what is wanted.
    """

    def __init__(self, testbed: Testbed, connect: Connect, state: File) -> None:
        self._testbed, self._connect, self._state = testbed, connect, state
        self._servers = list(testbed.servers)
        self.cluster = self._load()
        self._managers: dict[int, NodeFabricManager] = {}
        self._reasons: dict[int, str] = {}
        self._lock = threading.Lock()

    # ---------------------------------------------------------------------- requests

    def start(self) -> None:
        """Bring the modules to what is wanted, whatever was done before a kill.

        Raises `LightrigError` where no node answers at all: then the cause is here, and nothing
        is marked as failed.
        """
        errors = []
        with self._lock:
            for node in self.cluster.healthy:
                try:
                    self._connect(node)
                except LightrigError as error:
                    errors.append(error)
            if errors and len(errors) == len(self.cluster.healthy):
                raise errors[0]
            self._settle()

    def request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one request and return the status afterwards.

        {"do": "status"}, {"do": "submit", "job": NAME, "size": NODES, "groups": COUNT},
        {"do": "withdraw", "job": NAME}, {"do": "failed", "nodes": [NAME]} and
        {"do": "repaired", "nodes": [NAME]}. Raises `LightrigError`.
        """
        with self._lock:
            if request.get("do") != "status":
                self._want(self._next(request))
                self._settle()
            return self._status()

    def plan(self, request: Mapping[str, Any]) -> Plan:
        """Note what a request wants, and return the circuits that its orders change.

        For a caller that carries the orders out itself, to see each stage, and calls `done`.
        Raises `LightrigError`.
        """
        with self._lock:
            self._want(self._next(request))
            moves = [move for node in self.cluster.healthy for move in self._moves(node)]
            return plan_of(f"{request['do']} {', '.join(request.get('nodes', ()))}", moves)

    def done(self) -> None:
        """Note that the orders of `plan` were carried out and read back."""
        with self._lock:
            for node, manager in self._managers.items():
                self._managers[node] = replace(manager, paths=manager.wanted)

    def close(self) -> None:
        """Close the sessions with all modules; circuits stay as they are."""
        if isinstance(self._connect, _Modules):
            self._connect.close()

    def _next(self, request: Mapping[str, Any]) -> Cluster:
        try:
            match request.get("do"):
                case "submit":
                    return self.cluster.submitted(
                        str(request["job"]), int(request["size"]), int(request.get("groups", 1))
                    )
                case "withdraw":
                    return self.cluster.withdrawn(str(request["job"]))
                case "failed":
                    return self.cluster.failed(self._numbers(request["nodes"]))
                case "repaired":
                    nodes = self._numbers(request["nodes"])
                    for node in nodes:
                        self._forget(node)
                    return self.cluster.repaired(nodes)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, LightrigError):
                raise
            raise InfiniteHbdError(f"request {dict(request)} is not complete: {error!r}") from error
        known = "status, submit, withdraw, failed, repaired"
        raise InfiniteHbdError(f"found request {request.get('do')!r}, expected one of {known}")

    def _numbers(self, nodes: Iterable[str]) -> list[int]:
        if unknown := [node for node in nodes if node not in self._servers]:
            raise InfiniteHbdError(f"found node {unknown[0]!r}, expected {self._servers}")
        return [self._servers.index(node) for node in nodes]

    def _status(self) -> dict[str, Any]:
        wanted = self.cluster.paths()
        return {
            "faulty": {
                self._servers[node]: self._reasons.get(node, "reported")
                for node in sorted(self.cluster.faulty)
            },
            "jobs": {
                job.name: {
                    "size": job.size,
                    "missing": job.missing,
                    "groups": [[self._servers[node] for node in group] for group in job.groups],
                }
                for job in self.cluster.jobs
            },
            "settled": all(
                node in self._managers and self._managers[node].paths == paths
                for node, paths in wanted.items()
            ),
        }

    # ---------------------------------------------------------------------- the disk

    def _load(self) -> Cluster:
        wiring = wiring_of(self._testbed)
        try:
            with opened(self._state.parent, make=False) as folder:
                text = folder.read(self._state.name)
        except UntrustedFileError as error:
            raise InfiniteHbdError(f"{self._state} {error}: it is not used") from error
        except LabFolderError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return Cluster(wiring)
            raise
        try:
            cluster = Cluster.of_document(from_json(text))
        except ValueError as error:
            raise InfiniteHbdError(f"{self._state} is no state of a cluster: {error}") from error
        if cluster.wiring != wiring:
            raise InfiniteHbdError(f"{self._state} is the state of another row: {cluster.wiring}")
        return cluster

    def _want(self, cluster: Cluster) -> None:
        """Write what is wanted, then want it."""
        if cluster != self.cluster:
            with opened(self._state.parent) as folder:
                document = json.dumps(cluster.document())
                folder.write_whole(self._state.name, document, durable=True)
        self.cluster = cluster

    # ---------------------------------------------------------------------- the nodes

    def _settle(self) -> None:
        """Send orders until every healthy node does what is wanted of it."""
        left = list(self.cluster.healthy)
        while left:
            node = left.pop(0)
            try:
                self._order(node)
            except LightrigError as error:
                self._forget(node)
                self._reasons[node] = "; ".join(map(str.strip, str(error).splitlines()))
                self._want(self.cluster.failed([node]))
                left = list(self.cluster.healthy)

    def _order(self, node: int) -> None:
        """Bring the bundles of one node to their paths; raises `LightrigError`."""
        moves = self._moves(node)
        if moves:
            self._connect(node).apply(plan_of(f"order to {self._servers[node]}", moves))
            for move in moves:
                self._managers[node] = self._managers[node].switched(move.bundle)
        self._reasons.pop(node, None)

    def _moves(self, node: int) -> list[PathChange]:
        """Tell a node's fabric manager its paths; returns what it has to change."""
        manager = self._managers.get(node)
        if manager is None or not manager.settled:  # unknown, or an order that was not seen done
            present = self._present(node)
            manager = NodeFabricManager(node, present, present)
        self._managers[node], moves = manager.ordered(self.cluster.paths()[node])
        return moves

    def _present(self, node: int) -> Paths:
        """The paths that a node's modules are on; one that is on none is put into loopback."""
        fabric = self._connect(node)
        found = []
        for bundle in range(len(bundles(self.cluster.wiring))):
            switch = f"trx{bundle}-node{node}"
            present = fabric.bench.switches[switch].circuits()
            path = next((path for path in Path if circuits(path, 1) == present), None)
            if path is None:
                path = Path.LOOPBACK
                fabric.apply(Plan(f"loopback of {switch}", {switch: circuits(path, 1)}))
            found.append(path)
        return tuple(found)

    def _forget(self, node: int) -> None:
        """Forget what a node's modules do: it has failed, or comes back."""
        self._managers.pop(node, None)
        if isinstance(self._connect, _Modules):
            self._connect.drop(node)


class _Modules:
    """The modules of each node on sessions of their own, so that a dead node fails alone."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._open: dict[int, tuple[Bench, Fabric]] = {}

    def __call__(self, node: int) -> Fabric:
        if node not in self._open:
            names = {name for name in self._testbed.optical_switches if _node(name) == node}
            bench = bind_only(self._testbed, names, "lightrig orchestrate")
            self._open[node] = bench, Fabric(bench)
        return self._open[node][1]

    def drop(self, node: int) -> None:
        """Close the sessions with one node's modules."""
        if node in self._open:
            with contextlib.suppress(LightrigError):
                self._open.pop(node)[0].close()

    def close(self) -> None:
        """Close all sessions."""
        for node in list(self._open):
            self.drop(node)


def _node(switch: str) -> int:
    return int(switch.rpartition("node")[2])
