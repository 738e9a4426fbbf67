"""RailX's printed figures as computed here: by construction, by formula, or from stored runs.

The names are the numbers of the list of claims (C) and of mechanisms (M) that
results/published/railx.yaml states. Flit-level values are simulated; a run takes minutes, so the
points are stored with the planning, and `benchmarks.railx` repeats them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import product

import numpy as np

from lightrig.harness.claims.computed import Computed, exactly
from lightrig.harness.systems.railx.planning import allocation, costs
from lightrig.harness.systems.railx.planning.costs import Network
from lightrig.harness.systems.railx.planning.cross_connects import Settings
from lightrig.harness.systems.railx.planning.physical import RailFabric
from lightrig.harness.systems.railx.planning.scheduling import (
    algorithm_2,
    availability,
    largest_job,
    pack,
)
from lightrig.harness.systems.railx.planning.topologies import Axis, configure, hyperx, torus
from lightrig.harness.systems.railx.planning.workload import LISTING_1, Model, global_batch
from lightrig.suites.claims.railx import bandwidths, collectives, flow_model
from lightrig.suites.claims.railx.chip_graph import node_diameter
from lightrig.suites.claims.railx.collectives import NodeGroup
from lightrig.suites.claims.railx.flits import Point, stored_points
from lightrig.suites.claims.railx.further_topologies import (
    dragonfly,
    dragonfly_groups,
    split_hyperx,
    uneven,
)
from lightrig.suites.claims.railx.minimal_routing import (
    Routes,
    minimal_routes,
)

FIVE = RailFabric(mesh=2, ports=2, columns=5, rows=5, radix=10)
"""The 25 nodes of Fig. 7."""
RAILX4, RAILX7 = RailFabric.full(128, 4, 9), RailFabric.full(128, 7, 9)
_DRAWS = 200
_SATURATING = 1.0
"""Offered flits a cycle and chip at which the throughput of the stored points is read."""
LLAMA = Model(1, 8, 8192, 8192, 80, 128_256, 64, 8, 28_672, 2)


@cache
def _rows() -> Mapping[str, Network]:
    return costs.table_6()


def _cost(row: str) -> Computed:
    network = _rows()[row]
    return exactly(
        network.cost,
        f"{network.switches:,} switches, {network.copper:,} copper cables, {network.optical:,} "
        f"transceivers for {network.chips:,} chips",
    )


def _ratio(row: str) -> Computed:
    baseline, network = _rows()["fat-tree-2"], _rows()[row]
    return exactly(
        network.cost_per_global(baseline),
        f"global bandwidth {float(network.global_share):.2%} of injection; cost for injection "
        f"{network.cost_per_injection(baseline):.3f} of the 2-tier fat tree's",
    )


@cache
def _routes(mesh: int, ports: int, size: int) -> Routes:
    return minimal_routes(hyperx(RailFabric(mesh, ports, size, size, 2 * size)))


def _point(multiple: int, *, credit_delay: bool = False) -> Point:
    points = {(p.credit_delay, p.multiple, p.rate): p for p in stored_points()}
    return points[credit_delay, multiple, _SATURATING]


def _throughput(multiple: int) -> Computed:
    found, late = _point(multiple), _point(multiple, credit_delay=True)
    return Computed(
        found.outcome.throughput,
        found.outcome.lower,
        found.outcome.upper,
        10,
        f"simulated, 10,000 cycles after 5,000 in ten batches, {found.rate} offered, "
        f"{found.outcome.packets:,} packets, k = {multiple}, credits back at once. Where a credit "
        f"takes the link's 10 cycles, 16 flits of buffer are two thirds of the round trip, and it "
        f"is {late.outcome.throughput:.3f} ({late.outcome.lower:.3f} to {late.outcome.upper:.3f}). "
        f"The link loads of Algorithm 1 allow {found.bound:.3f}",
    )


def _throughput_ratio(one: int, reference: int) -> Computed:
    a, b = _point(one).outcome, _point(reference).outcome
    return Computed(
        a.throughput / b.throughput,
        a.lower / b.upper,
        a.upper / b.lower,
        10,
        f"simulated: {a.throughput:.3f} at k = {one}, {b.throughput:.3f} at k = {reference}, "
        "credits back at once",
    )


def _availability(side: int) -> Computed:
    shares = availability(side, 0.001, _DRAWS, seed=1)
    low, high = np.percentile(shares, [2.5, 97.5])
    return Computed(
        float(shares.mean()),
        float(low),
        float(high),
        _DRAWS,
        f"mean of {_DRAWS} draws of independent faults, and where 95 % of draws are",
    )


def _always_available() -> Computed:
    least = min(availability(side, 0.001, _DRAWS, seed=1).min() for side in (8, 16, 32, 64))
    return exactly(
        float(least),
        f"the least of {_DRAWS} draws for 8, 16, 32 and 64 nodes a side; means are above",
    )


def _linear_in_faults() -> Computed:
    draw = np.random.default_rng(1)
    counts = np.arange(1, 25)
    means = []
    for count in counts:
        sizes = []
        for _ in range(10):
            nodes = draw.choice(64 * 64, count, replace=False)
            faults = [(int(node) // 64, int(node) % 64) for node in nodes]
            sizes.append(largest_job(64, faults).size)
        means.append(np.mean(sizes))
    return exactly(
        float(np.corrcoef(counts, means)[0, 1]),
        "correlation of the mean largest job with the faults, 1 to 24 of 64 x 64 nodes",
    )


def _best_share(times: Callable[[int, int, float], tuple[float, ...]]) -> float:
    cases = product((2, 4, 8), (8, 16, 64), (1e3, 1e6, 1e9))
    return float(np.mean([min(found) == found[-1] for found in (times(*case) for case in cases)]))


def all_reduces(mesh: int, side: int, size: float) -> tuple[float, float, float]:
    """Times of the 1D ring, 2D torus and hierarchical algorithms in section 6.4's setting."""
    group = NodeGroup(mesh, side, 800e9, 4, 300.0)
    ring = collectives.ring_1d((mesh * side) ** 2, size, 1600e9, 300.0)
    return ring, collectives.ring_2d(group, size), collectives.hierarchical(group, size)


def _spanning() -> Computed:
    """Return the best global bandwidth of plans that span all 65,536 chips of RailX4Mesh."""
    axis = Axis(64, "single-link", tuple(range(RAILX4.rails)))
    parts = [rails[:14] for rails in uneven(RAILX4, [18, 18])]
    eight = [Axis(8, "all-to-all", rails) for rails in parts]
    plans = {
        "torus": torus(RAILX4),
        "4-D HyperX of 8": configure(RAILX4, eight, eight),
        "one link a pair": configure(RAILX4, [axis], [axis]),
    }
    bounds = {name: bandwidths.all_to_all_bound(plan) / costs.PORTS for name, plan in plans.items()}
    listed = ", ".join(f"{name} {bound:.2%}" for name, bound in bounds.items())
    return exactly(
        max(bounds.values()),
        f"of plans that span 65,536 chips: {listed}; with 36 rails a HyperX of the paper's two "
        "links a pair ends at 21,904 chips",
    )


def _gain(equal: float = 1e9) -> Computed:
    found = allocation.dynamic_gain(equal, equal, 10, 400e9, switching_ns=allocation.GAP_NS)
    return exactly(found.speedup, "equal volumes, switching within 6 ms; the paper gives no gain")


def _context_ports() -> Computed:
    data = allocation.Traffic(1e9)
    ports = [
        allocation.static_allocation(data, allocation.Traffic(volume), 10, 400e9).ports[1]
        for volume in (1e7, 1e8, 1e9, 1e10)
    ]
    overlapped = allocation.Traffic(1e9, overlap_ns=5e6)
    moved = allocation.static_allocation(overlapped, allocation.Traffic(1e9), 10, 400e9).ports[1]
    grows = ports == sorted(ports) and ports[0] < ports[-1] and moved > ports[2]
    return exactly(
        float(grows),
        f"of ten ports {', '.join(map(str, ports))} go to context parallelism as its volume grows "
        f"from 1 to 1,000 % of data parallelism's; {moved} instead of {ports[2]} with 5 ms overlap",
    )


def dragonfly_21() -> Settings:
    """Return the Dragonfly of Fig. 8: 21 groups of five nodes, 20 global rails each."""
    return dragonfly(RailFabric(mesh=2, ports=2, columns=21, rows=5, radix=42))


def pairing_rule(draws: int = 200) -> float:
    """Return how often the highest with the lowest volume is a best pairing of random ones."""
    draw = random.Random(1)  # noqa: S311 (no secret is drawn)
    best = []
    for _ in range(draws):
        found = {name: 10 ** draw.uniform(0, 3) for name in ("EP", "CP", "DP", "PP")}
        order = sorted(found, key=found.__getitem__)
        pairs = allocation.best_pairing(found, 18, "sum")
        best.append(
            {frozenset(p) for p in pairs}
            == {frozenset({order[0], order[3]}), frozenset({order[1], order[2]})}
        )
    return float(np.mean(best))


def _low_diameters() -> Computed:
    fabric = RailFabric(mesh=2, ports=2, columns=9, rows=9, radix=18)
    found = [node_diameter(s) for s in (hyperx(FIVE), dragonfly_21(), split_hyperx(fabric, 2))]
    return Computed(
        max(found), min(found), max(found), 1, "HyperX 2, Dragonfly 3, 4-D HyperX 4; not the torus"
    )


def _hierarchy(group: NodeGroup, size: float) -> float:
    return collectives.hierarchical_printed(group, size) / collectives.ring_2d_printed(group, size)


def _row_bisection() -> Computed:
    fabric = RailFabric.full(128, 7, 9)
    return exactly(bandwidths.bisection(hyperx(fabric), "x") / fabric.rows, "64 nodes in a row")


def _first_hops() -> int:
    routes = _routes(4, 1, 5)
    paths = (routes.path(chip, 16 + chip) for chip in range(16))
    return max(sum(port < 4 for _, port, channel in path if channel == 0) for path in paths)


def _close(
    exact: Callable[[NodeGroup, float], float], printed: Callable[[NodeGroup, float], float]
) -> float:
    """Return a printed approximation over the exact form, for 16,384 chips and 1 GB."""
    group = NodeGroup(4, 32, 800e9, 4, 300.0)
    return printed(group, 1e9) / exact(group, 1e9)


def _node_level(group: NodeGroup, size: float) -> float:
    share = group._replace(bps=group.bps / group.mesh)
    return collectives.ring_2d(share._replace(mesh=1), size)


def _constant_in_p() -> float:
    near, far = (collectives.hyperx(NodeGroup(4, p, 800e9, 4, 300.0), 1e9) for p in (16, 64))
    return far / near


def _printed_costs() -> float:
    printed = (415.9, 395.7, 375.6, 657.2, 185.7, 45.0, 375.6, 751.1, 1314.4, 83718, 22052, 5822)
    rows = zip(_rows().values(), printed, strict=True)
    return float(np.mean([abs(row.cost / 1e6 / cost - 1) < 2e-4 for row, cost in rows]))


_VALUES: Mapping[str, Callable[[], float | tuple[float, str]]] = {
    "C01": lambda: RailFabric.full(128, 5, 13).chips,
    "C03": lambda: _rows()["railx4"].cost_per_injection(_rows()["fat-tree-2"]),
    "C04": lambda: _rows()["railx4"].cost_per_global(_rows()["fat-tree-2"]),
    "C05": lambda: _rows()["railx7"].cost,
    "C06": lambda: costs.OPTICAL_RADIX // 2,
    "C07": lambda: max(_rows()[row].chips for row in ("hx7", "rail-only", "torus-ocs")),
    "C08": lambda: 2 * RAILX7.columns,
    "C10": lambda: (1600 / 128, "32 x 400 Gbit/s are 1.6 TB/s, so many mm at 128 GB/s and mm"),
    "C16": lambda: (15_000 / 8 * 4, "four switches for eight GPUs"),
    "C17": costs.nvl72_scale_up_share,
    "C18": lambda: 2 * 3 - 1,
    "C19": costs.nvl72_scale_out_share,
    "C21": lambda: (
        bandwidths.twisted_torus_gain(8),
        "all-to-all on 16 x 8, shortest paths evenly",
    ),
    "C22": lambda: (node_diameter(torus(RailFabric.full(16, 1, 1))), "R = 16, rings wrapped"),
    "C23": lambda: node_diameter(hyperx(FIVE)),
    "C24": lambda: node_diameter(dragonfly_21()),
    "C25": lambda: bandwidths.all_to_all_bound(torus(RAILX7)),
    "C26": lambda: bandwidths.all_to_all_bound(hyperx(RailFabric(4, 2, 9, 9, 18))),
    "C27": lambda: (
        bandwidths.dragonfly_exact(RailFabric(4, 2, 64, 9, 128)),
        "the cut between groups; with minimal routing on the example of 21 groups (m = n = 2, "
        "equation 4: 2) global links allow {:.2f} and local links {:.2f}".format(
            *bandwidths.dragonfly_minimal_bound(dragonfly_21(), 21)
        ),
    ),
    "C30": lambda: (4 // 2 + 1) ** 2,
    "C33": lambda: RAILX7.switches / (RAILX7.rails * RAILX7.radix),
    "C34": lambda: RailFabric.full(128, 5, 9).chips,
    "C35": lambda: RailFabric.full(320, 2, 9).chips,
    "C36": lambda: costs.torus_3d(circuit_switched=True).chips,
    "C38": lambda: hyperx(FIVE).node_graph().number_of_nodes(),
    "C40": lambda: hyperx(RAILX7).x.shape[2],
    "C44": lambda: (
        _routes(7, 9, 64).walk().mesh,
        "all pairs of 200,704 chips, our rail numbering",
    ),
    "C45": lambda: (_first_hops(), "mesh hops in the first node, m = 4, n = 1, 25 nodes"),
    "C46": lambda: dragonfly_groups(RailFabric(2, 2, 64, 5, 128)),
    "C47": lambda: dragonfly_groups(RailFabric(7, 9, 64, 64, 128)),
    "C48": lambda: RailFabric(2, 2, columns=21, rows=5, radix=42).chips,
    "C52": lambda: 1 / bandwidths.mesh_bisection_per_port(RAILX7, 1),
    "C58": lambda: _close(collectives.ring_2d, collectives.ring_2d_printed),
    "C59": lambda: _close(collectives.hierarchical, collectives.hierarchical_printed),
    "C61": lambda: _close(_node_level, partial(collectives.node_level, dimensions=2)),
    "C60": lambda: (collectives.hierarchical_from(4), "m = 4; 4 for m = 2 and 2.33 for m = 7"),
    "C62": lambda: (
        _close(collectives.hyperx, collectives.hyperx_printed),
        "with all rails loaded alike; by the paths of Algorithm 1 flows take "
        f"{flow_model.equation_13_among(2, 2, 5):.2f} times as long (m = 2, 25 nodes), as nearest "
        "links have unequal loads",
    ),
    "C63": lambda: LISTING_1.data,
    "C66": lambda: (8 * 8 * 1e9, "8 bytes in each cycle at 1 GHz"),
    "C68": lambda: costs.PORTS * costs.PORT_BPS,
    "C71": lambda: RAILX7.rails + 1,
    "C84": lambda: (
        float(_rows()["torus"].global_share),
        "2 B_c/N over the injection bandwidth, as in the other rows",
    ),
    "C85": lambda: 2 / 4 + 1 / 4,
    "C86": lambda: _rows()["railx7"].cost_per_global(_rows()["hx7"]),
    "C87": lambda: 2 * (costs.PACKET_RADIX // 2) ** 2,
    "C88": lambda: _rows()["fat-tree-4"].cost_per_injection(_rows()["fat-tree-2"]),
    "C89": lambda: RailFabric(4, 2, 9, 9, 18).chips,
    "C97": lambda: (_best_share(all_reduces), "27 cases: m 2, 4, 8, p 8, 16, 64, V 1 kB to 1 GB"),
    "C98": lambda: (
        _hierarchy(NodeGroup(4, 16, 800e9, 4, 300.0), 1e12),
        "equation 8 over 7, m = k = 4",
    ),
    "C99": lambda: (
        all_reduces(4, 64, 1e3)[0] / all_reduces(4, 64, 1e3)[1],
        "1 kB, m = 4, p = 64",
    ),
    "C101": lambda: algorithm_2(64, [(i, i) for i in range(4)]),
    "C102": lambda: algorithm_2(64, [(3, column) for column in range(10)]),
    "C114": lambda: global_batch(LLAMA, LISTING_1),
    "C117": lambda: LISTING_1.ranks,
    "C120": lambda: len(pack(8, 8, [(1, 2), (1, 5), (4, 1), (4, 6)])),
    "M15": lambda: 2 * RailFabric(2, 2, columns=21, rows=5, radix=42).columns,
    "M28": lambda: (flow_model.equation_6(8), "flow model over equation 6, 8 ranks"),
    "M29": lambda: (flow_model.equation_7(4), "flow model on the generated torus over equation 7"),
    "M30": lambda: (
        flow_model.equation_8_among(2, 3),
        "flow model on the generated torus over the exact form of equation 8, m = 2, among nodes",
    ),
    "M32": _constant_in_p,
    "M37": lambda: (pairing_rule(), "200 random quadruples of volumes, 18 ports, sum of times"),
    "M48": lambda: (
        _printed_costs(),
        "rows of table 6 whose printed cost follows from their counts",
    ),
}


def _valued(name: str) -> Computed:
    found = _VALUES[name]()
    return exactly(*found) if isinstance(found, tuple) else exactly(float(found))


_ROWS = (
    ("C72", "fat-tree-2"),
    ("C73", "tapered-3"),
    ("C74", "hx4"),
    ("C75", "hx7"),
    ("C76", "torus-ocs"),
    ("C77", "torus"),
    ("C78", "rail-only"),
    ("C79", "railx4"),
    ("C80", "railx7"),
    ("C81", "fat-tree-4"),
    ("C82", "tapered-49"),
    ("C83", "hx7-200k"),
)

COMPUTED: Mapping[str, Callable[[], Computed]] = {
    **{name: partial(_valued, name) for name in _VALUES},
    **{name: partial(_cost, row) for name, row in _ROWS},
    **{f"{name}-per-global": partial(_ratio, row) for name, row in _ROWS},
    "C02": _low_diameters,
    "C43": _row_bisection,
    "C53": partial(_throughput_ratio, 2, 4),
    "C67": _spanning,
    "C90": partial(_throughput, 2),
    "C94": partial(_throughput_ratio, 1, 2),
    "C95": partial(_throughput_ratio, 4, 2),
    "C100": _context_ports,
    "C103": _linear_in_faults,
    "C104": partial(_availability, 64),
    "C105": _always_available,
    "C119": _gain,
}
"""Functions that compute the claims, by the name that the file of published values uses."""
