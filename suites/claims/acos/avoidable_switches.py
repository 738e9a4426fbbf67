"""Switches of a rack that a spare node leaves unused (ACOS, §4.3)."""

import numpy as np

from lightrig.harness.systems.acos.planning.optics import Ints, selected
from lightrig.harness.systems.acos.planning.rack import Degrees, Plan, Rack
from lightrig.harness.systems.acos.planning.rack_plans import configure
from lightrig.harness.systems.acos.planning.rings import BACKUP, NODES, Topology

_DIMENSIONS: tuple[Topology, ...] = ("TP", "DP", "PP")


def avoidable_switches(rack: Rack, degrees: Degrees) -> tuple[Ints, Ints]:
    """Switches of TP, DP and PP that some spare node leaves unused, and those that none does.

    A switch counts as used where light of a GPU with a task passes it in the phase of its
    dimension. Selection switches and those of the expander are left out: the first are the GPU's,
    of the second no setting is free (§4.3: expanders degrade instead).
    """
    considered = np.zeros(rack.fabric.switches, dtype=bool)
    for array in rack.fabric.arrays.values():
        considered[array.part] = array.dimension in _DIMENSIONS
    always = considered.copy()
    spares = range(NODES + 1) if rack.spec.resilient else [BACKUP]
    for spare in spares:
        plan = configure(rack, degrees, [spare] * rack.spec.racks)
        always &= used_switches(rack, plan)
    return np.flatnonzero(considered & ~always), np.flatnonzero(always)


def used_switches(rack: Rack, plan: Plan) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether light of GPUs with a task passes each switch in any phase but the expander's."""
    used = np.zeros(rack.fabric.switches, dtype=bool)
    active = plan.ranks["TP"] >= 0
    for topology in _DIMENSIONS:
        if topology not in plan.choice:
            continue
        states = selected(rack.fabric, plan.states, plan.choice[topology])
        for switch, fibers in rack.fabric.crossed(states).items():
            used[switch] |= any(active[fiber // rack.spec.lanes] for fiber in fibers)
    return used
