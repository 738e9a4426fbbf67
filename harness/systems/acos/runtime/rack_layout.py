"""One or two racks with a spare node each, as the orchestrator joins them (§5.1, §5.2).

The controller sets adaptation and resilience for one job on eight of nine nodes of each rack. Where
a node is lost, tasks of its rack move by one node at most, up to the spare, and the others keep
their places. Servers select the topology of each collective (§4.4) among their `choices`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
from lightrig.harness.orchestration.layout import Layout, Shape
from lightrig.harness.orchestration.selection import Choice, Choices
from lightrig.harness.systems.acos.generator import switch_name
from lightrig.harness.systems.acos.planning.optics import Array, Ints, selected
from lightrig.harness.systems.acos.planning.rack import CLUSTERS, Degrees, Plan, Spec, build
from lightrig.harness.systems.acos.planning.rack_plans import configure, supported, topology_errors
from lightrig.harness.systems.acos.planning.rings import BACKUP, Topology, shifted
from lightrig.harness.systems.acos.runtime.hall_structure import HallStructure, layout_refusal
from lightrig.harness.systems.acos.runtime.layout import ServerRingLayout
from lightrig.testbeds import Circuit, Testbed

_SELECTION = re.compile(r"[tr]x-gpu(\d+)-lane\d+")


class RackShape(Shape):
    """A job on all racks; its DP degree follows."""

    tp: Annotated[int, Field(description="4, 8 or 16")] = 8
    pp: Annotated[int | None, Field(description="Stages of the pipeline.")] = None
    ep: Annotated[int | None, Field(description="8 or 16; 0 with two lanes.")] = None
    dimension: Annotated[
        Literal["TP", "DP", "PP", "EP"],
        Field(description="Topology that the servers' own switches lead light to at first."),
    ] = "TP"


@dataclass(frozen=True, slots=True)
class _Place:
    """Node without a task of each rack, and whether the rack's tasks shift left past it."""

    spare: tuple[int, ...]
    lefts: tuple[bool, ...]


class RackLayout:
    """Nodes of one or two racks, as `lightrig generate acos` names the parts of resilient ones.

    Raises `OrchestrationError` for another testbed.
    """

    shape = RackShape

    def __init__(self, testbed: Testbed) -> None:
        self.spec = _spec_of(testbed)
        self._rack = build(self.spec)
        self._switches: list[tuple[str, Array]] = []
        for array in self._rack.fabric.arrays.values():
            places = np.ndindex(array.shape)
            self._switches += [(switch_name(array, place), array) for place in places]
        self.nodes = tuple(f"node{n}" for n in range(self.spec.racks * self.spec.nodes))
        names = {name for name, _ in self._switches}
        if names != testbed.optical_switches.keys() or {*self.nodes} != testbed.servers.keys():
            raise OrchestrationError(
                f"{testbed.path} has other parts than `lightrig generate acos --gpus "
                f"{self.spec.gpus}` writes"
            )
        self._nics = {
            gpu: (self.nodes[rack * self.spec.nodes + node], f"gpu{at}")
            for rack, node in product(range(self.spec.racks), range(self.spec.nodes))
            for at, gpu in enumerate(self.spec.at_node(rack, node))
        }
        self._idle = {name: _in_state(array, 0) for name, array in self._switches}
        self._number = {name: number for number, (name, _) in enumerate(self._switches)}
        self._judged = lru_cache(maxsize=1024)(self._judge)
        self._circuits = lru_cache(maxsize=64)(self._circuits_of)

    def groups_of(self, shape: Mapping[str, object]) -> int:
        """See `Layout`."""
        self._degrees(shape)
        return 1

    def impossible(self, job: Job, nodes: frozenset[str]) -> str | None:
        """See `ProvesImpossible`."""
        of_rack = self.spec.nodes
        for first in range(0, len(self.nodes), of_rack):
            rack = self.nodes[first : first + of_rack]
            if (allowed := len(nodes.intersection(rack))) < of_rack - 1:
                asked = f"{of_rack - 1} nodes of {rack[0]} to {rack[-1]}"
                return f"it takes {asked}, and may have {allowed}"
        return None

    def cut_off(self, switches: Collection[str]) -> Mapping[str, str]:
        """Return the nodes at whose GPUs' ports `switches` are."""
        found = {name: _SELECTION.fullmatch(name) for name in sorted(switches)}
        return {self._nics[int(match[1])][0]: name for name, match in found.items() if match}

    def place(
        self,
        job: Job,
        free: frozenset[str],
        lost: Mapping[int, Group],
        silent: Collection[str],
    ) -> Job:
        """See `Layout`; a spare stays as it is for as long as all other nodes of its rack work.

        Where failed nodes of two racks leave a pipeline link between unequal ranks in all
        directions of shifts (§4.3), the job is placed so, and says it is `shuffled`.
        """
        usable, present = free | job.nodes, job.groups[0] or lost.get(0)
        degrees = self._degrees(job.shape)
        before = _place_of(present) if present else None
        avoided = [self._number[name] for name in silent if name in self._number]
        shuffled: _Place | None = None
        found: _Place | None = None
        for place in self._places(usable, before):
            errors, passed = self._judged(degrees, place)
            if passed[avoided].any():
                continue
            if not errors:
                found = place
                break
            shuffled = shuffled or place
        group = self._group(degrees, found or shuffled)
        return job if job.groups == (group,) else replace(job, groups=(group,))

    def circuits(self, job: Job) -> Mapping[str, frozenset[Circuit]]:
        """See `Layout`: of the switches that light of a node with a task passes in any topology."""
        (group,) = job.groups
        if group is None:
            return {}
        return self._circuits(job.shape["dimension"], *self._stated(job, group))

    def choices(self, job: Job) -> Mapping[str, Choices]:
        """Return, by node and by GPU, the circuits of the GPU's switches in each topology.

        The links between pipelines are waited for by nobody: the GPUs there select at other times.
        """
        (group,) = job.groups
        if group is None:
            return {}
        plan, fabric = self._plan(*self._stated(job, group)), self._rack.fabric
        lanes = range(fabric.lanes)
        senders = np.repeat(np.flatnonzero(_with_task(plan)), fabric.lanes)
        found: dict[str, Choices] = {node: {} for node in group.nodes}
        for topology, choice in plan.choice.items():
            arrives = fabric.trace(selected(fabric, plan.states, choice)).arrives
            receivers = arrives[_with_task(plan)].reshape(-1)
            joined = receivers >= 0
            if topology == "PP":
                for ranks in (plan.ranks["TP"], plan.ranks["DP"]):
                    joined &= ranks[senders] == ranks[receivers // fabric.lanes]
            lit = np.zeros(arrives.size, dtype=bool)
            lit[receivers[joined]] = True
            for gpu in np.flatnonzero(_with_task(plan)):
                node, nic = self._nics[int(gpu)]
                branch = choice[gpu].tolist()
                ways = len(self._rack.selection.topologies)
                circuits = {
                    f"tx-gpu{gpu}-lane{lane}": [(1, branch[lane] + 2)] for lane in lanes
                } | {f"rx-gpu{gpu}-lane{lane}": [(branch[lane] + 1, ways + 1)] for lane in lanes}
                ports = [f"{node}.{nic}.p{n}" for n in lanes if lit[gpu * fabric.lanes + n]]
                of = found[node].setdefault(nic, {})
                of[topology] = Choice(circuits=circuits, ports=ports)
        return found

    def measures(self, job: Job) -> Mapping[str, float]:
        """Return whether a pipeline link joins unequal ranks, where that can be."""
        (group,) = job.groups
        if self.spec.racks == 1 or group is None:
            return {}
        return {"shuffled": float(bool(group.details["shuffled"]))}

    def idle(self, switch: str) -> frozenset[Circuit]:
        """Return the circuits of the first state."""
        return self._idle[switch]

    def _degrees(self, shape: Mapping[str, object]) -> Degrees:
        wanted = RackShape.model_validate(shape)
        possible = supported(self.spec)
        pp = wanted.pp if wanted.pp is not None else min(2, self.spec.stages)
        ep = wanted.ep if wanted.ep is not None else min(8, max(each.ep for each in possible))
        topologies = self._rack.selection.topologies
        for degrees in possible:
            if (degrees.tp, degrees.pp, degrees.ep) == (wanted.tp, pp, ep):
                if wanted.dimension not in topologies:
                    listed = ", ".join(topologies)
                    raise OrchestrationError(
                        f"found dimension {wanted.dimension}, expected one of {listed}"
                    )
                return degrees
        listed = "; ".join(map(str, possible))
        raise OrchestrationError(f"found {wanted}, expected one of {listed}")

    def _places(self, usable: Collection[str], before: _Place | None) -> Iterator[_Place]:
        """Yield the ways to leave out what is unusable: first those that move fewer tasks."""
        size, racks = self.spec.nodes, range(self.spec.racks)
        printed = tuple(rack == 1 for rack in racks)
        first = before or _Place((BACKUP,) * len(racks), printed)
        options = []
        for rack in racks:
            lost = {n for n in range(size) if self.nodes[rack * size + n] not in usable}
            found = [n for n in reversed(range(size)) if lost <= {n}]
            found.sort(key=first.spare[rack].__ne__)
            options.append(found)
        spares = sorted(
            product(*options),
            key=lambda spare: sum(a != b for a, b in zip(spare, first.spare, strict=True)),
        )
        directions = (
            list(product((False, True), repeat=len(racks))) if len(racks) > 1 else [printed]
        )
        directions.sort(key=lambda lefts: (lefts != first.lefts, lefts != printed, lefts))
        for spare in spares:
            yield from (_Place(spare, lefts) for lefts in directions)

    def _group(self, degrees: Degrees, place: _Place | None) -> Group | None:
        if place is None:
            return None
        nodes = self._nodes_of(degrees, place)
        if self.spec.racks == 1:
            return Group(nodes, {"spare": place.spare[0]})
        errors, _ = self._judged(degrees, place)
        details = {"spare": [*place.spare], "lefts": [*place.lefts], "shuffled": bool(errors)}
        return Group(nodes, details)

    def _nodes_of(self, degrees: Degrees, place: _Place) -> tuple[str, ...]:
        return tuple(
            self.nodes[rack * self.spec.nodes + node]
            for rack, (spare, left) in enumerate(zip(place.spare, place.lefts, strict=True))
            for node in shifted(degrees.tp, spare, left=left)
        )

    def _stated(self, job: Job, group: Group) -> tuple[Degrees, _Place]:
        """Return degrees and place of a job; raises `OrchestrationError` for another one's."""
        degrees = self._degrees(job.shape)
        try:
            place = _place_of(group)
            known = len(place.spare) == self.spec.racks and {*place.spare} <= {*range(BACKUP + 1)}
            if known and group == self._group(degrees, place):
                return degrees, place
        except (KeyError, TypeError, ValueError):
            pass
        spare = group.details.get("spare")
        raise OrchestrationError(f"job {job.name}: spare {spare} does not leave {group.nodes}")

    def _plan(self, degrees: Degrees, place: _Place) -> Plan:
        return configure(self._rack, degrees, place.spare, place.lefts)

    def _judge(self, degrees: Degrees, place: _Place) -> tuple[bool, Ints]:
        """Return whether ranks are shuffled, and which switches light passes in any topology."""
        plan, fabric = self._plan(degrees, place), self._rack.fabric
        fibers = fabric.fibers[_with_task(plan)].reshape(-1)
        passed = [
            fabric.passed(selected(fabric, plan.states, choice), fibers)
            for choice in plan.choice.values()
        ]
        return bool(topology_errors(self._rack, plan)), np.logical_or.reduce(passed)

    def _circuits_of(
        self, dimension: Topology, degrees: Degrees, place: _Place
    ) -> Mapping[str, frozenset[Circuit]]:
        plan, fabric = self._plan(degrees, place), self._rack.fabric
        states = selected(fabric, plan.states, plan.choice[dimension])
        _, passed = self._judged(degrees, place)
        return {
            self._switches[number][0]: _in_state(self._switches[number][1], int(states[number]))
            for number in np.flatnonzero(passed)
        }


def _with_task(plan: Plan) -> Ints:
    found: Ints = plan.ranks["TP"] >= 0
    return found


def _place_of(group: Group) -> _Place:
    """Return the place that a group states; one of a single rack states its spare alone."""
    spare = group.details["spare"]
    if isinstance(spare, int) and not isinstance(spare, bool):
        return _Place((spare,), (False,))
    return _Place(tuple(spare), tuple(map(bool, group.details["lefts"])))


def _in_state(array: Array, state: int) -> frozenset[Circuit]:
    ins, outs = array.inputs.shape[-1], array.outputs.shape[-1]
    if array.kind == "2x2":
        pairs = ((1, 4), (2, 3)) if state else ((1, 3), (2, 4))
        return frozenset(Circuit(*pair) for pair in pairs)
    return frozenset({Circuit(1, state + 2) if outs > 1 else Circuit(state + 1, ins + 1)})


def _spec_of(testbed: Testbed) -> Spec:
    """Return the resilient cluster with as many nodes and NIC ports as a testbed."""
    nodes, ports = len(testbed.servers), len(testbed.nic_ports)
    sizes_of = {
        spec
        for each in CLUSTERS.values()
        if each.resilient
        for spec in (each, replace(each, lanes=2))
    }
    known: Sequence[Spec] = sorted(sizes_of, key=lambda spec: (spec.gpus, spec.lanes))
    for spec in known:
        if (spec.racks * spec.nodes, spec.gpus * spec.lanes) == (nodes, ports):
            return spec
    sizes = ", ".join(f"{spec.gpus} of {spec.lanes}" for spec in known)
    raise OrchestrationError(
        f"{testbed.path} has {nodes} nodes with {ports} NIC ports; resilient clusters have GPUs "
        f"with lanes: {sizes}"
    )


def layout_of(testbed: Testbed | HallStructure) -> Layout:
    """Return the layout of a generated testbed; raises `OrchestrationError` for another one."""
    if not isinstance(testbed, Testbed):
        raise OrchestrationError(layout_refusal(testbed.path))
    if any(name.startswith("tp-backup-out-") for name in testbed.optical_switches):
        return RackLayout(testbed)
    return ServerRingLayout(testbed)
