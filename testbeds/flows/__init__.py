"""What traffic a fabric carries: links, flows that share them fairly, collectives in steps.

A `Network` has directed edges with capacities; a `Router` finds ways through it; `duration` says
how long a schedule of flows takes, such as `collectives.ring_all_reduce`. `closed_forms` has
what papers say of the same.
"""

from testbeds.flows.bandwidth import Collective, algorithm_bandwidth, bus_bandwidth, bus_factor
from testbeds.flows.collectives import ScheduleError, schedule_of, unequal_all_to_all
from testbeds.flows.network import Edge, Network, NetworkError, duplex, joined
from testbeds.flows.of_testbed import (
    INSIDE,
    Inside,
    RanksError,
    fabric_links,
    joined_servers,
    link_rate_bps,
    network_of,
    rank_vertices,
    slowest_rate_bps,
    stated_way,
    unjoined,
)
from testbeds.flows.routing import NoRouteError, Route, Router
from testbeds.flows.sharing import max_min
from testbeds.flows.steps import (
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
    "stated_way",
    "step_duration",
    "unequal_all_to_all",
    "unjoined",
]
