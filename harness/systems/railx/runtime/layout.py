"""Jobs on the grid of a testbed, for the orchestrator: rows and columns, joined by rails."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
from lightrig.harness.systems.railx.planning.cross_connects import DARK, DIMENSIONS, Successors
from lightrig.harness.systems.railx.planning.packing import rectangles, sides_of
from lightrig.harness.systems.railx.planning.parallelism import (
    Demand,
    Division,
    Sides,
    Units,
    divide,
    length,
    ranks,
    sides,
)
from lightrig.harness.systems.railx.planning.physical import Dimension, RailFabric, RailxError
from lightrig.harness.systems.railx.planning.rectangles import is_impossible
from lightrig.harness.systems.railx.planning.scheduling import Allocation, largest_allocation
from lightrig.harness.systems.railx.planning.topologies import Axis, global_rails, line_setting
from lightrig.harness.systems.railx.runtime.shapes import KINDS, GridShape, Topology
from lightrig.harness.systems.railx.runtime.structure import GridStructure, rates
from lightrig.testbeds import Circuit, Testbed

_SWITCH = re.compile(r"([xy])ocs(\d+)-(\d+)")
_NODE = re.compile(r"node(\d+)-(\d+)")
_MOST_SIDES, _MOST_TRIED = 64, 256
"""Sides, and rectangles of each, that are tried where the largest one cannot be joined."""

_DRAGONFLY: Literal["dragonfly"] = "dragonfly"


class _Option(NamedTuple):
    """Sides that a job can have, and which logical dimensions share each, where it states any."""

    columns: int
    rows: int
    logical: Sides | None = None


class GridLayout:
    """The grid that a testbed cables, or has by its sizes, as `lightrig generate railx` names it.

    Raises `RailxError` for another testbed.
    """

    shape = GridShape

    def __init__(self, testbed: Testbed | GridStructure) -> None:
        self._placed: dict[str, tuple[Job, frozenset[str], frozenset[str], Job]] = {}
        if isinstance(testbed, GridStructure):
            self._fabric, self._radix = testbed.fabric, testbed.fabric.radix
            self._chips: int | None = testbed.fabric.mesh**2
            self._rates = testbed.rates
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
        counts = {spec.gpus.count for spec in testbed.servers.values()} - {0}
        self._chips = counts.pop() if len(counts) == 1 else None
        self._rates = rates([testbed])
        mesh = math.isqrt(self._chips or 1)
        if mesh**2 != (self._chips or 1) or rails % mesh:
            mesh = 1  # its rails belong to no known chip rows
        self._fabric = RailFabric(mesh, rails // mesh, columns, rows, self._radix)

    def groups_of(self, shape: Mapping[str, object]) -> int:
        """See `Layout`; a job is one group."""
        self._options(GridShape.model_validate(shape))
        return 1

    def impossible(self, job: Job, nodes: frozenset[str]) -> str | None:
        """See `ProvesImpossible`."""
        wanted, grid = GridShape.model_validate(job.shape), self._grid(nodes)
        options = [option for each in self._options(wanted) for option in each]
        if any((option.columns, option.rows) == (0, 0) for option in options):
            in_line = max(int(grid.sum(axis=0).max()), int(grid.sum(axis=1).max())) > 1
            return None if in_line else "no two of its nodes are in one row or column"
        found = sorted({(option.columns, option.rows) for option in options})
        if all(is_impossible(grid, rows, columns) for columns, rows in found):
            listed = " or ".join(f"{columns} x {rows}" for columns, rows in found)
            return (
                f"no {listed} nodes in common columns and rows are among the {len(nodes)} that it "
                "may have"
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
        """See `Layout`; a job of as many nodes as there are takes in what has come back.

        One whose phase or volumes have changed keeps its nodes, and gets other circuits.
        """
        wanted, present = GridShape.model_validate(job.shape), job.groups[0]
        if wanted.columns == 0:
            return self._largest(job, wanted, free, silent)
        if present is not None:
            return self._divided_anew(job, wanted, present, silent)
        dead = frozenset(silent)
        known = self._placed.get(job.name)
        if known is None or known[:3] != (job, free, dead):
            found = self._found(wanted, free, lost.get(0), dead)
            after = job if found is None else replace(job, groups=(found,))
            known = self._placed[job.name] = job, free, dead, after
        return known[3]

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
        """Return the time in ms of a job's exchanges by equation 11, where it states volumes."""
        wanted, group = GridShape.model_validate(job.shape), job.groups[0]
        if group is None or wanted.parallelism is None or len(self._rates) != 1:
            return {}
        demands = self._demands(wanted)
        times = (
            demands[share["name"]].time_ns(share["ports"], self._bps)
            for dimension in DIMENSIONS
            for share in group.details[dimension]
            if share["rails"]
        )
        return {"exchange_ms": sum(times) / 1e6}

    def idle(self, switch: str) -> frozenset[Circuit]:
        """Return no circuit."""
        return frozenset()

    # ------------------------------------------------------------------------ placement

    def _largest(
        self, job: Job, wanted: GridShape, free: frozenset[str], silent: Collection[str]
    ) -> Job:
        """Return a job with as many nodes as one rectangle can have."""
        found, present = largest_allocation(self._grid(free | job.nodes)), job.groups[0]
        waits = job if present is None else replace(job, groups=(None,))
        if found is None or found.size < 2:
            return waits
        if present and _allocation(present) == found:
            return job
        for smaller in itertools.chain([found], self._smaller(free | job.nodes, found)):
            option = _Option(len(smaller.columns), len(smaller.rows))
            try:
                return replace(job, groups=(self._group(wanted, option, smaller, silent),))
            except OrchestrationError:  # too few rails are left for what the job insists on
                continue
        return waits

    def _smaller(self, usable: frozenset[str], than: Allocation) -> Iterator[Allocation]:
        """Yield rectangles of at most as many nodes, the largest first; few on a large grid."""
        pairs = itertools.product(
            range(1, self._fabric.rows + 1), range(1, self._fabric.columns + 1)
        )
        fit = [(rows, columns) for rows, columns in pairs if 2 <= rows * columns <= than.size]
        for side in sorted(fit, key=lambda side: -side[0] * side[1])[:_MOST_SIDES]:
            yield from itertools.islice(rectangles(self._grid(usable), [side]), _MOST_TRIED)

    def _found(
        self,
        wanted: GridShape,
        free: frozenset[str],
        lost: Group | None,
        silent: frozenset[str],
    ) -> Group | None:
        """Return the nodes of a job that has none; None where no rectangle can be joined."""
        usable = self._grid(free)
        before = None if lost is None else _allocation(lost)
        for options in self._options(wanted, lost):
            by_sides = {(option.rows, option.columns): option for option in options}
            for found in rectangles(usable, list(by_sides), before):
                option = by_sides[len(found.rows), len(found.columns)]
                try:
                    return self._group(wanted, option, found, silent)
                except OrchestrationError:  # its lines have too few rails whose switches answer
                    continue
        return None

    def _divided_anew(
        self, job: Job, wanted: GridShape, present: Group, silent: Collection[str]
    ) -> Job:
        """Return a job whose rails are divided as it wants by now; as it was where that fails."""
        if wanted.parallelism is None or present.details["basis"] == wanted.basis():
            return job
        demands = self._demands(wanted)
        logical: Sides = {
            dimension: tuple(demands[share["name"]] for share in present.details[dimension])
            for dimension in DIMENSIONS
        }
        allocation = _allocation(present)
        option = _Option(len(allocation.columns), len(allocation.rows), logical)
        try:
            return replace(job, groups=(self._group(wanted, option, allocation, silent),))
        except OrchestrationError:
            return job

    def _options(self, wanted: GridShape, lost: Group | None = None) -> list[list[_Option]]:
        """Return the sides that a job can have, in order; among those of one list is a choice.

        lost: what the job had; its logical dimensions come first. Raises `OrchestrationError`
        where the fabric could hold none if it were empty.
        """
        most = self._fabric.columns, self._fabric.rows
        if wanted.parallelism is not None:
            return self._options_of_parallelism(wanted, lost)
        if wanted.nodes is not None:
            found = [
                _Option(columns, rows) for rows, columns in sides_of(wanted.nodes, most[1], most[0])
            ]
            reasons = []
            options = []
            for option in found:
                try:
                    self._details(wanted, option, (0,), (0,), ())
                    options.append(option)
                except OrchestrationError as error:
                    reasons.append(f"{option.columns} x {option.rows}: {error}")
            if not options:
                near = [n for n in range(2, most[0] * most[1] + 1) if sides_of(n, most[1], most[0])]
                near = sorted(near, key=lambda n: abs(n - (wanted.nodes or 0)))[:4]
                raise OrchestrationError(
                    "; ".join(reasons)
                    or f"found {wanted.nodes} nodes, which are no rectangle on {most[0]} x "
                    f"{most[1]}; expected a number such as {', '.join(map(str, sorted(near)))}"
                )
            return [options]
        columns, rows = wanted.columns or 0, wanted.rows or 0
        largest = (columns, rows) == (0, 0)
        least = 2 if wanted.topology == _DRAGONFLY else 1
        if not largest and (
            min(columns, rows) < least
            or (columns, rows) == (1, 1)
            or columns > most[0]
            or rows > most[1]
        ):
            expected = "two or more" if least == 1 else "two groups or more, of two or more"
            raise OrchestrationError(
                f"found {columns} x {rows} nodes, of {most[0]} x {most[1]}; expected {expected}, "
                "or 0 x 0 for as many as there are"
            )
        option = _Option(columns, rows)
        if not largest:
            self._details(wanted, option, range(rows), range(columns), ())
        return [[option]]

    def _options_of_parallelism(self, wanted: GridShape, lost: Group | None) -> list[list[_Option]]:
        """Return an option for each pairing that fits, by the time of equation 11."""
        demands = self._demands(wanted)
        timed, reasons = [], []
        for logical in sides(demands):
            columns, rows = (length(logical[dimension]) for dimension in DIMENSIONS)
            names = " beside ".join(
                " and ".join(demand.name for demand in logical[d]) or "none" for d in DIMENSIONS
            )
            if columns > self._fabric.columns or rows > self._fabric.rows or columns * rows < 2:
                reasons.append(f"{names}: {columns} x {rows} nodes")
                continue
            try:
                time_ns = sum(
                    self._divide(wanted, logical[d], d, (), ()).time_ns for d in DIMENSIONS
                )
            except RailxError as error:
                reasons.append(f"{names}: {error}")
                continue
            timed.append((time_ns, _Option(columns, rows, logical)))
        if not timed:
            raise OrchestrationError(
                f"no pairing fits {self._fabric.columns} x {self._fabric.rows} nodes with "
                f"{self._fabric.rails} rails: {'; '.join(reasons)}"
            )
        options = [option for _, option in sorted(timed, key=lambda each: each[0])]
        if lost is not None:
            had = {d: tuple(share["name"] for share in lost.details[d]) for d in DIMENSIONS}
            options.sort(key=lambda option: option.logical is None or _names(option.logical) != had)
        return [[option] for option in options]

    def _group(
        self, wanted: GridShape, option: _Option, allocation: Allocation, silent: Collection[str]
    ) -> Group:
        rows, columns = allocation
        found = self._details(wanted, option, rows, columns, silent)
        details = {"rows": list(rows), "columns": list(columns), **found}
        return Group(_nodes(details), details)

    # ------------------------------------------------------------------------ how lines are joined

    def _details(
        self,
        wanted: GridShape,
        option: _Option,
        rows: Sequence[int],
        columns: Sequence[int],
        silent: Collection[str],
    ) -> dict[str, Any]:
        """Return how the lines of a job are joined; raises `OrchestrationError`."""
        if option.logical is not None:
            try:
                found = {
                    d: self._divide(wanted, option.logical[d], d, lines, silent).shares
                    for d, lines in zip(DIMENSIONS, (rows, columns), strict=True)
                }
            except RailxError as error:
                raise OrchestrationError(str(error)) from error
            return {
                "basis": wanted.basis(),
                **{
                    d: [
                        {
                            "name": share.name,
                            "size": share.axis.size,
                            "kind": share.axis.kind,
                            "rails": list(share.axis.rails),
                            "ports": share.ports,
                            "reason": share.reason,
                        }
                        for share in shares
                    ]
                    for d, shares in found.items()
                },
            }
        if wanted.topology == _DRAGONFLY:
            x = self._global(option, rows, silent)
        else:
            x = self._axis(wanted.topology, "x", option.columns, rows, silent)
        return {"x": x, "y": self._axis(wanted.topology, "y", option.rows, columns, silent)}

    def _demands(self, wanted: GridShape) -> dict[str, Demand]:
        return wanted.demands(self._chips, has_rates=len(self._rates) == 1)

    @property
    def _bps(self) -> float:
        """The rate of all ports; where they have several, times are only compared."""
        return float(next(iter(self._rates))) if len(self._rates) == 1 else 1.0

    def _divide(
        self,
        wanted: GridShape,
        demands: Sequence[Demand],
        dimension: Dimension,
        lines: Sequence[int],
        silent: Collection[str],
    ) -> Division:
        if not demands:
            return Division((), 0.0)
        live = self._live(dimension, lines, silent)[0]
        ports = self._fabric.ports
        units: Units = [(rail,) for rail in live]
        if wanted.even:
            chip_rows = [
                [rail for rail in live if rail // ports == row] for row in range(self._fabric.mesh)
            ]
            units = [*zip(*chip_rows, strict=False)]
        return divide(demands, units, self._bps, wanted.phase)

    def _live(
        self, dimension: Dimension, lines: Sequence[int], silent: Collection[str]
    ) -> tuple[list[int], list[int]]:
        """Return the rails whose switches answer in all `lines`, and the others."""
        dead = [
            rail
            for rail in range(self._fabric.rails)
            if any(f"{dimension}ocs{line}-{rail}" in silent for line in lines)
        ]
        return [rail for rail in range(self._fabric.rails) if rail not in dead], dead

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
        live, dead = self._live(dimension, lines, silent)
        reasons = []
        for kind in KINDS[topology]:
            try:
                if not live:
                    raise RailxError("no rail answers")
                Axis(size, kind, tuple(live)).patterns()
            except RailxError as error:
                reasons.append(f"no {kind}: {error}")
                continue
            return {"kind": kind, "rails": live + dead, "reason": "; ".join(reasons) or None}
        raise OrchestrationError("; ".join(reasons))

    def _global(
        self, option: _Option, rows: Sequence[int], silent: Collection[str]
    ) -> dict[str, Any] | None:
        """Return how the groups of a Dragonfly, which are columns, are joined by their X-rails."""
        live, _ = self._live("x", rows, silent)
        reasons = []
        for kind in KINDS[_DRAGONFLY]:
            try:
                global_rails(option.columns, option.rows, len(live), kind)
            except RailxError as error:
                reasons.append(f"no {kind} of groups: {error}")
                continue
            reason = "; ".join(reasons) or None
            return {"kind": _DRAGONFLY, "links": kind, "rails": live, "reason": reason}
        raise OrchestrationError("; ".join(reasons))

    def _joined(self, group: Group) -> Iterator[tuple[str, frozenset[Circuit]]]:
        """Yield the circuits of a group by switch."""
        (rows, columns), radix = _allocation(group), self._radix
        if group.nodes != _nodes(group.details):
            raise RailxError("its nodes are not those of its rows and columns")
        both: tuple[tuple[Dimension, Sequence[int], Sequence[int]], ...] = (
            ("x", rows, columns),
            ("y", columns, rows),
        )
        for dimension, lines, places in both:
            for at, setting in self._settings(group.details[dimension], dimension, lines, places):
                for rail, following in enumerate(setting.tolist()):
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
                    for line in at if circuits else ():
                        yield f"{dimension}ocs{line}-{rail}", circuits

    def _settings(
        self, stated: Any, dimension: Dimension, lines: Sequence[int], places: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Successors]]:
        """Yield lines that are joined alike, with the successors on their rails."""
        if not stated:
            return
        fabric, size = self._fabric, len(places)
        if not isinstance(stated, list) and stated["kind"] == _DRAGONFLY:
            used = list(map(int, stated["rails"]))
            joined = global_rails(size, len(lines), len(used), stated["links"])
            for line, rails in zip(lines, joined, strict=True):
                setting = np.full((fabric.rails, size), DARK, dtype=np.int16)
                setting[used] = rails
                yield (line,), setting
            return
        axes = [
            Axis(int(each.get("size", size)), each["kind"], tuple(each["rails"]))
            for each in (stated if isinstance(stated, list) else [stated])
        ]
        part = RailFabric(
            fabric.rails,
            1,
            size if dimension == "x" else 1,
            size if dimension == "y" else 1,
            self._radix,
        )
        yield lines, line_setting(part, dimension, axes)

    def _grid(self, nodes: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return which nodes of the grid are among `nodes`, rows x columns."""
        grid = np.zeros((self._fabric.rows, self._fabric.columns), dtype=bool)
        for node in nodes:
            i, j = map(int, node.removeprefix("node").split("-"))
            grid[j, i] = True
        return grid


def _allocation(group: Group) -> Allocation:
    return Allocation(tuple(group.details["rows"]), tuple(group.details["columns"]))


def _names(logical: Sides) -> dict[Dimension, tuple[str, ...]]:
    return {dimension: tuple(each.name for each in logical[dimension]) for dimension in DIMENSIONS}


def _nodes(details: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the nodes in the order of ranks: row by row, or as parallelism numbers them."""
    rows, columns = details["rows"], details["columns"]
    if not isinstance(details["x"], list):
        return tuple(f"node{i}-{j}" for j in rows for i in columns)
    x, y = ([(share["name"], share["size"]) for share in details[d]] for d in DIMENSIONS)
    if (math.prod(n for _, n in x), math.prod(n for _, n in y)) != (len(columns), len(rows)):
        raise RailxError("its logical dimensions are not as large as its rows and columns")
    return tuple(f"node{columns[place]}-{rows[line]}" for place, line in ranks(x, y))
