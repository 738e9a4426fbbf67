"""The production trace and faults one by one through InfiniteHBD's service, in virtual time.

`FAULT_TRACES` draws (default 40) from `FAULT_TRACES_SEED` on. Each replays the public trace (720
nodes of 4 GPUs, drawn) through the orchestrator's own `step`: after each event all switches are
probed until nothing changes, then the next event comes. K, the size of groups, the job's share of
the nodes and its policy are drawn. Judged beside each state: Algorithm 2 run afresh on it, as this
file writes it down, and traffic across ToRs by the measure of Section 6.4 on the fat tree.

`FAULT_ORDERS` draws (default 3): 8,192 GPUs, TP 32, a job of 85 %, 6 % of the nodes fail, known at
once and one by one.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightrig.harness.systems.infinitehbd.planning.wiring import FatTree, k_hop
from lightrig.suites.claims.infinitehbd.replay import cluster
from lightrig.suites.claims.infinitehbd.service import GPUS, Service
from lightrig.suites.claims.infinitehbd.trace import States
from tests.campaigns.records import journals, log, reported
from tests.campaigns.sequences import most_groups

LIMIT = 0.03
POLICY = "repair"
"""Of the job under which nodes fail one by one."""
ALLOWED = 0.001
"""Share of the time, 0.1 points, for which a job may miss groups that a fresh one would not."""


@dataclass(frozen=True)
class Draw:
    """What one replay runs with.

    Attributes:
        seed: of the cluster. hops: K. group: GPUs of a group. share: of the groups that all nodes
            would hold that the job wants. policy: of the job.
    """

    seed: int
    hops: int
    group: int
    share: float
    policy: str


@dataclass
class Found:
    """What a replay found: shares of the time, and counts."""

    short: float = 0.0
    short_afresh: float = 0.0
    missing: float = 0.0
    missing_afresh: float = 0.0
    waste: float = 0.0
    crossing: float = 0.0
    most_crossing: float = 0.0
    events: int = 0
    moved: int = 0
    probes: int = 0

    def document(self) -> dict[str, float]:
        return {name: round(value, 5) for name, value in vars(self).items()}


def moved_in(before: dict[str, Any], after: dict[str, Any], dead: set[int]) -> int:
    """Return how many groups have other nodes although theirs work."""
    lost = {f"node{node}" for node in dead}
    return sum(
        old is not None and old != new and lost.isdisjoint(old["nodes"])
        for old, new in zip(before["groups"], after["groups"], strict=True)
    )


def replay(draw: Draw, states: States, folder: Path) -> Found:
    """Replay states through the service, with one job from the first one on."""
    nodes, size = states.faulty.shape[1], draw.group // GPUS
    count = max(1, int(draw.share * nodes) // size)
    tree = FatTree(nodes, 2, nodes // 4)
    shape = {"gpus": draw.group, "groups": count, "policy": draw.policy}
    service = Service(folder, k_hop(nodes, draw.hops, closed=True), tree, shape)
    found = Found()
    total = float(states.durations.sum())
    before: dict[str, Any] | None = None
    for faulty, duration in zip(states.faulty, states.durations.tolist(), strict=True):
        dead = set(np.flatnonzero(faulty).tolist())
        found.probes += service.lose(dead)
        if before is None:
            service.submit()
        after = service.job()
        if before is not None:
            found.events += 1
            found.moved += moved_in(before, after, dead)
        before = after
        healthy = set(range(nodes)) - dead
        afresh = max(count - most_groups(healthy, nodes, draw.hops, size), 0)
        share = duration / total
        found.short += share * (after["missing"] > 0)
        found.short_afresh += share * (afresh > 0)
        found.missing += share * after["missing"]
        found.missing_afresh += share * afresh
        # Groups that it lacks although there are as many healthy nodes as they would take.
        found.waste += share * max(after["missing"] - max(count - len(healthy) // size, 0), 0)
        if not after["missing"]:
            crossing = service.crossing()
            found.crossing += share * crossing
            found.most_crossing = max(found.most_crossing, crossing)
    found.waste *= size / nodes
    return found


def problems(draw: Draw, found: Found) -> list[str]:
    """Return what breaks a promise of the job's policy."""
    broken = []
    if draw.policy != "keep" and found.short > found.short_afresh + ALLOWED:
        broken.append(f"incomplete {found.short:.4f} of the time, afresh {found.short_afresh:.4f}")
    if draw.policy == "keep" and found.moved:
        broken.append(f"{found.moved} groups of a job that keeps its groups moved")
    return broken


def orders(seed: int, folder: Path, *, nodes: int = 2048, faults: float = 0.06) -> dict[str, Any]:
    """Let nodes fail one by one under a job of 85 %, and return what it cost; see the module."""
    tree, row, group = FatTree(nodes, 2, nodes // 4), k_hop(nodes, 3, closed=True), 32
    count = int(0.85 * nodes * GPUS) // group
    shape = {"gpus": group, "groups": count, "policy": POLICY}
    dead = np.random.default_rng(seed).permutation(nodes)[: int(faults * nodes)].tolist()
    (folder / "at_once").mkdir()
    known = Service(folder / "at_once", row, tree, shape)
    for node in range(0, len(dead), 100):
        known.lose({*dead[: node + 100]})
    known.submit()
    at_once = known.job()
    (folder / "one_by_one").mkdir()
    service = Service(folder / "one_by_one", row, tree, shape)
    service.submit()
    moved, crossing, missing = [], [], []
    for number in range(1, len(dead) + 1):
        gone = {*dead[:number]}
        before = service.job()
        service.lose(gone)
        after = service.job()
        moved.append(moved_in(before, after, gone))
        crossing.append(service.crossing())
        missing.append(after["missing"])
    return {
        "seed": seed,
        "faults": len(dead),
        "at_once": {"crossing": round(known.crossing(), 4), "missing": at_once["missing"]},
        "one_by_one": {
            "most_crossing": round(max(crossing), 4),
            "most_missing": max(missing),
            "moved_a_fault": round(float(np.mean(moved)), 2),
            "most_moved": max(moved),
        },
    }


def drawn(seed: int) -> Draw:
    """Return what a seed replays."""
    dice = np.random.default_rng(seed)
    return Draw(
        seed,
        int(dice.choice([2, 3])),
        int(dice.choice([8, 16, 32, 64])),
        float(dice.choice([0.60, 0.75, 0.85, 0.89, 0.93, 0.95, 0.97])),
        str(dice.choice(["repair", "repair", "repair", "optimal", "keep"])),
    )


def over(found: Mapping[str, Any]) -> list[str]:
    """Return what faults one by one, or known at once, break."""
    one, at_once = found["one_by_one"], found["at_once"]
    crossing = max(one["most_crossing"], at_once["crossing"])
    missing = max(one["most_missing"], at_once["missing"])
    return [f"{crossing} of the traffic crosses, {missing} missing"] * (
        crossing > LIMIT or missing > 0
    )


def table(done: Sequence[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return a line for each policy and for each order of faults, and whether all is well."""
    lines = [
        f"{'policy':<10}{'draws':>6}{'short':>9}{'afresh':>9}{'waste':>9}{'crossing':>10}"
        f"{'moved an event':>16}"
    ]
    for policy in ("keep", "repair", "optimal"):
        rows = [each for each in done if each.get("policy") == policy]
        if rows:
            short, afresh, waste, crossing = (
                np.mean([each[name] for each in rows])
                for name in ("short", "short_afresh", "waste", "crossing")
            )
            moved = sum(each["moved"] for each in rows) / sum(each["events"] for each in rows)
            lines.append(
                f"{policy:<10}{len(rows):>6}{short:>9.4f}{afresh:>9.4f}{waste:>9.4f}"
                f"{crossing:>10.4f}{moved:>16.2f}"
            )
    orders_done = [each for each in done if "one_by_one" in each]
    lines += [json.dumps({**each}, sort_keys=True) for each in orders_done]
    broken = [f"WRONG {each['seed']}: {why}" for each in done for why in each["broken"]]
    return [*lines, *broken], not broken


def main(report: Callable[[str], object] = print) -> bool:
    """Run the draws that are left; returns whether each kept the promises of its policy."""
    first = int(os.environ.get("FAULT_TRACES_SEED", "0"))
    traces = range(first, first + int(os.environ.get("FAULT_TRACES", "40")))
    one_by_one = range(first, first + int(os.environ.get("FAULT_ORDERS", "3")))
    with log("fault_trace") as file, journals() as root:
        before = {("one_by_one" in each, each["seed"]) for each in file.done}
        for seed in one_by_one:
            if (True, seed) not in before:
                folder = root / f"order{seed}"
                folder.mkdir()
                result = orders(seed, folder)
                file.add({**result, "broken": over(result)})
                report(json.dumps(file.done[-1]))
        for seed in traces:
            if (False, seed) not in before:
                draw, folder = drawn(seed), root / str(seed)
                folder.mkdir()
                found = replay(draw, cluster(np.random.default_rng(seed), gpus=GPUS), folder)
                broken = problems(draw, found)
                file.add({**vars(draw), **found.document(), "broken": broken})
                report(json.dumps(file.done[-1]))
        return reported(*table(file.done), report)
