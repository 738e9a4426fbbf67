"""A few servers with two ports each and several rings through all of them, one lit at a time.

Selection is a 1xN at each fiber (§4.1). Resilience is a skip link past any one server, by a 1x2
at each end of every link of every ring (§4.3); a failed server's neighbours join over it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lightrig.harness.systems.acos.planning.optics import (
    FabricError,
    OpticalFabric,
    Selection,
    States,
    select,
    selected,
)

LANES = 2
"""Port 0 sends to the next server of a ring, port 1 to the one before."""


@dataclass(frozen=True)
class ServerRings:
    """Rings through the same servers; orders: of each topology, the servers along its ring."""

    fabric: OpticalFabric
    selection: Selection
    orders: dict[str, tuple[int, ...]]

    def states(self, topology: str, failed: int | None = None) -> States:
        """Return the states that light one ring, past a `failed` server where there is one.

        Raises `FabricError` for a topology or a server that is not there.
        """
        if topology not in self.orders or failed not in {None, *range(self.fabric.gpus)}:
            raise FabricError(
                f"found ring {topology} without server {failed}, expected one of "
                f"{', '.join(self.orders)}, servers 0 to {self.fabric.gpus - 1}"
            )
        states = self.fabric.rest()
        for name, order in self.orders.items():
            if failed is None:
                continue
            size, at = len(order), order.index(failed)
            before, after = (at - 1) % size, (at + 1) % size
            for lane, (sender, receiver) in enumerate(((before, after), (after, before))):
                self.fabric.of(states, f"{name}-skip-out")[sender, lane] = 1
                self.fabric.of(states, f"{name}-skip-in")[receiver, lane] = 1
        shape = self.fabric.gpus, self.fabric.lanes
        choice = np.full(shape, list(self.orders).index(topology))
        return selected(self.fabric, states, choice)


def server_rings(orders: Mapping[str, Sequence[int]]) -> ServerRings:
    """Wire one resilient ring for each of `orders`; raise `FabricError` where they differ."""
    servers = len(next(iter(orders.values())))
    if servers < 4 or any(sorted(order) != list(range(servers)) for order in orders.values()):
        raise FabricError(
            f"found orders {orders}, expected each of 0 to {servers - 1} once in "
            "every ring, four servers at least"
        )
    fabric = OpticalFabric(servers, LANES)
    selection = select(fabric, tuple(orders))
    for branch, (name, order) in enumerate(orders.items()):
        places = list(order)
        shape = servers, LANES
        out = fabric.diverge(f"{name}-skip-out", 2, shape, "Resiliency", name)
        into = fabric.converge(f"{name}-skip-in", 2, shape, "Resiliency", name)
        fabric.join(selection.transmit[places, :, branch], out.inputs[..., 0])
        # Light that lane 0 sends forward arrives on lane 1 of the next server, and back.
        fabric.join(into.outputs, selection.receive[places, ::-1, branch][..., None])
        for lane, step in ((0, 1), (1, -1)):
            for skip in (0, 1):
                reached = [(place + step * (1 + skip)) % servers for place in range(servers)]
                fabric.join(out.outputs[:, lane, skip], into.inputs[reached, lane, skip])
    return ServerRings(fabric, selection, {name: tuple(order) for name, order in orders.items()})
