"""Mechanisms of MixNet that planning shows on generated gates, and counts of its testbed."""

from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path

import numpy as np

from lightrig.harness.claims.computed import Computed, exactly
from lightrig.harness.systems.mixnet.planning.calendar import exchanges
from lightrig.harness.systems.mixnet.planning.control import CircuitControl
from lightrig.harness.systems.mixnet.planning.copilot import Copilot, top_k_accuracy
from lightrig.harness.systems.mixnet.planning.cross_connects import plan_region
from lightrig.harness.systems.mixnet.planning.demand import Matrix, Placement, server_demand
from lightrig.harness.systems.mixnet.planning.gating import Gating
from lightrig.harness.systems.mixnet.planning.region import Failures, Region
from lightrig.harness.systems.mixnet.planning.routing import Routing, UnreachableError
from lightrig.testbeds import Testbed, load

_DRAWS = 20
_EIGHT = Placement.even(ranks=8, servers=8)
_REGION = Region.uniform(8, optical=6, packet=2)
_LEARNED, _RECORDS = 60, 120
_PANEL_PORTS = 1008
"""Ports of the patch panel in Table 2."""


def _demands() -> Iterator[Matrix]:
    for tokens in Gating(experts=8, layers=1).exchanges(ranks=8, count=_DRAWS, seed=1):
        yield server_demand(tokens, _EIGHT)


def _numa() -> Computed:
    """Share of pairs with two links whose links end on different NUMA nodes at both ends."""
    numa = {nic.port: nic.numa for server in _REGION.servers for nic in server.optical}
    apart = []
    for demand in _demands():
        pairs: dict[tuple[str, str], list[tuple[int | None, int | None]]] = {}
        for link in plan_region(_REGION, demand):
            pairs.setdefault((link.a.owner, link.b.owner), []).append((numa[link.a], numa[link.b]))
        apart += [
            ends[0][0] != ends[1][0] and ends[0][1] != ends[1][1]
            for ends in pairs.values()
            if len(ends) == 2
        ]
    return exactly(
        float(np.mean(apart)), f"{len(apart)} pairs of {_DRAWS} generated exchanges, 8 servers"
    )


def _without_packets() -> Computed:
    """Share of servers that still reach all others once both of their packet NICs failed."""
    reached = []
    for demand in _demands():
        for server in _REGION.servers:
            region = _REGION.without(Failures(nics=frozenset(server.packet)))
            routing = Routing(region, plan_region(region, demand))
            reached.append(_reaches(routing, _REGION.number_of[server.name]))
    return exactly(
        float(np.mean(reached)),
        f"each of 8 servers in {_DRAWS} generated exchanges, circuits planned again",
    )


def _reaches(routing: Routing, source: int) -> bool:
    try:
        return all(
            routing.route(*ends)
            for peer in range(len(routing.region.servers))
            if peer != source
            for ends in ((source, peer), (peer, source))
        )
    except UnreachableError:
        return False


def _transposes() -> Computed:
    """Share of a layer's all-to-alls whose matrix is the first one or its transpose."""
    alike = []
    for tokens in Gating(experts=8, layers=1).exchanges(ranks=8, count=_DRAWS, seed=1):
        control = CircuitControl(8, 1, None)
        for rank, given in enumerate(tokens.astype(int).tolist()):
            control.gate(rank, 0, given)
        for layer, phase in exchanges(1):
            found = control.traffic(0, layer, phase)
            alike.append(np.array_equal(found, tokens) or np.array_equal(found, tokens.T))
    return exactly(float(np.mean(alike)), f"{_DRAWS} generated exchanges")


def _copilot() -> Computed:
    """Top-1 accuracy of Copilot over that of the load of the layer before, 8 experts."""
    copilot, predicted, unchanged = Copilot(), [], []
    for number, loads in enumerate(Gating(experts=8, layers=2).iterations(_RECORDS, seed=5)):
        before, after = loads
        if number >= _LEARNED:
            predicted.append(top_k_accuracy(copilot.predict(before), after, 1))
            unchanged.append(top_k_accuracy(before, after, 1))
        copilot.record(before, after)
    return exactly(
        float(np.mean(predicted) - np.mean(unchanged)),
        f"top-1 {np.mean(predicted):.2f} against {np.mean(unchanged):.2f} unchanged and 0.12 at "
        f"random, {_RECORDS - _LEARNED} generated gates of 8 experts that fit its assumption",
    )


def _testbed() -> Testbed:
    folder = Path(str(resources.files("lightrig.testbeds")))
    return load(folder / "mixnet.yaml")


def _ports(kind: str) -> Computed:
    region = Region.of(_testbed())
    counts = {
        "GPUs": sum(server.gpu_count for server in region.servers),
        "NICs": sum(len(server.ports) for server in region.servers),
        "optical": sum(region.degrees),
        "packet": sum(len(server.packet) for server in region.servers),
    }
    return exactly(counts[kind], "counted in testbeds/mixnet.yaml")


MECHANISMS: Mapping[str, Callable[[], Computed]] = {
    "numa": _numa,
    "without-packet-nics": _without_packets,
    "transposes": _transposes,
    "copilot": _copilot,
    "panel": lambda: exactly(_PANEL_PORTS, "a port for each GPU's NIC, one tier"),
    "region": lambda: exactly(8 * 8, "8 servers of 8 GPUs, an expert-parallel group of 64"),
    "region-ports": lambda: exactly(8 * 6, "8 servers of an EP group of 64, six optical NICs each"),
    "link-share": lambda: exactly(5.67 / (5.67 + 0.04144), "5.67 s of 5.67 s + 41.44 ms"),
    "testbed-gpus": lambda: _ports("GPUs"),
    "testbed-nics": lambda: _ports("NICs"),
    "testbed-optical": lambda: _ports("optical"),
    "testbed-packet": lambda: _ports("packet"),
}
"""Functions that compute claims, by their names in the file of published values."""
