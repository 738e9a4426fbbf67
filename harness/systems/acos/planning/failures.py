"""Capability of a cluster after failures: GPU, NIC, switch and node, alone and in pairs.

A failed GPU or NIC takes its node with it, since GPUs of a node share DP and PP links that no
resilience switch leads elsewhere (§4.3, failure units); a failed 1xN counts as a failed GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from lightrig.harness.systems.acos.planning.optics import BAR, CROSS, DARK, selected
from lightrig.harness.systems.acos.planning.rack import Degrees, Plan, Rack
from lightrig.harness.systems.acos.planning.rack_plans import configure, topology_errors
from lightrig.harness.systems.acos.planning.rings import BACKUP, NODES, Topology


@dataclass(frozen=True, slots=True)
class Recovery:
    """Remainder of a job after failures.

    Attributes:
        plan: states that restore every dimension; None where none exist.
        shuffled: whether a pipeline link joins unequal ranks in it.
        reason: why there is no plan.
        gpus: GPUs that can work in the best job that remains.
        degraded: states of that job, where it is smaller; None where nothing remains.
    """

    plan: Plan | None
    shuffled: bool
    reason: str
    gpus: int
    degraded: Plan | None = None


def recover(rack: Rack, degrees: Degrees, failed: Sequence[int]) -> Recovery:
    """Restore a job whose GPUs `failed`, or find the largest one that remains.

    TP, DP and PP links of a rack without merged nodes never leave a node or a ring, so the spare
    node of a rack is the same for all its rings: trying each of nine is exhaustive.
    """
    nodes: list[set[int]] = [set() for _ in range(rack.spec.racks)]
    for gpu in failed:
        where, node = rack.node_of(gpu)
        nodes[where].add(node)
    whole = NODES * 2 * rack.spec.stages
    if rack.spec.resilient and all(len(found) <= 1 for found in nodes):
        spare = [min(found, default=BACKUP) for found in nodes]
        shuffled = None
        for lefts in sorted(product((False, True), repeat=rack.spec.racks), key=_printed_first):
            plan = configure(rack, degrees, spare, lefts)
            if not topology_errors(rack, plan):
                return Recovery(plan, False, "", whole)
            shuffled = shuffled or plan
        return Recovery(shuffled, True, "", whole)
    if not failed:
        return Recovery(configure(rack, degrees), False, "", whole)
    reason = (
        f"{max(map(len, nodes))} nodes of a rack have failed and one backup stands by"
        if rack.spec.resilient
        else "the cluster has no backup"
    )
    gpus, left = _largest(rack, degrees, nodes)
    return Recovery(None, False, reason, gpus, left)


def _printed_first(lefts: tuple[bool, ...]) -> tuple[bool, tuple[bool, ...]]:
    return lefts != tuple(r == 1 for r in range(len(lefts))), lefts


def _largest(rack: Rack, degrees: Degrees, nodes: Sequence[set[int]]) -> tuple[int, Plan | None]:
    """GPUs and plan of the largest job with TP 4 on one half of the nodes.

    A ring of TP 8 or 16 needs eight nodes of nine. Rings of TP 4 need four of five, and the DP
    groups of a half of the nodes are whole where both halves are left unmerged.
    """
    for half in (0, 1):
        members = range(4 * half, 4 * half + 4)
        lost = [sorted(found & set(members)) for found in nodes]
        spares = [int(rack.spec.resilient and BACKUP not in found) for found in nodes]
        if all(len(failed) <= spare for failed, spare in zip(lost, spares, strict=True)):
            spare_nodes = [failed[0] if failed else BACKUP for failed in lost]
            return 4 * 2 * rack.spec.stages, half_of(rack, degrees, half, spare_nodes)
    return 0, None


def half_of(rack: Rack, degrees: Degrees, half: int, spare: Sequence[int]) -> Plan:
    """States for TP 4 on nodes 0 to 3 or 4 to 7 alone, with half of the replicas.

    PP stays as it is, or rises to where no link of the chain has to join DP rings.
    """
    spec = rack.spec
    folds = max(spec.stages // 2, 1)
    pp = max(degrees.pp, folds)
    dp = spec.stages * 2 * NODES // (4 * pp)
    base = configure(rack, Degrees(4, pp, dp, degrees.ep), spare)
    states = base.states.copy()
    of = rack.fabric.of
    # A DP rank's last bit is the half of its node.
    working = (base.ranks["TP"] >= 0) & (base.ranks["DP"] % 2 == half)
    for name in rack.fabric.arrays:
        if name.startswith("DP-nodes"):
            of(states, name)[...] = BAR
        if name.startswith("DP-stages") and pp == folds:
            of(states, name)[...] = np.where(working[rack.gpu[:folds, 0]][..., None], CROSS, BAR)
    ranks = {name: np.where(working, rank, DARK) for name, rank in base.ranks.items()}
    return Plan(Degrees(4, pp, dp // 2, degrees.ep), states, base.choice, ranks)


def outcome(recovery: Recovery) -> str:
    """Class of a recovery: restored, shuffled, degraded or lost."""
    if recovery.plan is not None:
        return "shuffled" if recovery.shuffled else "restored"
    return "degraded" if recovery.gpus else "lost"


def suspects(rack: Rack, plan: Plan, topology: Topology, dark: Sequence[int]) -> Sequence[int]:
    """Switches whose failure explains that exactly the fibers `dark` arrive no more (§7).

    dark: transmit fibers, gpu * lanes + lane, that are lit in the plan and were found dark.
    """
    states = selected(rack.fabric, plan.states, plan.choice[topology])
    wanted = sorted(dark)
    return [
        switch for switch, fibers in rack.fabric.crossed(states).items() if sorted(fibers) == wanted
    ]
