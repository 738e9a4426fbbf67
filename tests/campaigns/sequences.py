"""Random sequences of events for the orchestrators: each converges, and touches nothing else.

`SEQUENCES` times (default 500) for each system, ten steps: a job is submitted or withdrawn, a node
or a switch fails, one returns, or the process is killed before its k-th circuit is changed and
started again. Switches are in memory, time passes by steps of the loop alone. After each step the
state is judged by the light: links are followed along fibers through the circuits that switches
hold. Circuits of jobs that did not change must not be among the commands.
"""

import itertools
import json
import os
import random
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, ClassVar, Protocol

from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.system_registry import installed_systems
from lightrig.harness.systems.acos.generator import render_rings
from lightrig.harness.systems.infinitehbd.generator import render as render_row
from lightrig.harness.systems.railx.generator import render as render_grid
from lightrig.testbeds import Circuit, Testbed, load
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
    """RailX: four columns, three rows, three rails."""

    name, monitors = "railx", "egress"
    COLUMNS, ROWS, RAILS = 4, 3, 3

    def testbed(self, root: Path) -> Testbed:
        (root / "grid.yaml").write_text(render_grid(self.COLUMNS, self.ROWS, mesh=3, ports=1))
        return load(root / "grid.yaml")

    def job(self, dice: random.Random) -> Mapping[str, Any]:
        sides = dice.choice([(1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (1, 3), (4, 1), (0, 0)])
        topology = dice.choice(["auto", "auto", "torus"])
        return {"columns": sides[0], "rows": sides[1], "topology": topology}

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
                places = {
                    tuple(map(int, n.removeprefix("node").split("-"))) for n in group["nodes"]
                }
                columns, rows = ({place[axis] for place in places} for axis in (0, 1))
                wanted = job["shape"]["columns"], job["shape"]["rows"]
                if places != {*itertools.product(columns, rows)} or busy & {*group["nodes"]}:
                    found.append(f"{name}: {group['nodes']} is no grid of its own")
                if wanted != (0, 0) and (len(columns), len(rows)) != wanted:
                    found.append(f"{name}: {len(columns)} x {len(rows)}, not {wanted}")
                if room.unlit & {*group["nodes"]}:
                    found.append(f"{name}: {group['nodes']} with {room.unlit} failed")
                busy |= {*group["nodes"]}
                of.update(dict.fromkeys(group["nodes"], name))
                found += self.line_problems(room, name, group)
        answering = {n: c for n, c in room.circuits.items() if n not in room.silent}
        for source, sink in beams(room.testbed, answering):
            apart = of.get(source.owner) != of.get(sink.owner) or source.owner not in of
            if apart and room.unlit.isdisjoint({source.owner, sink.owner}):
                found.append(f"{source} is joined to {sink}")
        taken = busy | room.unlit
        usable = [
            sum(1 << j for j in range(self.ROWS) if f"node{i}-{j}" not in taken)
            for i in range(self.COLUMNS)
        ]
        for name, job in status["jobs"].items():
            width, height = job["shape"]["columns"], job["shape"]["rows"]
            if (
                job["missing"]
                and width
                and any(
                    reduce(and_, columns).bit_count() >= height
                    for columns in itertools.combinations(usable, width)
                )
            ):
                found.append(f"{name} waits beside {width} x {height} free nodes")
        return found

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
            for line, members in lines.items():
                if any(f"{axis}ocs{line}-{rail}" in room.silent for rail in range(self.RAILS)):
                    continue
                rails = [after.get((f"{axis}{rail}", line), {}) for rail in range(self.RAILS)]
                links = Counter(frozenset(pair) for each in rails for pair in each.items())
                pairs = {frozenset(p) for p in itertools.combinations(sorted(members), 2)}
                if stated is None:
                    good = not links
                elif stated["kind"] == "ring":
                    good = all(one_ring(each, members) for each in rails)
                else:
                    each = 2 if stated["kind"] == "all-to-all" else 1
                    good = links.keys() == pairs and not any(n % each for n in links.values())
                if not good:
                    found.append(f"{name}: {axis} {line} is {rails}, stated {stated}")
        return found


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


CASES: tuple[Case, ...] = (Row(), Grid(), Rings())


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
    found = (re.match(r"job (.+): groups ([\d, ]+) change,", each["event"]) for each in history)
    return {
        (match[1], int(number)) for match in filter(None, found) for number in match[2].split(", ")
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
        kind = self.dice.choice(["submit", "submit", "withdraw", "fail", "fail", "return"])
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
    count = int(os.environ.get("SEQUENCES", "500"))
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="lightrig-sequences-") as name:
        for case in CASES:
            testbed = case.testbed(Path(name))
            for seed in range(count):
                problems, kills = run(case, seed, Path(name), testbed)
                found[f"{case.name} sequences"] += 1
                found[f"{case.name} kills"] += kills
                if problems:
                    found[f"{case.name.upper()} WRONG"] += 1
                    report(f"{case.name} {seed}: " + "\n  ".join(problems))
    report(f"all   {json.dumps(dict(sorted(found.items())))}")
    return not any(count for name, count in found.items() if name.endswith("WRONG"))
