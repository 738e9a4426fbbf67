"""A rack of 72 GPUs with a spare node, as the orchestrator joins it (§5.2).

The controller sets adaptation and resilience for one job on eight of nine nodes. Where a node is
lost, tasks move by one node at most, up to the spare, and the others keep their places.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
from lightrig.harness.orchestration.layout import Layout, Shape
from lightrig.harness.systems.acos.generator import switch_name
from lightrig.harness.systems.acos.planning.optics import Array, selected
from lightrig.harness.systems.acos.planning.rack import CLUSTERS, Degrees, build
from lightrig.harness.systems.acos.planning.rack_plans import configure, supported
from lightrig.harness.systems.acos.planning.rings import BACKUP, Topology, shifted
from lightrig.harness.systems.acos.runtime.layout import ServerRingLayout
from lightrig.testbeds import Circuit, Testbed

_SPEC = CLUSTERS["72"]
_SELECTION = re.compile(r"[tr]x-gpu(\d+)-lane\d+")


class RackShape(Shape):
    """A job on a rack; its DP degree follows."""

    tp: Annotated[int, Field(description="4, 8 or 16")] = 8
    pp: Annotated[int, Field(description="Stages of the pipeline.")] = 2
    ep: Annotated[int, Field(description="8 or 16")] = 8
    dimension: Annotated[
        Literal["TP", "DP", "PP", "EP"],
        Field(description="Topology that the servers' own switches lead light to."),
    ] = "TP"


class RackLayout:
    """Nine nodes of eight GPUs, as `lightrig generate acos --gpus 72` names their parts.

    Raises `OrchestrationError` for another testbed.
    """

    shape = RackShape

    def __init__(self, testbed: Testbed) -> None:
        self._rack = build(_SPEC)
        self._switches: list[tuple[str, Array]] = []
        for array in self._rack.fabric.arrays.values():
            places = np.ndindex(array.shape)
            self._switches += [(switch_name(array, place), array) for place in places]
        self.nodes = tuple(f"node{node}" for node in range(_SPEC.nodes))
        names = {name for name, _ in self._switches}
        if names != testbed.optical_switches.keys() or {*self.nodes} != testbed.servers.keys():
            raise OrchestrationError(
                f"{testbed.path} has other parts than `lightrig generate acos --gpus 72` writes"
            )
        self._idle = {name: _in_state(array, 0) for name, array in self._switches}
        self._circuits = lru_cache(maxsize=64)(self._circuits_of)

    def groups_of(self, shape: Mapping[str, object]) -> int:
        """See `Layout`."""
        self._degrees(shape)
        return 1

    def impossible(self, job: Job, nodes: frozenset[str]) -> str | None:
        """See `ProvesImpossible`."""
        least = _SPEC.nodes - 1
        if len(nodes) >= least:
            return None
        return f"it takes {least} nodes of {_SPEC.nodes}, and may have {len(nodes)}"

    def cut_off(self, switches: Collection[str]) -> Mapping[str, str]:
        """Return the nodes at whose GPUs' ports `switches` are."""
        found = {name: _SELECTION.fullmatch(name) for name in sorted(switches)}
        return {
            self.nodes[int(match[1]) % _SPEC.nodes]: name for name, match in found.items() if match
        }

    def place(
        self,
        job: Job,
        free: frozenset[str],
        lost: Mapping[int, Group],
        silent: Collection[str],
    ) -> Job:
        """See `Layout`; the spare stays as it is for as long as all other nodes work."""
        usable, present = free | job.nodes, job.groups[0] or lost.get(0)
        unusable = [number for number, node in enumerate(self.nodes) if node not in usable]
        first = int(present.details["spare"]) if present else BACKUP
        spares = sorted(range(_SPEC.nodes), key=lambda spare: (spare != first, -spare))
        degrees, dimension = self._degrees(job.shape), job.shape["dimension"]
        group = None
        for spare in spares:
            if {*unusable} <= {spare} and self._circuits(
                dimension, degrees, spare
            ).keys().isdisjoint(silent):
                places = shifted(degrees.tp, spare)
                group = Group(tuple(self.nodes[node] for node in places), {"spare": spare})
                break
        return job if job.groups == (group,) else replace(job, groups=(group,))

    def circuits(self, job: Job) -> Mapping[str, frozenset[Circuit]]:
        """See `Layout`: of the switches that light of a node with a task passes."""
        (group,) = job.groups
        if group is None:
            return {}
        degrees, spare = self._degrees(job.shape), group.details["spare"]
        known = isinstance(spare, int) and spare in range(_SPEC.nodes)
        if not known or group.nodes != tuple(self.nodes[n] for n in shifted(degrees.tp, spare)):
            raise OrchestrationError(f"job {job.name}: spare {spare} does not leave {group.nodes}")
        return self._circuits(job.shape["dimension"], degrees, spare)

    def measures(self, job: Job) -> Mapping[str, float]:
        """Return nothing: all places are alike."""
        return {}

    def idle(self, switch: str) -> frozenset[Circuit]:
        """Return the circuits of the first state."""
        return self._idle[switch]

    def _degrees(self, shape: Mapping[str, object]) -> Degrees:
        wanted = RackShape.model_validate(shape)
        for degrees in supported(_SPEC):
            if (degrees.tp, degrees.pp, degrees.ep) == (wanted.tp, wanted.pp, wanted.ep):
                return degrees
        listed = "; ".join(map(str, supported(_SPEC)))
        raise OrchestrationError(f"found {wanted}, expected one of {listed}")

    def _circuits_of(
        self, dimension: Topology, degrees: Degrees, spare: int
    ) -> Mapping[str, frozenset[Circuit]]:
        fabric, plan = self._rack.fabric, configure(self._rack, degrees, [spare])
        states = selected(fabric, plan.states, plan.choice[dimension])
        with_task = plan.ranks["TP"] >= 0
        return {
            self._switches[number][0]: _in_state(self._switches[number][1], int(states[number]))
            for number, fibers in fabric.crossed(states).items()
            if any(with_task[fiber // fabric.lanes] for fiber in fibers)
        }


def _in_state(array: Array, state: int) -> frozenset[Circuit]:
    ins, outs = array.inputs.shape[-1], array.outputs.shape[-1]
    if array.kind == "2x2":
        pairs = ((1, 4), (2, 3)) if state else ((1, 3), (2, 4))
        return frozenset(Circuit(*pair) for pair in pairs)
    return frozenset({Circuit(1, state + 2) if outs > 1 else Circuit(state + 1, ins + 1)})


def layout_of(testbed: Testbed) -> Layout:
    """Return the layout of a generated testbed; raises `OrchestrationError` for another one."""
    if any(name.startswith("tp-backup-out-") for name in testbed.optical_switches):
        return RackLayout(testbed)
    return ServerRingLayout(testbed)
