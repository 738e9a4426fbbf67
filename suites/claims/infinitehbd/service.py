"""InfiniteHBD's service over a row in memory: nodes fail, it probes and places, time is virtual.

What runs is the orchestrator's own `step`. After each change of the faulty nodes all modules are
probed until nothing changes, then the next event comes.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import Outcomes, Reading
from lightrig.harness.systems.infinitehbd.planning.traffic import cross_tor_share
from lightrig.harness.systems.infinitehbd.planning.wiring import FatTree, Mask, RowWiring, k_hop
from lightrig.harness.systems.infinitehbd.runtime.layout import Row, RowLayout
from lightrig.suites.claims.infinitehbd.trace import States
from lightrig.testbeds import Circuit, LightrigError, Link, Plan, Testbed

GPUS = 4
"""Of a node."""

MOST_PROBES = 400
"""More than what fails again and again needs to be used again."""


class Modules:
    """The modules of a row in memory, as `Wiring` and as `Switches`.

    Attributes:
        dead: nodes whose modules do not answer.
    """

    def __init__(self, nodes: int, bundles: int) -> None:
        self.of = {
            node: [f"trx{bundle}-node{node}" for bundle in range(bundles)] for node in range(nodes)
        }
        self.switches: Mapping[str, str | None] = {
            name: None for names in self.of.values() for name in names
        }
        self._present = {name: Reading(frozenset()) for name in self.switches}
        self.dead: set[int] = set()

    def probe(self, names: Any) -> Outcomes:
        """Return what modules hold; errors for those of dead nodes."""
        everything = len(names) == len(self._present)
        found: dict[str, Reading | LightrigError] = (
            {**self._present} if everything else {name: self._present[name] for name in names}
        )
        for node in self.dead:
            for name in self.of[node]:
                if name in found:
                    found[name] = LightrigError(f"{name} did not answer")
        return found

    def order(self, wanted: Mapping[str, frozenset[Circuit]]) -> Outcomes:
        """Bring modules to circuits."""
        self._present.update({name: Reading(circuits) for name, circuits in wanted.items()})
        return self.probe(wanted)

    def close(self) -> None:
        """See `Switches`."""

    def lights(self, switch: str) -> Mapping[int, str]:
        """Return no ports: modules have no monitors here."""
        return {}

    def ingress(self, switch: str) -> frozenset[int]:
        """See `Wiring`."""
        return frozenset({1})

    def loops(self, switch: str) -> Mapping[str, Circuit]:
        """See `Wiring`."""
        return {}

    def links(self, plan: Plan) -> Iterator[Link]:
        """Return none: nobody asks for ports here."""
        return iter(())

    def testbed_of(self, switch: str) -> Testbed:
        """See `Wiring`; modules in memory have no file."""
        raise NotImplementedError


class Service:
    """An orchestrator over a row of modules, with one job.

    Args:
        folder: of the journal. row: how the nodes are joined. tree: the packet network behind it.
        shape: of the job.
    """

    def __init__(
        self, folder: Path, row: RowWiring, tree: FatTree | None, shape: Mapping[str, Any]
    ) -> None:
        self.nodes, self.tree, self.shape = row.nodes, tree, shape
        self.room = Modules(row.nodes, row.reach)
        layout = RowLayout(Row(row, tuple(f"node{n}" for n in range(row.nodes)), tree, GPUS))
        self.running = Orchestrator(self.room, layout, self.room, folder / "service.json")
        self.running.start()

    def submit(self) -> None:
        """Submit the job."""
        self.running.request({"do": "submit", "job": "a", "shape": self.shape})

    def withdraw(self) -> None:
        """Withdraw the job."""
        self.running.request({"do": "withdraw", "job": "a"})

    def lose(self, dead: set[int]) -> int:
        """Let nodes be dead, probe until nothing changes, and return how many probes that took."""
        self.room.dead = dead
        faulty = {f"node{node}" for node in dead}
        for probes in range(1, MOST_PROBES):
            before = self.running.status()["epoch"]
            self.running.step()
            status = self.running.status()
            if status["faulty"].keys() == faulty and status["epoch"] == before:
                return probes
        raise AssertionError(f"not settled after {MOST_PROBES} probes: {status['doubt']}")

    def report(self, dead: set[int]) -> None:
        """Report nodes as failed, and all others as repaired."""
        known = {int(node.removeprefix("node")) for node in self.running.status()["faulty"]}
        for request, nodes in (("repaired", known - dead), ("failed", dead - known)):
            if nodes:
                names = [f"node{node}" for node in sorted(nodes)]
                self.running.request({"do": request, "nodes": names})

    def job(self) -> dict[str, Any]:
        """Return the job as the status has it."""
        return dict(self.running.status()["jobs"]["a"])

    def places(self) -> list[list[int]]:
        """Return the nodes of each group that there is."""
        return [
            [int(node.removeprefix("node")) for node in group["nodes"]]
            for group in self.job()["groups"]
            if group
        ]

    def crossing(self) -> float:
        """Return the share of the job's traffic across ToRs by the order of its groups alone."""
        assert self.tree is not None
        found = self.tree.order()[np.array(self.places(), dtype=np.int64)]
        return cross_tor_share(self.tree, found) if len(found) else 0.0


def filled(found: States, hops: int, group: int, folder: Path) -> dict[str, float]:
    """Replay states with a job of all groups that the line would hold without faults.

    group: in GPUs. Returns `waste`, the share of the GPUs that are healthy and in no group, over
    time; `least`, the GPUs in groups where they are fewest; and the numbers of states and probes.
    """
    nodes, size = found.faulty.shape[1], group // GPUS
    # What moves does not count here, and to look for few moves is most of the work of `repair`.
    shape = {"gpus": group, "groups": nodes // size, "policy": "optimal"}
    service = Service(folder, k_hop(nodes, hops), None, shape)
    wasted: list[int] = []
    placed: list[int] = []
    probes = 0
    for faulty in found.faulty:
        dead = set(np.flatnonzero(faulty).tolist())
        probes += service.lose(dead)
        if not placed:
            service.submit()
        placed.append(size * len(service.places()))
        wasted.append(nodes - len(dead) - placed[-1])
    return {
        "waste": found.mean(np.array(wasted) / nodes),
        "least": GPUS * min(placed),
        "states": len(placed),
        "probes": probes,
    }


class Crossing:
    """Traffic across ToRs of a job of groups of `group` GPUs, with nodes reported as failed.

    job: the share of the GPUs that it wants.
    """

    def __init__(self, tree: FatTree, hops: int, group: int, job: float, folder: Path) -> None:
        groups = int(job * tree.nodes * GPUS) // group
        # A limit of 0: what moves does not count for a job that is new at each set of faults.
        shape = {"gpus": group, "groups": groups, "crossing": 0.0}
        self._tree = tree
        self._service = Service(folder, k_hop(tree.nodes, hops, closed=True), tree, shape)

    def beside(self, faulty: Mask) -> float:
        """Return the share beside faulty nodes of the network; 1 where groups are missing."""
        self._service.report(set(np.flatnonzero(faulty[self._tree.order()]).tolist()))
        self._service.submit()
        share = 1.0 if self._service.job()["missing"] else self._service.crossing()
        self._service.withdraw()
        return share
