"""Traffic model: links, flows that share them max-min fairly, collectives in steps.

A `Network` has directed edges with capacities; a `Router` finds routes through it; `duration` is
the time of a schedule of flows, such as `collectives.ring_all_reduce`. Formulas that
check the model stand beside the claims (`suites/claims/closed_forms.py`).
"""

from lightrig.flows.bandwidth import Collective, algorithm_bandwidth, bus_bandwidth, bus_factor
from lightrig.flows.collectives import ScheduleError, schedule_of, unequal_all_to_all
from lightrig.flows.network import Edge, Network, NetworkError, duplex, joined
from lightrig.flows.of_testbed import (
    INSIDE,
    Inside,
    RanksError,
    explicit_route,
    fabric_links,
    joined_servers,
    link_rate_bps,
    network_of,
    rank_vertices,
    slowest_rate_bps,
    unjoined,
)
from lightrig.flows.routing import NoRouteError, Route, Router
from lightrig.flows.sharing import max_min
from lightrig.flows.steps import (
    FREE,
    Costs,
    Flow,
    Schedule,
    Step,
    duration,
    finish_times,
    loads,
    step_duration,
)

__all__ = [
    "FREE",
    "INSIDE",
    "Collective",
    "Costs",
    "Edge",
    "Flow",
    "Inside",
    "Network",
    "NetworkError",
    "NoRouteError",
    "RanksError",
    "Route",
    "Router",
    "Schedule",
    "ScheduleError",
    "Step",
    "algorithm_bandwidth",
    "bus_bandwidth",
    "bus_factor",
    "duplex",
    "duration",
    "explicit_route",
    "fabric_links",
    "finish_times",
    "joined",
    "joined_servers",
    "link_rate_bps",
    "loads",
    "max_min",
    "network_of",
    "rank_vertices",
    "schedule_of",
    "slowest_rate_bps",
    "step_duration",
    "unequal_all_to_all",
    "unjoined",
]
