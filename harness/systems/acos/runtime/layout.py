"""One ring through servers that work, past those that do not, for the orchestrator (§4.1, §4.3)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
from lightrig.harness.orchestration.layout import Shape
from lightrig.harness.systems.acos.planning.server_rings import LANES
from lightrig.testbeds import Circuit, Testbed

LEAST_RING = 3
"""Servers of a ring whose two neighbours differ."""

_SELECTION = re.compile(r"(tx|rx)-(?P<server>.+)-lane(?P<lane>\d+)")
_SKIP = re.compile(r"(?P<ring>.+)-skip-(out|in)-(?P<place>\d+)-(?P<lane>\d+)")


class ServerRingShape(Shape):
    """A ring through all servers that work."""

    ring: Annotated[
        str, Field(description="Name of a ring; auto: of those possible, one with most servers")
    ] = "auto"


class ServerRingLayout:
    """Servers on resilient rings, as `lightrig generate acos --namespaces` names their parts.

    A ring leads past servers that do not work, of which no two are neighbours on it. A 1xN leads
    its light somewhere in any state: without a job all switches are at their first output.

    Raises `OrchestrationError` for another testbed.
    """

    shape = ServerRingShape

    def __init__(self, testbed: Testbed) -> None:
        self.nodes = tuple(testbed.servers)
        self.orders = _orders(testbed)
        complete = {*map(frozenset, self.orders.values())} == {frozenset(self.nodes)}
        if not complete or any(len(o) != len(self.nodes) for o in self.orders.values()):
            raise OrchestrationError(
                f"{testbed.path} has no rings through all servers, RING-skip-out-PLACE-LANE, as "
                "`lightrig generate acos --namespaces` writes them"
            )

    def groups_of(self, shape: Mapping[str, object]) -> int:
        """See `Layout`."""
        ring = ServerRingShape.model_validate(shape).ring
        if ring not in {"auto", *self.orders}:
            raise OrchestrationError(f"found ring {ring}, expected auto, {', '.join(self.orders)}")
        return 1

    def impossible(self, job: Job, nodes: frozenset[str]) -> str | None:
        """See `ProvesImpossible`."""
        wanted = ServerRingShape.model_validate(job.shape).ring
        names = [name for name in self.orders if wanted in {"auto", name}]
        if any(self._group(name, nodes, ()) for name in names):
            return None
        return (
            f"no ring of {', '.join(names)} leads through the {len(nodes)} servers that it may "
            f"have: it has {LEAST_RING} or more, and passes no two neighbours"
        )

    def cut_off(self, switches: Collection[str]) -> Mapping[str, str]:
        """Return the servers at whose ports `switches` are."""
        found = {name: _SELECTION.fullmatch(name) for name in sorted(switches)}
        return {match["server"]: name for name, match in found.items() if match}

    def place(
        self,
        job: Job,
        free: frozenset[str],
        lost: Mapping[int, Group],
        silent: Collection[str],
    ) -> Job:
        """See `Layout`; a server that has come back is taken in."""
        wanted = ServerRingShape.model_validate(job.shape).ring
        usable, present = free | job.nodes, job.groups[0] or lost.get(0)
        first = present.details["ring"] if present else ""
        names = sorted(self.orders, key=lambda name: name != first)
        groups = [self._group(name, usable, silent) for name in names if wanted in {"auto", name}]
        ring = max(groups, key=lambda group: len(group.nodes) if group else 0)
        return job if job.groups == (ring,) else replace(job, groups=(ring,))

    def circuits(self, job: Job) -> Mapping[str, frozenset[Circuit]]:
        """See `Layout`."""
        (group,) = job.groups
        if group is None:
            return {}
        name = group.details["ring"]
        steps = list(self._steps(name, group.nodes))
        branch = list(self.orders).index(name)
        if len(group.nodes) < LEAST_RING or any(step > 2 for _, _, step in steps):
            raise OrchestrationError(f"job {job.name}: ring {name} does not join {group.nodes}")
        pairs = {}
        for node in group.nodes:
            for lane in range(LANES):
                pairs[f"tx-{node}-lane{lane}"] = 1, 2 + branch
                pairs[f"rx-{node}-lane{lane}"] = 1 + branch, 3
        for before, after, step in steps:
            for lane, (sender, receiver) in enumerate(((before, after), (after, before))):
                pairs[f"{name}-skip-out-{sender}-{lane}"] = 1, 1 + step
                pairs[f"{name}-skip-in-{receiver}-{lane}"] = step, 3
        return {switch: frozenset({Circuit(*pair)}) for switch, pair in pairs.items()}

    def measures(self, job: Job) -> Mapping[str, float]:
        """Return nothing: all places are alike."""
        return {}

    def idle(self, switch: str) -> frozenset[Circuit]:
        """Return the circuit at the first output, or from the first input."""
        return frozenset({Circuit(1, 2 if re.match(r"tx-|.+-skip-out-", switch) else 3)})

    def _group(self, name: str, usable: Collection[str], silent: Collection[str]) -> Group | None:
        """Return the servers that a ring can join, in its order; None where there is no ring."""
        skips = filter(None, map(_SKIP.fullmatch, silent))
        without = {int(match["place"]) for match in skips if match["ring"] == name}
        order = self.orders[name]
        nodes = tuple(n for at, n in enumerate(order) if n in usable and at not in without)
        joined = len(nodes) >= LEAST_RING and all(s <= 2 for *_, s in self._steps(name, nodes))
        return Group(nodes, {"ring": name}) if joined else None

    def _steps(self, name: str, nodes: tuple[str, ...]) -> Iterator[tuple[int, int, int]]:
        """Yield places of neighbours on a ring, and how far the second is behind the first.

        Raises `OrchestrationError` for a ring or a server that there is not.
        """
        try:
            places = [self.orders[name].index(node) for node in nodes]
        except (KeyError, ValueError) as error:
            raise OrchestrationError(f"found ring {name} of {nodes}: {error}") from error
        for before, after in pairwise([*places, *places[:1]]):
            yield before, after, (after - before - 1) % len(self.orders[name]) + 1


def _orders(testbed: Testbed) -> dict[str, tuple[str, ...]]:
    """Return the servers of each ring, in the order of the outputs of their switches."""
    places: defaultdict[str, dict[int, tuple[str, int]]] = defaultdict(dict)
    for fiber in testbed.fibers:
        sender, skip = (_SELECTION.fullmatch(fiber.source.owner), _SKIP.fullmatch(fiber.sink.owner))
        if sender and skip and sender["lane"] == "0":
            places[skip["ring"]][int(skip["place"])] = sender["server"], int(fiber.source.name)
    rings = sorted(places, key=lambda ring: min(port for _, port in places[ring].values()))
    return {ring: tuple(places[ring][place][0] for place in sorted(places[ring])) for ring in rings}
