"""Jobs on the grid of a testbed, for the orchestrator: rows and columns, joined by rails."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
from lightrig.harness.orchestration.layout import Shape
from lightrig.harness.systems.railx.planning.cross_connects import DARK, DIMENSIONS
from lightrig.harness.systems.railx.planning.physical import Dimension, RailFabric, RailxError
from lightrig.harness.systems.railx.planning.rectangles import is_impossible
from lightrig.harness.systems.railx.planning.scheduling import (
    Allocation,
    largest_allocation,
    place_rectangle,
)
from lightrig.harness.systems.railx.planning.topologies import Axis, Kind, line_setting
from lightrig.harness.systems.railx.runtime.structure import GridStructure
from lightrig.testbeds import Circuit, Testbed

Topology: TypeAlias = Literal["auto", "hyperx", "single-link", "torus"]
_KINDS: Mapping[Topology, tuple[Kind, ...]] = {
    "auto": ("all-to-all", "single-link", "ring"),
    "hyperx": ("all-to-all",),
    "single-link": ("single-link",),
    "torus": ("ring",),
}
_SWITCH = re.compile(r"([xy])ocs(\d+)-(\d+)")
_NODE = re.compile(r"node(\d+)-(\d+)")


class GridShape(Shape):
    """Rows and columns of nodes; they need not be neighbours, a circuit switch joins any."""

    columns: Annotated[int, Field(ge=0, le=4096, description="Nodes in a row; 0 with rows 0: all")]
    rows: Annotated[int, Field(ge=0, le=4096, description="Nodes in a column")]
    topology: Annotated[Topology, Field(description="auto: the first that is possible")] = "auto"


class GridLayout:
    """The grid that a testbed cables, or has by its sizes, as `lightrig generate railx` names it.

    Raises `RailxError` for another testbed.
    """

    shape = GridShape

    def __init__(self, testbed: Testbed | GridStructure) -> None:
        if isinstance(testbed, GridStructure):
            self._fabric, self._radix = testbed.fabric, testbed.fabric.radix
            self.nodes: Sequence[str] = [
                f"node{i}-{j}"
                for i in range(self._fabric.columns)
                for j in range(self._fabric.rows)
            ]
            return
        switches = [_SWITCH.fullmatch(name) for name in testbed.optical_switches]
        nodes = [_NODE.fullmatch(name) for name in testbed.servers]
        if None in switches or None in nodes or not switches:
            raise RailxError(f"{testbed.path} has parts that are no switch xocsJ-A and no nodeI-J")
        columns, rows = (1 + max(int(node[axis]) for node in nodes if node) for axis in (1, 2))
        rails = 1 + max(int(switch[3]) for switch in switches if switch)
        self.nodes = tuple(testbed.servers)
        (self._radix,) = {spec.ingress_count for spec in testbed.optical_switches.values()}
        self._fabric = RailFabric(rails, 1, columns, rows, self._radix)

    def groups_of(self, shape: Mapping[str, object]) -> int:
        """See `Layout`; a job is one group."""
        wanted = GridShape.model_validate(shape)
        most = self._fabric.columns, self._fabric.rows
        sides = wanted.columns, wanted.rows
        largest = sides == (0, 0)
        if not largest and (
            0 in sides or sides == (1, 1) or sides[0] > most[0] or sides[1] > most[1]
        ):
            raise OrchestrationError(
                f"found {sides[0]} x {sides[1]} nodes, of {most[0]} x {most[1]}; expected two or "
                "more, or 0 x 0 for as many as there are"
            )
        for dimension, side in zip(DIMENSIONS, sides, strict=True) if not largest else ():
            self._axis(wanted.topology, dimension, side, (0,), ())
        return 1

    def impossible(self, job: Job, nodes: frozenset[str]) -> str | None:
        """See `ProvesImpossible`."""
        wanted, grid = GridShape.model_validate(job.shape), self._grid(nodes)
        if not (wanted.rows and wanted.columns):
            in_line = max(int(grid.sum(axis=0).max()), int(grid.sum(axis=1).max())) > 1
            return None if in_line else "no two of its nodes are in one row or column"
        if is_impossible(grid, wanted.rows, wanted.columns):
            return (
                f"no {wanted.columns} x {wanted.rows} nodes in common columns and rows are among "
                f"the {len(nodes)} that it may have"
            )
        return None

    def cut_off(self, switches: Collection[str]) -> Mapping[str, str]:
        """Return no node: a switch that is silent costs its line one rail."""
        return {}

    def place(
        self,
        job: Job,
        free: frozenset[str],
        lost: Mapping[int, Group],
        silent: Collection[str],
    ) -> Job:
        """See `Layout`; a job of as many nodes as there are takes in what has come back."""
        wanted = GridShape.model_validate(job.shape)
        largest = not wanted.columns
        if not (largest or job.missing):
            return job
        usable = self._grid(free | job.nodes if largest else free)
        before = _allocation(lost[0]) if 0 in lost else None
        if largest:
            found = largest_allocation(usable)
        else:
            found = place_rectangle(usable, wanted.rows, wanted.columns, before)
        present = job.groups[0]
        if found is None or found.size < 2:
            return job if present is None else replace(job, groups=(None,))
        if present and _allocation(present) == found:
            return job
        try:
            x = self._axis(wanted.topology, "x", len(found.columns), found.rows, silent)
            y = self._axis(wanted.topology, "y", len(found.rows), found.columns, silent)
        except OrchestrationError:  # too few rails are left for what the job insists on
            return job if present is None else replace(job, groups=(None,))
        nodes = tuple(f"node{i}-{j}" for j in found.rows for i in found.columns)
        details = {"rows": list(found.rows), "columns": list(found.columns), "x": x, "y": y}
        return replace(job, groups=(Group(nodes, details),))

    def circuits(self, job: Job) -> Mapping[str, frozenset[Circuit]]:
        """See `Layout`."""
        try:
            return {
                name: circuits
                for group in filter(None, job.groups)
                for name, circuits in self._joined(group)
            }
        except (RailxError, LookupError, TypeError, ValueError) as error:
            raise OrchestrationError(f"job {job.name}: {error!r}") from error

    def measures(self, job: Job) -> Mapping[str, float]:
        """Return nothing: all places are alike."""
        return {}

    def idle(self, switch: str) -> frozenset[Circuit]:
        """Return no circuit."""
        return frozenset()

    def _joined(self, group: Group) -> Iterator[tuple[str, frozenset[Circuit]]]:
        """Yield the circuits of a group by switch."""
        allocation, radix = _allocation(group), self._radix
        if group.nodes != tuple(
            f"node{i}-{j}" for j in allocation.rows for i in allocation.columns
        ):
            raise RailxError("its nodes are not those of its rows and columns")
        rows, columns = allocation
        part = RailFabric(self._fabric.rails, 1, len(columns), len(rows), radix)
        sides: tuple[tuple[Dimension, Sequence[int], Sequence[int]], ...] = (
            ("x", rows, columns),
            ("y", columns, rows),
        )
        for dimension, lines, places in sides:
            stated = group.details[dimension]
            if stated is None:
                continue
            axis = Axis(len(places), stated["kind"], tuple(stated["rails"]))
            for rail, following in enumerate(line_setting(part, dimension, [axis]).tolist()):
                pairs = [
                    (2 * places[u] + 1, 2 * places[v] + 2)
                    for u, v in enumerate(following)
                    if v != DARK
                ]
                circuits = frozenset(
                    circuit
                    for plus, minus in pairs
                    for circuit in (Circuit(plus, radix + minus), Circuit(minus, radix + plus))
                )
                for line in lines if circuits else ():
                    yield f"{dimension}ocs{line}-{rail}", circuits

    def _axis(
        self,
        topology: Topology,
        dimension: Dimension,
        size: int,
        lines: Sequence[int],
        silent: Collection[str],
    ) -> dict[str, Any] | None:
        """Return how the nodes of a line are joined, by which rails, and why not otherwise.

        The kind is one that the rails can make whose switches answer in all `lines`; those that do
        not come last, so that they add to it when they are back. None for a single node. Raises
        `OrchestrationError` where no kind is possible.
        """
        if size == 1:
            return None
        dead = [
            rail
            for rail in range(self._fabric.rails)
            if any(f"{dimension}ocs{line}-{rail}" in silent for line in lines)
        ]
        live = [rail for rail in range(self._fabric.rails) if rail not in dead]
        reasons = []
        for kind in _KINDS[topology]:
            try:
                if not live:
                    raise RailxError("no rail answers")
                Axis(size, kind, tuple(live)).patterns()
            except RailxError as error:
                reasons.append(f"no {kind}: {error}")
                continue
            return {"kind": kind, "rails": live + dead, "reason": "; ".join(reasons) or None}
        raise OrchestrationError("; ".join(reasons))

    def _grid(self, nodes: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return which nodes of the grid are among `nodes`, rows x columns."""
        grid = np.zeros((self._fabric.rows, self._fabric.columns), dtype=bool)
        for node in nodes:
            i, j = map(int, node.removeprefix("node").split("-"))
            grid[j, i] = True
        return grid


def _allocation(group: Group) -> Allocation:
    return Allocation(tuple(group.details["rows"]), tuple(group.details["columns"]))
