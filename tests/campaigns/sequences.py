"""Random sequences of events for the orchestrators: each converges, and touches nothing else.

`SEQUENCES` times (default 500) for each of `SEQUENCES_SYSTEMS`, from seed `SEQUENCES_FIRST` on,
ten steps: a job is submitted or withdrawn, a node or a switch fails, one returns, or the process is
killed before its k-th circuit is changed and started again. Switches are in memory, time passes by
steps of the loop alone. After each step the state is judged by the light: links are followed along
fibers through the circuits that switches hold. Circuits of jobs that did not change must not be
among the commands.
"""

import itertools
import json
import os
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Sequence as Places
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.system_registry import installed_systems
from lightrig.harness.systems.acos.generator import render_rings
from lightrig.harness.systems.infinitehbd.generator import render as render_row
from lightrig.harness.systems.railx.generator import render as render_grid
from lightrig.testbeds import Circuit, Testbed, load
from tests.campaigns.rails_case import Rails
from tests.campaigns.records import journals
from tests.campaigns.switchroom import Killed, Switchroom, beams, circuits_with_light, joined

STEPS = 10
ROUNDS_TO_SETTLE = 12
"""More than the hysteresis needs, for what fails and for what returns."""


class Case(Protocol):
    """A system whose orchestrator is tried."""

    name: str
    monitors: str

    def testbed(self, root: Path) -> Testbed:
        """Return the fabric, which is written to `root`."""

    def job(self, dice: random.Random) -> Mapping[str, Any]:
        """Return what a new job wants."""

    def fail(self, dice: random.Random, room: Switchroom) -> str:
        """Let something fail, and return what."""

    def problems(self, room: Switchroom, status: Mapping[str, Any]) -> list[str]:
        """Return what is wrong, by the light, and in what the status says of it."""


@runtime_checkable
class Changing(Case, Protocol):
    """A case whose jobs change while they run."""

    def changed(self, dice: random.Random, shape: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return another shape of a job."""


def unsettled(status: Mapping[str, Any]) -> list[str]:
    """Return the problem that a status is not settled, if so."""
    return [] if status["settled"] else ["not settled"]


def node_of(room: Switchroom) -> dict[str, list[str]]:
    """Return the switches with light of one node alone, by node: they are in it."""
    feeds = defaultdict(set)
    for fiber in room.testbed.fibers:
        if fiber.sink.owner in room.circuits:
            feeds[fiber.sink.owner].add(fiber.source.owner)
    found = defaultdict(list)
    for switch, nodes in feeds.items():
        if len(nodes) == 1:
            found[nodes.pop()].append(switch)
    return found


class Row:
    """InfiniteHBD: twelve nodes, two a ToR, two hops; jobs of all policies."""

    name, monitors = "infinitehbd", "none"
    NODES, REACH, PER_TOR = 12, 2, 2

    def testbed(self, root: Path) -> Testbed:
        text = render_row(self.NODES, hops=self.REACH, fat_tree=(self.PER_TOR, self.NODES))
        (root / "row.yaml").write_text(text)
        return load(root / "row.yaml")

    def job(self, dice: random.Random) -> Mapping[str, Any]:
        size = dice.choice([1, 2, 2, 3, 4])
        return {
            "size": size,
            "groups": dice.randint(1, self.NODES // size // 2 + 1),
            "policy": dice.choice(["repair", "repair", "optimal", "keep"]),
        }

    def fail(self, dice: random.Random, room: Switchroom) -> str:
        node, switches = dice.choice(sorted(node_of(room).items()))
        room.silent.update(switches if dice.random() < 0.5 else [dice.choice(switches)])
        return node

    def problems(self, room: Switchroom, status: Mapping[str, Any]) -> list[str]:
        found = []
        light = joined(room.testbed, room.circuits)
        failed = {n for n, switches in node_of(room).items() if room.silent & {*switches}}
        busy: set[str] = set()
        for name, job in status["jobs"].items():
            for group in filter(None, job["groups"]):
                nodes = group["nodes"]
                busy |= {*nodes}
                if len(nodes) != job["shape"]["size"] or failed & {*nodes}:
                    found.append(f"{name}: {nodes} with {failed} failed")
                for place, node in enumerate(nodes):
                    near = {*nodes[max(0, place - 1) : place], *nodes[place + 1 : place + 2]}
                    if light[node] - failed != near:
                        found.append(f"{name}: {node} is joined to {light[node]}, not {near}")
        free = {n for n in range(self.NODES) if f"node{n}" not in busy | failed}
        found += [f"node{n} is in no group and joined" for n in free if light[f"node{n}"] - failed]
        return found + self.placement_problems(free, status)

    def placement_problems(self, free: set[int], status: Mapping[str, Any]) -> list[str]:
        """Return the jobs that have fewer groups than a fresh placement would hold for them.

        That is Algorithm 2 on the nodes of the job and the free ones. A job that keeps its groups
        has the most in the free nodes instead; the state is not settled where it could have more.
        """
        found, settled = [], True
        for name, job in status["jobs"].items():
            size, groups = job["shape"]["size"], [each for each in job["groups"] if each]
            if job["moved"] and job["shape"]["policy"] == "keep":
                found.append(f"{name}: {job['moved']} moved in a job that keeps its groups")
            if not job["missing"]:
                continue
            own = {int(n.removeprefix("node")) for each in groups for n in each["nodes"]}
            possible = most_groups(free | own, self.NODES, self.REACH, size)
            keeps = job["shape"]["policy"] == "keep"
            more = most_groups(free, self.NODES, self.REACH, size)
            if more if keeps else possible > len(groups):
                found.append(f"{name} has {groups}, and {possible} are possible beside {free}")
            settled &= possible <= len(groups)
        if status["settled"] != settled:
            found.append(f"settled is {status['settled']}, expected {settled}")
        return found


def most_groups(places: Collection[int], nodes: int, reach: int, size: int) -> int:
    """Return how many groups Algorithm 2 makes of `places` on a row that is closed to a ring.

    As printed: components by depth-first search over links of at most `reach`, each cut in groups.
    """
    left, most = {*places}, 0
    while left:
        component, edge = 0, [left.pop()]
        while edge:
            at, component = edge.pop(), component + 1
            near = {(at + hop) % nodes for hop in range(-reach, reach + 1)} & left
            left -= near
            edge += near
        most += component // size
    return most


class Grid:
    """RailX: four columns, three rows, three rails; jobs of all shapes, and changes of phase."""

    name, monitors = "railx", "egress"
    COLUMNS, ROWS, RAILS = 4, 3, 3
    CHIPS = RAILS**2

    def testbed(self, root: Path) -> Testbed:
        (root / "grid.yaml").write_text(render_grid(self.COLUMNS, self.ROWS, mesh=3, ports=1))
        return load(root / "grid.yaml")

    def job(self, dice: random.Random) -> Mapping[str, Any]:
        kind = dice.choice(["sides", "sides", "nodes", "parallelism", "parallelism", "dragonfly"])
        if kind == "nodes":
            return {"nodes": dice.choice([2, 3, 4, 6]), "topology": dice.choice(["auto", "torus"])}
        if kind == "dragonfly":
            columns, rows = dice.choice([(2, 2), (3, 2), (3, 3)])
            return {"columns": columns, "rows": rows, "topology": kind}
        if kind == "parallelism":
            # Three of them share rows or columns two by two: on eight nodes.
            names = dice.sample(["cp", "ep", "dp", "pp"], dice.choice([1, 2, 3, 3]))
            most = [2, 2, 3] if len(names) < 3 else [2]
            degrees = {name: dice.choice(most) for name in names}
            return {
                "parallelism": {"tp": self.CHIPS, **degrees},
                "volumes": {name: 10 ** dice.uniform(6, 9) for name in names},
                "even": False,
            }
        sides = dice.choice([(1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (1, 3), (4, 1), (0, 0)])
        topology = dice.choice(["auto", "auto", "torus", "hyperx"])
        if topology == "hyperx" and not {0, 4}.isdisjoint(sides):
            topology = "auto"
        return {"columns": sides[0], "rows": sides[1], "topology": topology}

    def changed(self, dice: random.Random, shape: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the shape of a job by its parallelism, in another phase or the same."""
        degrees = shape["parallelism"]
        used = [n for n in ("cp", "ep", "dp", "pp") if degrees[n] > 1]
        return {**shape, "phase": dice.choice(["static", *used])}

    def fail(self, dice: random.Random, room: Switchroom) -> str:
        if dice.random() < 0.5:
            node = dice.choice(sorted(room.testbed.servers))
            room.unlit.add(node)
            return node
        switch = dice.choice(sorted(room.circuits))
        room.silent.add(switch)
        return switch

    def problems(self, room: Switchroom, status: Mapping[str, Any]) -> list[str]:
        found, of, busy = unsettled(status), {}, set()
        for name, job in status["jobs"].items():
            for group in filter(None, job["groups"]):
                places = {place_of(node) for node in group["nodes"]}
                columns, rows = ({place[axis] for place in places} for axis in (0, 1))
                if places != {*itertools.product(columns, rows)} or busy & {*group["nodes"]}:
                    found.append(f"{name}: {group['nodes']} is no grid of its own")
                sides = self.sides(job["shape"])
                if sides and (len(columns), len(rows)) not in sides:
                    found.append(f"{name}: {len(columns)} x {len(rows)}, not {sides}")
                if room.unlit & {*group["nodes"]}:
                    found.append(f"{name}: {group['nodes']} with {room.unlit} failed")
                busy |= {*group["nodes"]}
                of.update(dict.fromkeys(group["nodes"], name))
                found += self.line_problems(room, name, group)
                found += phase_problems(name, job["shape"]["phase"], group["details"])
        answering = {n: c for n, c in room.circuits.items() if n not in room.silent}
        for source, sink in beams(room.testbed, answering):
            apart = of.get(source.owner) != of.get(sink.owner) or source.owner not in of
            if apart and room.unlit.isdisjoint({source.owner, sink.owner}):
                found.append(f"{source} is joined to {sink}")
        silent = room.silent | {*status["silent"]}
        for name, job in status["jobs"].items():
            has = {node for group in filter(None, job["groups"]) for node in group["nodes"]}
            everything = job["shape"]["columns"] == 0
            if has and not everything:
                continue
            taken = busy - has | room.unlit | {*status["faulty"]}
            most = self.most(job["shape"], {*room.testbed.servers} - taken, silent)
            if most > len(has):
                found.append(f"{name} has {len(has)} nodes, {most} are possible beside {taken}")
        return found

    def sides(self, shape: Mapping[str, Any]) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Return columns and rows that a job may have, each with what it needs of rails.

        That are the live rails that a row and a column need; each of them is of one dimension at
        least, and an all-to-all with two links a pair needs one less than its nodes. Empty: any.
        """
        if shape["columns"] == 0:
            return {}
        found = defaultdict(list)
        if degrees := shape["parallelism"]:
            sizes = [degrees[name] for name in ("cp", "ep", "dp", "pp")]
            for x in itertools.combinations(range(4), 2):
                of_x, of_y = (
                    [sizes[n] for n in range(4) if (n in x) == inside] for inside in (True, False)
                )
                need = tuple(sum(size > 1 for size in side) for side in (of_x, of_y))
                found[of_x[0] * of_x[1], of_y[0] * of_y[1]].append(need)
        elif shape["nodes"]:
            for columns in range(1, shape["nodes"] + 1):
                if shape["nodes"] % columns == 0:
                    found[columns, shape["nodes"] // columns].append((1, 1))
        else:
            sides = shape["columns"], shape["rows"]
            need = tuple(max(1, side - 1) if shape["topology"] == "hyperx" else 1 for side in sides)
            found[sides].append(need)
        return {s: n for s, n in found.items() if s[0] <= self.COLUMNS and s[1] <= self.ROWS}

    def most(self, shape: Mapping[str, Any], free: set[str], silent: set[str]) -> int:
        """Return the nodes of the largest placement of a job on free nodes: all are tried."""
        sides = self.sides(shape) or {
            (columns, rows): [(1, 1)]
            for columns in range(1, self.COLUMNS + 1)
            for rows in range(1, self.ROWS + 1)
            if columns * rows > 1
        }
        best = 0
        for (width, height), needs in sides.items():
            if width * height <= best:
                continue
            for columns in itertools.combinations(range(self.COLUMNS), width):
                whole = [
                    j for j in range(self.ROWS) if free.issuperset(f"node{i}-{j}" for i in columns)
                ]
                if any(
                    self.joinable(needs, columns, rows, silent)
                    for rows in itertools.combinations(whole, height)
                ):
                    best = width * height
                    break
        return best

    def joinable(
        self,
        needs: Iterable[tuple[int, int]],
        columns: Places[int],
        rows: Places[int],
        silent: set[str],
    ) -> bool:
        """Whether as many rails as one of `needs` says answer in all rows, and in all columns."""
        if not silent:
            return any(
                (len(columns) == 1 or x <= self.RAILS) and (len(rows) == 1 or y <= self.RAILS)
                for x, y in needs
            )
        live = [
            sum(
                silent.isdisjoint(f"{d}ocs{line}-{rail}" for line in lines)
                for rail in range(self.RAILS)
            )
            for d, lines in (("x", rows), ("y", columns))
        ]
        return any(
            (len(columns) == 1 or live[0] >= x) and (len(rows) == 1 or live[1] >= y)
            for x, y in needs
        )

    def line_problems(self, room: Switchroom, name: str, group: Mapping[str, Any]) -> list[str]:
        """Return rails of a group that are not as its kind says, where all of them answer."""
        nodes = {*group["nodes"]}
        after: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for source, sink in beams(room.testbed, room.circuits):
            if source.owner in nodes and source.name.endswith("p0"):
                i, j = source.owner.removeprefix("node").split("-")
                rail = source.name.partition(".")[0]
                after[rail, j if rail[0] == "x" else i][source.owner] = sink.owner
        found = []
        for axis, place in (("x", 1), ("y", 0)):
            stated = group["details"][axis]
            lines = defaultdict(set)
            for node in nodes:
                lines[node.removeprefix("node").split("-")[place]].add(node)
            silent = [
                line
                for line in lines
                if any(f"{axis}ocs{line}-{rail}" in room.silent for rail in range(self.RAILS))
            ]
            every = [
                after.get((f"{axis}{rail}", line), {})
                for rail in range(self.RAILS)
                for line in lines
            ]
            if stated and not isinstance(stated, list) and stated["kind"] == "dragonfly":
                pairs = Counter(
                    frozenset(node.split("-")[0] for node in pair)
                    for each in every
                    for pair in each.items()
                )
                groups = {node.split("-")[0] for node in nodes}
                wanted = {frozenset(p) for p in itertools.combinations(sorted(groups), 2)}
                if not silent and (pairs.keys() != wanted or len({*pairs.values()}) != 1):
                    found.append(f"{name}: groups are joined {pairs}, stated {stated}")
                continue
            order = group["details"]["rows" if place == 0 else "columns"]
            for line, members in lines.items():
                if line in silent:
                    continue
                rails = [after.get((f"{axis}{rail}", line), {}) for rail in range(self.RAILS)]
                if not well_joined(stated, rails, members, order, 1 - place):
                    found.append(f"{name}: {axis} {line} is {rails}, stated {stated}")
        return found


def phase_problems(name: str, phase: str, details: Mapping[str, Any]) -> list[str]:
    """Return the dimensions that have rails, or none, against a job's phase."""
    found = []
    for axis in ("x", "y"):
        shares = details[axis] if isinstance(details[axis], list) else []
        names = [share["name"] for share in shares]
        for share in shares:
            expected = phase not in names or phase == share["name"]
            if bool(share["rails"]) != expected:
                found.append(f"{name}: {axis} has {shares} in phase {phase}")
    return found


def place_of(node: str) -> tuple[int, int]:
    """Return the column and row of a node."""
    column, row = node.removeprefix("node").split("-")
    return int(column), int(row)


def well_joined(
    stated: Any,
    rails: list[dict[str, str]],
    members: set[str],
    order: list[int],
    axis: int,
) -> bool:
    """Whether the successors on each rail of a line are what is stated of its dimensions.

    order: the columns or rows of the job, in which `axis` of a node has its place in the line.
    """
    if not isinstance(stated, list):
        whole = {"size": len(members), "rails": range(len(rails))}
        stated = [{**whole, "kind": stated["kind"]}] if stated else []
    stride, used = 1, set()
    for share in stated:
        parts = defaultdict(set)
        for node in members:
            place = order.index(place_of(node)[axis])
            at = place // stride % share["size"]
            parts[place - at * stride].add(node)
        stride *= share["size"]
        used |= {*share["rails"]}
        if not share["rails"]:
            continue
        for part in parts.values():
            of = [{u: v for u, v in rails[r].items() if u in part} for r in share["rails"]]
            links = Counter(frozenset(pair) for each in of for pair in each.items())
            pairs = {frozenset(p) for p in itertools.combinations(sorted(part), 2)}
            if share["kind"] == "ring":
                good = all(one_ring(each, part) for each in of)
            else:
                each = 2 if share["kind"] == "all-to-all" else 1
                good = links.keys() == pairs and not any(n % each for n in links.values())
            if not good:
                return False
    return not any(each for rail, each in enumerate(rails) if rail not in used)


class Rings:
    """ACOS: five servers on two rings of one job, past servers and switches that fail."""

    name, monitors = "acos", "none"
    RINGS: ClassVar[Mapping[str, str]] = {"inner": "01234", "outer": "02413"}

    def testbed(self, root: Path) -> Testbed:
        (root / "rings.yaml").write_text(render_rings())
        return load(root / "rings.yaml")

    def job(self, dice: random.Random) -> Mapping[str, Any]:
        return {"ring": dice.choice(["auto", "inner", "outer"])}

    def fail(self, dice: random.Random, room: Switchroom) -> str:
        server = dice.choice(sorted(room.testbed.servers))
        at_server = [name for name in room.circuits if f"-{server}-" in name]
        if dice.random() < 0.5:
            room.silent.update(at_server)
            return server
        switch = dice.choice(sorted(room.circuits))
        room.silent.add(switch)
        return switch

    def problems(self, room: Switchroom, status: Mapping[str, Any]) -> list[str]:
        failed = {name.split("-")[1] for name in room.silent if name[:3] in {"tx-", "rx-"}}
        light = joined(room.testbed, room.circuits)
        possible = {ring: self.possible(ring, failed, room.silent) for ring in self.RINGS}
        jobs = status["jobs"].values()
        placed = [job for job in jobs if job["groups"][0]]
        found = unsettled(status)
        found += [f"{job} waits" for job in jobs if not placed and self.wanted(job, possible)]
        if len(placed) > 1:
            found.append(f"{len(placed)} jobs have a ring at once")
        for job in placed:
            nodes = job["groups"][0]["nodes"]
            rings = self.wanted(job, possible)
            if len(nodes) < max(map(len, rings), default=0) or failed & {*nodes}:
                found.append(f"{nodes} are in a ring of {rings}, with {failed} failed")
            near = defaultdict(set)
            for before, after in itertools.pairwise([*nodes, nodes[0]]):
                near[before].add(after)
                near[after].add(before)
            found += [
                f"{node} is joined to {light[node]}, not {near[node]}"
                for node in nodes
                if light[node] != near[node]
            ]
        return found

    def wanted(self, job: Mapping[str, Any], possible: Mapping[str, list[str]]) -> list[list[str]]:
        """Return the rings that a job may have."""
        names = self.RINGS if job["shape"]["ring"] == "auto" else [job["shape"]["ring"]]
        return [possible[name] for name in names if possible[name]]

    def possible(self, ring: str, failed: set[str], silent: set[str]) -> list[str]:
        """Return the servers of a ring past those that failed; none where two are neighbours."""
        works = []
        for place, number in enumerate(self.RINGS[ring]):
            parts = {
                f"{ring}-skip-{way}-{place}-{lane}" for way in ("in", "out") for lane in (0, 1)
            }
            works.append(f"gpu{number}" not in failed and not parts & silent)
        if not all(map(any, itertools.pairwise([*works, works[0]]))):
            return []
        return [f"gpu{n}" for n in itertools.compress(self.RINGS[ring], works)]


def one_ring(after: Mapping[str, str], members: set[str]) -> bool:
    """Whether the successors are one ring of all members."""
    at, seen = min(members), set()
    while at not in seen and at in after:
        seen.add(at)
        at = after[at]
    return seen == members and after.keys() == members


CASES: tuple[Case, ...] = (Row(), Grid(), Rings(), Rails())


class Service(Protocol):
    """The part of an orchestrator that a sequence uses."""

    def request(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out a request and return the status."""

    def status(self) -> Mapping[str, Any]:
        """Return the status."""

    def step(self) -> object:
        """Probe all switches once, and act on what was seen."""


def changed_groups(history: Iterable[Mapping[str, Any]]) -> set[tuple[str, int]]:
    """Return the groups that changed, also those that are as before by now."""
    form = r"job (.+): (?:groups ([\d, ]+) change,|topologies is )"
    found = (re.match(form, each["event"]) for each in history)
    return {
        (match[1], int(number))
        for match in filter(None, found)
        for number in (match[2] or "0").split(", ")
    }


class Sequence:
    """One sequence of events for one system."""

    def __init__(self, case: Case, seed: int, room: Switchroom, state: Path) -> None:
        self.case, self.dice = case, random.Random(f"{case.name} {seed}")
        self.room, self.state = room, state
        self.layout = installed_systems()[case.name].load("orchestrator")(room.testbed)
        self.service = self.started()
        self.groups: dict[tuple[str, int], Any] = {}
        self.pending: defaultdict[str, set[str]] = defaultdict(set)
        self.lit: dict[tuple[str, Circuit], frozenset[str]] = {}
        self.jobs = itertools.count()
        self.log: list[str] = []
        self.kills = 0

    def started(self) -> Service:
        return Orchestrator(self.room.testbed, self.layout, self.room, self.state)

    def event(self) -> str:
        """Let one thing happen, and return it."""
        names = list(self.service.status()["jobs"])
        kinds = ["submit", "submit", "withdraw", "fail", "fail", "return"]
        case = self.case
        changing = isinstance(case, Changing)
        kind = self.dice.choice([*kinds, "change", "change"] if changing else kinds)
        if kind == "change" and isinstance(case, Changing):
            shapes = {n: job["shape"] for n, job in self.service.status()["jobs"].items()}
            divided = [name for name, shape in shapes.items() if shape.get("parallelism", True)]
            if divided:
                name = self.dice.choice(divided)
                shape = case.changed(self.dice, shapes[name])
                return self.asked({"do": "submit", "job": name, "shape": shape})
            kind = "submit"
        if kind == "submit":
            wish = {"job": f"job{next(self.jobs)}", "shape": self.case.job(self.dice)}
            return self.asked({"do": "submit", **wish})
        if kind == "withdraw" and names:
            return self.asked({"do": "withdraw", "job": self.dice.choice(names)})
        if kind == "fail":
            return f"fail {self.case.fail(self.dice, self.room)}"
        for broken in (self.room.silent, self.room.unlit):
            broken -= {name for name in sorted(broken) if self.dice.random() < 0.6}
        return "return"

    def asked(self, request: Mapping[str, Any]) -> str:
        self.service.request(request)
        return json.dumps(request)

    def step(self, *, last: bool = False) -> list[str]:
        """Let one thing happen, perhaps with a kill, and return the problems afterwards."""
        self.room.commands.clear()
        epoch = self.service.status()["epoch"]
        if self.dice.random() < 0.3:
            self.room.kill_after = self.dice.randint(0, 12)
        for attempt in itertools.count():
            try:
                if attempt == 0 and not last:
                    self.log.append(self.event())
                for _ in range(ROUNDS_TO_SETTLE):
                    self.service.step()
                break
            except Killed:
                self.kills += 1
                self.log.append("killed")
                self.room.kill_after = None
                self.service = self.started()
        self.room.kill_after = None
        status = self.service.status()
        # Two nodes that return may move a group, and back to where it was.
        history = json.loads(self.state.read_text())["history"] if self.state.exists() else []
        since = [each for each in history if each["epoch"] > epoch]
        touched = self.touched(status, changed_groups(since))
        return touched + self.case.problems(self.room, status)

    def touched(
        self, status: Mapping[str, Any], meanwhile: Collection[tuple[str, int]] = ()
    ) -> list[str]:
        """Return commands for nodes whose groups have not changed.

        meanwhile: groups that have changed, and may be as before by now.
        """
        now = {
            (name, number): group
            for name, job in status["jobs"].items()
            for number, group in enumerate(job["groups"])
            if group
        }
        kept = {key for key in now if self.groups.get(key) == now[key]} - {*meanwhile}
        changed = {node for key in now.keys() - kept for node in now[key]["nodes"]}
        changed |= {n for key in self.groups.keys() - kept for n in self.groups[key]["nodes"]}
        still = {node for key in kept for node in now[key]["nodes"]} - changed
        sender = {
            (fiber.sink.owner, int(fiber.sink.name)): fiber.source.owner
            for fiber in self.room.testbed.fibers
            if fiber.sink.owner in self.room.circuits and fiber.source.owner in still
        }
        touched = [
            (switch, circuit, {sender[switch, circuit.ingress]})
            for switch, circuit in self.room.commands
            if (switch, circuit.ingress) in sender
        ]
        touched += [
            (switch, circuit, {*self.lit[switch, circuit]})
            for switch, circuit in self.room.commands
            if (switch, circuit) in self.lit
        ]
        found = [
            f"{switch} {circuit} of {sorted(nodes)} was changed"
            for switch, circuit, nodes in touched
            if nodes <= still - self.pending[switch]
        ]
        for switch in self.room.circuits:
            if switch in self.room.silent:
                self.pending[switch] |= changed
            else:
                self.pending[switch].clear()
        self.groups, self.lit = now, circuits_with_light(self.room.testbed, self.room.circuits)
        return found


def run(case: Case, seed: int, root: Path, testbed: Testbed) -> tuple[list[str], int]:
    """Run one sequence and return the first problems, with the events up to them, and the kills."""
    room = Switchroom(testbed, case.monitors if seed % 2 else "ingress")
    sequence = Sequence(case, seed, room, root / f"{case.name}-{seed}.json")
    for number in range(STEPS + 1):
        if number == STEPS:  # all returns
            sequence.room.silent.clear()
            sequence.room.unlit.clear()
        if problems := sequence.step(last=number == STEPS):
            return [*sequence.log, *problems], sequence.kills
    return [], sequence.kills


def main(report: Callable[[str], object] = print) -> bool:
    """Run all sequences; returns whether each converged and touched nothing else."""
    first = int(os.environ.get("SEQUENCES_FIRST", "0"))
    seeds = range(first, first + int(os.environ.get("SEQUENCES", "500")))
    systems = os.environ.get("SEQUENCES_SYSTEMS", ",".join(case.name for case in CASES)).split(",")
    found: Counter[str] = Counter()
    with journals() as root:
        for case in (each for each in CASES if each.name in systems):
            testbed = case.testbed(root)
            for seed in seeds:
                problems, kills = run(case, seed, root, testbed)
                found[f"{case.name} sequences"] += 1
                found[f"{case.name} kills"] += kills
                if problems:
                    found[f"{case.name.upper()} WRONG"] += 1
                    report(f"{case.name} {seed}: " + "\n  ".join(problems))
            report(f"{case.name}: {json.dumps(dict(sorted(found.items())))}")
    report(f"all   {json.dumps(dict(sorted(found.items())))}")
    return not any(count for name, count in found.items() if name.endswith("WRONG"))
