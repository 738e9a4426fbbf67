"""Causes of the time that all-to-alls of a training step wait for their circuits."""

from collections import defaultdict
from typing import Literal, TypeAlias, get_args

from lightrig.harness.systems.mixnet.runtime.trained import (
    CircuitChange,
    TrainedExperts,
    TrainingExchange,
)

Cause: TypeAlias = Literal[
    "control", "planning", "routes off circuits", "switch", "carriers", "routes onto circuits",
    "ranks",
]  # fmt: skip
"""Parts of a wait, in the order in which they pass.

- control: the controller has not begun the change yet, or computes the ranks' shares of the lanes.
- planning: circuits are planned for the demand.
- routes off circuits: packets leave the circuits that are to move.
- switch: its circuits are read, changed and read back.
- carriers: the NIC ports of the new circuits have no carrier yet.
- routes onto circuits: packets take the new circuits.
- ranks: permission has been sent, and not every rank has begun.
"""

CAUSES: tuple[Cause, ...] = get_args(Cause)


def wait_by_cause(exchange: TrainingExchange, change: CircuitChange | None) -> dict[Cause, int]:
    """Divide the wait of an all-to-all among its causes, in ns; they sum to `exchange.waited`.

    change: of the circuits that serve it first, None where it has none. Only what passes after the
    last rank has announced the all-to-all counts: the rest of a change is hidden.
    """
    ends: list[tuple[Cause, int]] = []
    if change is not None:
        ends = [
            ("control", change.began),
            ("planning", change.planned),
            ("routes off circuits", change.left),
            ("switch", change.switched),
            ("carriers", change.lit),
            ("routes onto circuits", change.done),
        ]
    ends += [("control", exchange.permitted), ("ranks", exchange.began)]
    found = dict.fromkeys(CAUSES, 0)
    at = exchange.wanted
    for cause, end in ends:
        if end > at:
            found[cause] += end - at
            at = end
    return found


def step_waits(trained: TrainedExperts, region: int = 0) -> list[dict[Cause, int]]:
    """Return the wait of each step's all-to-alls by cause, in ns, without the first step.

    Those of one region. A step of several passes has as many changes before its all-to-alls of
    one name, in their order.
    """
    changes: defaultdict[tuple[int, int, str], list[CircuitChange]] = defaultdict(list)
    for one in trained.changes:
        if one.region == region:
            changes[one.step, one.layer, one.before].append(one)
    steps: dict[int, dict[Cause, int]] = {}
    for each in trained.exchanges:
        if each.region != region:
            continue
        of_step = steps.setdefault(each.step, dict.fromkeys(CAUSES, 0))
        due = changes[each.step, each.layer, each.phase]
        change = due.pop(0) if due and due[0].done <= each.began else None
        for cause, wait in wait_by_cause(each, change).items():
            of_step[cause] += wait
    return [steps[step] for step in sorted(steps) if step]
