"""Mechanisms of ACOS's paper: the share of cases in which each works as described there."""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import product

import numpy as np

from lightrig.harness.claims.computed import Computed, exactly, share
from lightrig.harness.systems.acos.claims_data_centre import (
    both_failures,
    double_offsets,
    hall,
    hall_cases,
    hall_node_failures,
    offsets_matched,
    rack_failures,
)
from lightrig.harness.systems.acos.claims_graphs import broadcasts, expander_switches
from lightrig.harness.systems.acos.planning import availability, costs
from lightrig.harness.systems.acos.planning.budgets import worst_circuit
from lightrig.harness.systems.acos.planning.datacentre import Hall, build_hall
from lightrig.harness.systems.acos.planning.expanders import (
    diameter_and_mean,
    random_regular,
    splittable,
)
from lightrig.harness.systems.acos.planning.failures import avoidable_switches, recover, suspects
from lightrig.harness.systems.acos.planning.optics import selected
from lightrig.harness.systems.acos.planning.performance import (
    MODELS,
    mesh_edges,
    slowdown,
    torus_edges,
    uniform,
    without,
)
from lightrig.harness.systems.acos.planning.rack import CLUSTERS, Degrees, Rack, build
from lightrig.harness.systems.acos.planning.rack_plans import configure, supported, topology_errors
from lightrig.harness.systems.acos.planning.rings import BACKUP, NODES, shifted
from lightrig.harness.systems.acos.planning.selection_control import explore, start_times

ORTHOGONAL = {"H": [(0, 1), (2, 3)], "V": [(0, 2), (1, 3)]}
"""Four servers in two orthogonal pairs of rings."""


@cache
def rack(name: str) -> Rack:
    """Cluster of the paper by its number of GPUs."""
    return build(CLUSTERS[name])


@cache
def _outcomes(name: str) -> Mapping[Degrees, bool]:
    made = rack(name)
    return {
        degrees: not topology_errors(made, configure(made, degrees))
        for degrees in supported(made.spec)
    }


def _configured(name: str, wanted: Callable[[Degrees], bool] = lambda _: True) -> list[bool]:
    return [whole for degrees, whole in _outcomes(name).items() if wanted(degrees)]


@cache
def node_failures(tp: int) -> tuple[bool, ...]:
    """Whether each of nine spare nodes of the 72-GPU rack leaves all topologies whole."""
    made = rack("72")
    wanted = [d for d in supported(made.spec) if d.tp == tp and d.ep == 16][-1]
    return tuple(
        not topology_errors(made, configure(made, wanted, [node])) for node in range(NODES + 1)
    )


def _one_topology_at_a_time() -> Computed:
    made = rack("64")
    plan = configure(made, Degrees(8, 4, 2, 16))
    lit = []
    for topology, lanes in (("TP", 8), ("DP", 8), ("EP", 8)):
        states = selected(made.fabric, plan.states, plan.choice[topology])  # type: ignore[index]
        lit += ((made.fabric.trace(states).arrives >= 0).sum(axis=1) == lanes).tolist()
    return share(lit, "GPUs whose eight lanes are all lit by the one topology selected")


def _half_switched() -> Computed:
    made = rack("64")
    plan = configure(made, Degrees(8, 4, 2, 16))
    states = selected(made.fabric, plan.states, plan.choice["TP"])
    before = made.fabric.trace(states).arrives >= 0
    cases = []
    for gpu in range(0, 64, 7):
        wrong = states.copy()
        made.fabric.of(wrong, "select-receive")[gpu, 3] = made.topology("DP")
        after = made.fabric.trace(wrong).arrives >= 0
        cases.append(int(before.sum() - after.sum()) == 1)
    return share(cases, "one receive switch left behind darkens one fiber and no other")


@cache
def selection_is_safe() -> Computed:
    """No server runs before its neighbours, in every order of four servers' moves."""
    programs = (["H", "V", "H"], ["H", "H", "V"], ["V", "H", "V"])
    found = [explore(ORTHOGONAL, [list(p)] * 4) for p in programs]
    bare = explore(ORTHOGONAL, [["H", "V", "H"]] * 4, numbered=False)
    return share(
        [not each.mismatches and not each.blocked for each in found],
        f"{sum(each.states for each in found):,} states of 4 servers. By light alone, as printed, "
        f"{bare.mismatches} of {bare.states:,} states have neighbours in different collectives: a "
        "link to a late neighbour is lit again after another topology; numbers are exchanged here",
    )


def _dead_server() -> Computed:
    found = explore(ORTHOGONAL, [["H", "V", "H"]] * 4, dead_from={3: 1})
    wrong = explore(ORTHOGONAL, [["H", "V", "H"]] * 3 + [["V", "H", "H"]])
    return share(
        [not found.mismatches, bool(found.blocked), not wrong.mismatches, bool(wrong.blocked)],
        "a dead or wrong server blocks its partners and their partners, and delivers nothing "
        "wrongly; a timeout must end the wait",
    )


def _reconfigurations() -> Computed:
    found = explore(ORTHOGONAL, [["H", "H", "V", "V", "H"]] * 4)
    return share(
        [n == 3 for n in found.reconfigurations.values()], "five collectives, three changes"
    )


def _barrier() -> Computed:
    programs = [["H", "V"] * 8] * 4
    random = np.random.default_rng(1)
    compute = random.integers(1_000_000, 20_000_000, (4, 16)).tolist()
    free = start_times(ORTHOGONAL, programs, compute, 8_000_000)
    with_barrier = start_times(ORTHOGONAL, programs, compute, 8_000_000, barrier=True)
    cases = [a[-1] <= b[-1] for a, b in zip(free, with_barrier, strict=True)]
    gain = max(map(max, with_barrier)) / max(map(max, free)) - 1
    return share(cases, f"the barrier costs {gain:.1%} here, 4 servers, 1 to 20 ms of computation")


def _expander_cases(*halves: int) -> list[bool]:
    found = []
    for half in halves:
        made = splittable(half, seed=1)
        for links, nodes in ((made.merged, made.nodes), (made.split, made.nodes)):
            degree = np.bincount(np.array(links).ravel(), minlength=nodes)
            found.append(bool((degree == 8).all()))
        crossing = [e for e in made.merged if (e[0] < half) != (e[1] < half)]
        found.append(bool((np.bincount(np.array(crossing).ravel()) == 4).all()))
        found.append(all((u < half) == (v < half) for u, v in made.split))
    return found


def _shift_by_one() -> Computed:
    cases = []
    for tp, failed, left in product((4, 8), range(NODES + 1), (False, True)):
        places = shifted(tp, failed, left=left)
        steps = {
            min((node - rank) % 9, (rank - node) % 9)
            for rank, node in enumerate(places)
            if node != BACKUP
        }
        cases.append(failed not in places and len(set(places)) == 8 and steps <= {0, 1})
    return share(cases, "nodes that fail, TP 4 and 8; the task at a ring's end moves to the backup")


def _idle_link() -> Computed:
    made = rack("64")
    plan = configure(made, Degrees(8, 2, 4, 16))
    trace = made.fabric.trace(selected(made.fabric, plan.states, plan.choice["PP"]))
    first, after = made.gpu[1, 0], set(made.gpu[2, 0].tolist())
    lit = [set(trace.gpus[gpu, made.half("A")].tolist()) <= after for gpu in first]
    return share(lit, "the unused link between stages stays lit: link-up there means nothing")


def _avoidable() -> Computed:
    made = rack("72")
    free, always = avoidable_switches(made, Degrees(8, 2, 4, 16))
    return exactly(
        len(free) / (len(free) + len(always)),
        f"{len(free):,} of {len(free) + len(always):,} switches of TP, DP and PP with TP 8, PP 2. "
        "A 2x2 on the doubled merge points of DP carries links of two nodes; one can be spared",
    )


def _blast() -> Computed:
    made = rack("72")
    job = Degrees(8, 4, 2, 16)
    return share(
        [
            recover(made, job, list(made.gpu[:, :, node].reshape(-1))).plan is not None
            for node in range(NODES)
        ],
        "a node fails whole: 7 good GPUs rest with each failed one",
    )


def _localised() -> Computed:
    made = rack("72")
    plan = configure(made, Degrees(8, 4, 2, 16))
    states = selected(made.fabric, plan.states, plan.choice["TP"])
    crossed = made.fabric.crossed(states)
    exchanges = {
        switch
        for array in made.fabric.arrays.values()
        if array.kind == "2x2"
        for switch in range(array.first, array.first + array.count)
    }
    sample = [s for s in sorted(crossed) if s in exchanges and len(crossed[s]) == 2][:6]
    return share(
        [suspects(made, plan, "TP", crossed[s]) == [s] for s in sample],
        "2x2 switches that two lit fibers pass are found alone; a 1xN is found together with the "
        "other switches of its one fiber, and separated from them by a second topology",
    )


def _degraded_expander() -> Computed:
    made = splittable(9, seed=1)
    cases = []
    for failed in range(18):
        remaining = [n for n in range(18) if n != failed]
        number = {node: i for i, node in enumerate(remaining)}
        links = [(number[u], number[v]) for u, v in without(made.merged, [failed])]
        cases.append(diameter_and_mean(17, links)[0] <= 3)
    return share(cases, "18 GPUs, each failed in turn: the rest stays connected within three hops")


def _half_cluster() -> Computed:
    made = rack("16")
    cases = []
    for failed in range(16):
        found = recover(made, Degrees(8, 1, 2), [failed])
        assert found.degraded is not None
        cases.append(found.gpus == 8 and not topology_errors(made, found.degraded))
    return share(cases, "any GPU: the half without it keeps rings of 4 and 2")


def _two_nodes_lost() -> Computed:
    made = rack("72")
    cases = []
    for pair in ((0, 1), (2, 6), (8, 3)):
        found = recover(made, Degrees(8, 4, 2, 16), pair)
        left = found.degraded
        cases.append(left is not None and found.gpus == 32 and not topology_errors(made, left))
    return share(cases, "two nodes lost: half of the nodes run TP 4 with half of the replicas")


def _all_to_all_order() -> Computed:
    made = splittable(8, seed=1)
    expander = slowdown(range(16), made.merged, uniform(16))
    torus = slowdown(range(16), torus_edges(4, 2, 2), uniform(16))
    mesh = slowdown(range(16), mesh_edges(16), uniform(16))
    note = f"16 GPUs, over a switch: mesh {mesh:.2f}, expander {expander:.2f}, torus {torus:.2f}"
    return share([mesh <= expander, expander < torus], f"{note} (model)")


def _splitting_isolates() -> Computed:
    made = splittable(8, seed=1)
    both = np.zeros((16, 16))
    both[:8, :8] = both[8:, 8:] = uniform(8)
    shared = slowdown(range(16), made.merged, both)
    alone = slowdown(range(8), [e for e in made.split if max(e) < 8], uniform(8))
    return share(
        [alone < shared], f"two jobs of 8: {shared:.2f} unsplit, {alone:.2f} split (model)"
    )


def _monte_carlo() -> Computed:
    node, in_rack, group = availability.simulated_failures(0.01, 20_000, seed=1)
    exact = [availability.node_fails(0.01), availability.rack_fails(0.01)]
    exact.append(availability.group_fails(0.01))
    cases = []
    for count, chance in zip((node, in_rack, group), exact, strict=True):
        spread = 4 * (20_000 * chance * (1 - chance)) ** 0.5
        cases.append(abs(count - 20_000 * chance) <= spread)
    return share(cases, "closed forms against 20,000 draws at 1 % of GPUs faulty, within 4 sigma")


def _depths() -> Computed:
    deepest = []
    for name in ("16", "64", "72"):
        made = rack(name)
        settings = [
            selected(made.fabric, plan.states, plan.choice[topology])  # type: ignore[index]
            for degrees in supported(made.spec)[::3]
            for plan in (configure(made, degrees),)
            for topology in made.selection.topologies
        ]
        deepest.append(worst_circuit(made.fabric, settings).depth)
    return share(
        [depth <= 5 for depth in deepest],
        f"16, 64 and 72 GPUs: {', '.join(map(str, deepest))} switches at most; losses are assumed",
    )


def _products() -> Computed:
    sizes = {name: 1024 if name.startswith("Llama-4") else 64 for name in MODELS}
    return share(
        [m.tp * m.pp * m.dp == sizes[name] for name, m in MODELS.items()],
        "TP x PP x DP; of experts as well",
    )


def _torus_shares() -> Computed:
    ring = 2 * 3 / 4 / (1 / 2)  # bytes over a third of the links, two of six, against all of them
    return exactly(ring / (2 * 3 / 4 / (3 / 2)), "a third of the links serves one dimension")


MECHANISMS: Mapping[str, Callable[[], Computed]] = {
    "m01": _one_topology_at_a_time,
    "m02": _half_switched,
    "m03": selection_is_safe,
    "m04": lambda: share(
        [
            sum(
                count
                for (purpose, _, _), count in rack(n).fabric.counts().items()
                if purpose == "Topology selection"
            )
            == rack(n).spec.gpus * 2 * w
            for n, w in (("16", 2), ("64", 8))
        ],
        "a selection switch for each of twice as many fibers as lanes",
    ),
    "m05": lambda: share(_configured("64", lambda d: d.ep == 16), "eight fiber rings, all lanes"),
    "m06": broadcasts,
    "m07": lambda: share([not any(d == "PP" for _, d, _ in rack("64").fabric.counts())]),
    "m08": lambda: share(
        [diameter_and_mean(n, random_regular(n, 8, s))[0] <= 3 for n in (16, 32) for s in range(5)],
        "connected, simple, 8-regular, seeded; at most three hops",
    ),
    "m09": lambda: share(_configured("64", lambda d: d.tp != 16 and d.ep == 16)),
    "m10": lambda: share(
        [
            count == 16 * cell.hall.columns * cell.hall.nodes // 4
            for cell in (hall(2), hall(8))
            for (why, where, _), count in cell.fabric.counts().items()
            if (why, where) == ("TP 8-16", "DP")
        ],
        "four fibers a ring cut: 16 for four rings",
    ),
    "m11": _idle_link,
    "m12": lambda: share(_expander_cases(8, 9)),
    "m13": lambda: share(
        [4 * len(splittable(n, 1).pairs) == len(splittable(n, 1).merged) for n in (8, 9)],
        "pairs of links are a quarter of the links, two fibers each",
    ),
    "m14": lambda: share(
        [
            {frozenset(e) for e in splittable(8, s).split if max(e) < 8}
            == {frozenset(e) for e in mesh_edges(8)}
            for s in range(5)
        ],
        "28 pairs in each half; the spare lane doubles four links",
    ),
    "m15": lambda: share(hall_cases(hall(2), [(8, 8, ep) for ep in (16, 32, 64)])),
    "m16": lambda: share(_configured("64")),
    "m17": lambda: share(
        hall_cases(hall(2), product((4, 8, 16), (4, 8), (16,))),
        "TP changes rings in the rack, PP those between racks",
    ),
    "m18": lambda: share(node_failures(8), "spare nodes, TP 8"),
    "m19": _shift_by_one,
    "m20": lambda: offsets_matched(double=False),
    "m21": double_offsets,
    "m22": lambda: share(_configured("64", lambda d: d.pp == 1), "PP 1 lends chain links to DP"),
    "m23": lambda: share(node_failures(4), "spare nodes, TP 4, one backup for both halves"),
    "m24": rack_failures,
    "m25": _degraded_expander,
    "m26": lambda: share(
        [rack("72").fabric.counts()["TP 4-8", "TP", "2x2"] == 8 * 8 * 3],
        "eight rings of eight fibers, three sets for each; a ring with two backups is not built",
    ),
    "m28": _avoidable,
    "m28-expander": expander_switches,
    "m29": _blast,
    "m30": lambda: share(
        [
            all(
                a.name in {"select-transmit", "select-receive"}
                for a in rack("72").fabric.arrays.values()
                if a.purpose == "Topology selection"
            ),
            _configured("64", lambda d: d.pp == 4).count(False) == 0,
        ],
        "phases differ in the states of selection switches alone",
    ),
    "m31": selection_is_safe,
    "m32": _reconfigurations,
    "m34": _depths,
    "m35": lambda: share(_configured("16")),
    "m36": _half_cluster,
    "m37": lambda: share(_configured("64") + _configured("128", lambda d: (d.tp, d.pp) != (16, 2))),
    "m38": lambda: share(node_failures(8), "spare nodes; expanders keep their links"),
    "m39": lambda: share(node_failures(4) + node_failures(16), "spare nodes, TP 4 and 16"),
    "m40": lambda: share(node_failures(4), "spare nodes; DP rings merge along a cycle of nodes"),
    "m41": lambda: offsets_matched(double=False),
    "m42": lambda: share(hall_cases(hall(8), [(8, 8, 64), (4, 4, 16), (16, 8, 32)])),
    "m43": lambda: share(
        hall_cases(build_hall(Hall(2, (2, 2))), [(8, 8, 64), (16, 4, 16)]),
        "eight racks a stage, 4D; 512 racks in the benchmark",
    ),
    "m44": hall_node_failures,
    "m45": rack_failures,
    "m46": both_failures,
    "m47": lambda: share(
        [Hall(8, rack_backups=True).columns == 72, Hall(8, (4, 2), True, True).gpus == 41_472]
    ),
    "m48": lambda: share(
        [abs(float(costs.switch_cost(rack("64").fabric)) - 1495) < 0.01],
        "counted from the generated fabric",
    ),
    "m49": lambda: share([costs.Ethernet(n).tiers == t for n, t in ((64, 1), (72, 2), (4096, 3))]),
    "m50": lambda: share([costs.Baselines(8, 4).matrix < costs.Baselines(8, 4).robotic]),
    "m54": _barrier,
    "m55": lambda: share([slowdown(range(n), mesh_edges(n), uniform(n)) < 1.001 for n in (4, 16)]),
    "m56": _torus_shares,
    "m58": _all_to_all_order,
    "m60": _splitting_isolates,
    "m61": lambda: exactly(0.5, "one fiber a lane instead of two, each with its switches"),
    "m62": _localised,
    "m63": _monte_carlo,
    "m64": lambda: share(
        [31.5 < availability.years_of_wear(1e10, 10) < 32],
        "of a switch that moves ten times a second",
    ),
    "m65": _two_nodes_lost,
    "m66": _products,
    "dead": _dead_server,
}
"""Computation of each mechanism, by its identifier in results/published/acos.yaml."""
