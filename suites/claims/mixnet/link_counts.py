"""Link counts to compare the greedy ones with: as printed, uniform, and by an integer programme."""

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy  # whose modules are loaded when they are first used

from lightrig.harness.systems.mixnet.planning.demand import DemandError, Matrix
from lightrig.harness.systems.mixnet.planning.topology import (
    LinkCounts,
    add_link,
    checked_demand,
    free_ports,
)


def plan_links_as_printed(demand: npt.ArrayLike, degree: int | Sequence[int]) -> LinkCounts:
    """Links as Algorithm 1 of MixNet is printed, for comparison: it stops early.

    What the print leaves open is decided as in `plan_links`: the demand is known before the
    finish times are, and ties go to the larger demand, then to the lower numbers.
    """
    wanted = checked_demand(demand)
    free = free_ports(degree, len(wanted))
    links = np.zeros(wanted.shape, dtype=np.int64)
    pairs = np.argwhere(wanted).tolist()
    times = [(-np.inf, -float(wanted[a, b]), a, b) for a, b in pairs]
    heapq.heapify(times)
    while times:
        _, size, a, b = times[0]
        if not (free[a] and free[b]):
            break
        add_link(links, free, a, b)
        heapq.heapreplace(times, (size / float(links[a, b]), size, a, b))
    return links


def uniform_links(degree: int | Sequence[int], servers: int) -> LinkCounts:
    """Links that know no demand: pairs in turn, nearest numbers first, while both have ports."""
    free = free_ports(degree, servers)
    links = np.zeros((servers, servers), dtype=np.int64)
    joined = True
    while joined:
        joined = False
        for apart in range(1, servers // 2 + 1):
            for a in range(servers if 2 * apart < servers else apart):
                b = (a + apart) % servers
                if free[a] and free[b]:
                    add_link(links, free, a, b)
                    joined = True
    return links


def best_links(
    demand: npt.ArrayLike,
    degree: int | Sequence[int],
    packet: float | Sequence[float] = 1.0,
) -> LinkCounts:
    """Link counts with the least `completion`; small cases only, the problem is NP-hard.

    One binary variable for each pair and count of links says which count it has, so that the
    time demand / count is linear; one more variable is the completion time. Solved by HiGHS.
    Arguments as of `completion`. Raises `DemandError`.
    """
    wanted = np.asarray(demand, dtype=float)
    servers = len(wanted)
    free = free_ports(degree, servers)
    rates = np.broadcast_to(np.asarray(packet, dtype=float), servers)
    links = np.zeros((servers, servers), dtype=np.int64)
    pairs = [(int(a), int(b)) for a, b in zip(*np.nonzero(wanted), strict=True)]
    choices = [(k, n) for k, (a, b) in enumerate(pairs) for n in range(min(free[a], free[b]) + 1)]
    if not pairs:
        return links
    solution = _solve(wanted, pairs, choices, free, rates)
    for taken, (k, n) in zip(solution, choices, strict=False):
        if taken > 0.5:
            a, b = pairs[k]
            links[a, b] = links[b, a] = n
    return links


def _solve(
    wanted: Matrix,
    pairs: list[tuple[int, int]],
    choices: list[tuple[int, int]],
    free: list[int],
    rates: Matrix,
) -> Matrix:
    """Values of all choices, then the time, in units of the largest demand."""
    scale = float(wanted.max())
    time = len(choices)
    one = scipy.sparse.lil_array((len(pairs), time + 1))
    ports = scipy.sparse.lil_array((len(free), time + 1))
    optical = scipy.sparse.lil_array((len(pairs), time + 1))
    packet = scipy.sparse.lil_array((len(free), time + 1))
    for column, (k, n) in enumerate(choices):
        size = float(wanted[pairs[k]]) / scale
        one[k, column] = 1
        if n:
            optical[k, column] = size / n
        for end in pairs[k]:
            ports[end, column] = n
            if not n:
                packet[end, column] = size
    optical[:, [time]] = -np.ones((len(pairs), 1))
    packet[:, [time]] = -np.asarray(rates, dtype=float)[:, None]
    found = scipy.optimize.milp(
        np.eye(1, time + 1, time).ravel(),
        integrality=np.append(np.ones(time), 0),
        bounds=scipy.optimize.Bounds(0, np.append(np.ones(time), np.inf)),
        constraints=[
            scipy.optimize.LinearConstraint(one.tocsr(), 1, 1),
            scipy.optimize.LinearConstraint(ports.tocsr(), -np.inf, free),
            scipy.optimize.LinearConstraint(optical.tocsr(), -np.inf, 0),
            scipy.optimize.LinearConstraint(packet.tocsr(), -np.inf, 0),
        ],
        options={"mip_rel_gap": 1e-9},
    )
    if not found.success:
        raise DemandError(f"no link counts carry this demand: {found.message}")
    solution: Matrix = found.x
    return solution
