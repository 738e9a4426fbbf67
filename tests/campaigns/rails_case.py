"""Opus for random sequences: jobs of several sizes on shared rails, whose topologies change."""

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightrig.harness.systems.opus.generator import render
from lightrig.testbeds import Testbed, load
from tests.campaigns.switchroom import Switchroom, beams


class Rails:
    """Eight servers on two rails with a switch each; a job asks for topologies of its own."""

    name, monitors = "opus", "egress"
    SERVERS, RAILS = 8, 2
    SIZES = ((2, [2]), (2, [2]), (3, [1]), (1, [2]), (1, [3]), (1, [2, 2]), (4, [1]), (2, [2, 2]))

    def testbed(self, root: Path) -> Testbed:
        text = render(2, self.SERVERS // 2, self.RAILS)
        line = next(each for each in text.splitlines() if each.startswith("  ocs: "))
        text = text.replace(line, f"{line}\n{line.replace('ocs', 'ocs1', 1)}", 1)
        text = text.replace("nic1.p[0-1] <-> ocs", "nic1.p[0-1] <-> ocs1")
        (root / "rails.yaml").write_text(text)
        return load(root / "rails.yaml")

    def job(self, dice: random.Random) -> Mapping[str, Any]:
        stages, widths = dice.choice(self.SIZES)
        return {"stages": stages, "widths": widths}

    def changed(self, dice: random.Random, shape: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the shape with other topologies, such as a controller asks for."""
        digits = [str(digit) for digit in range(len(shape["widths"]) + 1)]
        texts = [
            "ring" if dice.random() < 0.2 else "".join(dice.choices(digits, k=shape["stages"]))
            for _ in range(self.RAILS)
        ]
        return {**shape, "topologies": texts}

    def fail(self, dice: random.Random, room: Switchroom) -> str:
        if dice.random() < 0.7:
            node = dice.choice(sorted(room.testbed.servers))
            room.unlit.add(node)
            return node
        switch = dice.choice(sorted(room.circuits))
        room.silent.add(switch)
        return switch

    def problems(self, room: Switchroom, status: Mapping[str, Any]) -> list[str]:
        """Return the jobs without a place that there is, and links that are not a topology's.

        What is wanted is stated of ranks here, from the paper's words, and seen by the light.
        """
        found = [] if status["settled"] else ["not settled"]
        links: list[defaultdict[str, set[str]]] = [defaultdict(set) for _ in range(self.RAILS)]
        for source, sink in beams(room.testbed, room.circuits):
            if source.owner != sink.owner:
                links[int(source.name[3])][source.owner].add(sink.owner)
        failed = {*status["faulty"]}
        of_job = {name: self.nodes(job) for name, job in status["jobs"].items()}
        taken = [node for nodes in of_job.values() for node in nodes]
        free = room.testbed.servers.keys() - failed - {*taken}
        if failed & {*taken} or len({*taken}) != len(taken):
            found.append(f"{of_job} have {failed}, or a server twice")
        for name, job in status["jobs"].items():
            shape, nodes = job["shape"], of_job[name]
            needed = shape["stages"] * math.prod(shape["widths"])
            if len(nodes) not in {0, needed} or (not nodes and needed <= len(free)):
                found.append(f"{name} has {nodes} of {needed}, with {free} free")
            for rail, texts in enumerate(shape["topologies"] or ["ring"] * self.RAILS):
                if nodes and ("ocs", "ocs1")[rail] not in room.silent:
                    seen = {node: links[rail][node] for node in nodes}
                    if not self.holds(seen, nodes, shape, texts):
                        found.append(f"{name}: rail {rail} is {seen} of {nodes}, not {texts}")
        for rail, switch in enumerate(("ocs", "ocs1")):
            if switch not in room.silent:
                found += [f"{n} sees {links[rail][n]} in no job" for n in free if links[rail][n]]
        return found

    def nodes(self, job: Mapping[str, Any]) -> Sequence[str]:
        """Return the servers of a job in the order of their ranks."""
        (group,) = job["groups"]
        return group["nodes"] if group else []

    def holds(
        self,
        seen: Mapping[str, set[str]],
        nodes: Sequence[str],
        shape: Mapping[str, Any],
        text: str,
    ) -> bool:
        """Whether servers see the neighbours that the topology `text` gives them."""
        import networkx as nx

        if text == "ring":
            graph = nx.Graph((a, b) for a in seen for b in seen[a])
            degrees = {degree for _, degree in graph.degree()}
            return (
                {*graph} == {*nodes}
                and nx.is_connected(graph)
                and degrees == {min(2, len(nodes) - 1)}
            )
        wanted: dict[str, set[str]] = {node: set() for node in nodes}
        for a, b in joined_ranks(shape["stages"], shape["widths"], text):
            if a != b:
                wanted[nodes[a]].add(nodes[b])
                wanted[nodes[b]].add(nodes[a])
        return seen == wanted


def joined_ranks(stages: int, widths: Sequence[int], text: str) -> Iterator[tuple[int, int]]:
    """Yield pairs of servers that a topology joins, server stage * columns + column.

    A stage of digit 0 has a link with each neighbouring stage of digit 0, around from the last to
    the first, column by column; one of digit d has the rings along its symmetric dimension d.
    """
    grid = [*itertools.product(*map(range, widths))]
    for stage in range(stages):
        for column, place in enumerate(grid):
            if text[stage] == "0":
                after = (stage + 1) % stages
                if text[after] == "0":
                    yield stage * len(grid) + column, after * len(grid) + column
            else:
                axis = int(text[stage]) - 1
                near = list(place)
                near[axis] = (near[axis] + 1) % widths[axis]
                yield stage * len(grid) + column, stage * len(grid) + grid.index(tuple(near))
