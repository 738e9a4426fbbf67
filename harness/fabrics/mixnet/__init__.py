"""MixNet: circuits between servers that follow what a mixture of experts has to say.

Source: Liao et al., SIGCOMM 2025. Demand in, links and cross-connects out; no clock, no wire.
Each module says where it departs from the paper, and why.
"""

from harness.fabrics.mixnet.all_reduce import Move, all_reduce
from harness.fabrics.mixnet.calendar import (
    FirstExchange,
    Knowledge,
    LayerTimes,
    Phase,
    Reconfiguration,
    calendar,
    waiting,
)
from harness.fabrics.mixnet.copilot import (
    Copilot,
    Estimate,
    estimate_transition,
    mean_top_k,
    top_k_accuracy,
)
from harness.fabrics.mixnet.demand import (
    DemandError,
    Placement,
    dispatched,
    pair_demand,
    server_demand,
    server_traffic,
)
from harness.fabrics.mixnet.diagnosis import diagnose
from harness.fabrics.mixnet.exchange import Transfer, all_to_all, nic_loads
from harness.fabrics.mixnet.gating import Gating
from harness.fabrics.mixnet.lanes import (
    LaneHop,
    LaneRoutes,
    Shares,
    exchange_time,
    lane_routes,
    lane_shares,
    routing_in,
)
from harness.fabrics.mixnet.nics import map_links
from harness.fabrics.mixnet.optimum import best_links
from harness.fabrics.mixnet.planning import cross_connects, plan_region, plan_testbed
from harness.fabrics.mixnet.region import (
    Failures,
    Gpu,
    OpticalNic,
    Region,
    RegionError,
    RegionServer,
)
from harness.fabrics.mixnet.routing import Hop, Routing, UnreachableError
from harness.fabrics.mixnet.topology import (
    completion,
    plan_links,
    plan_links_as_printed,
    uniform_links,
)

__all__ = [
    "Copilot",
    "DemandError",
    "Estimate",
    "Failures",
    "FirstExchange",
    "Gating",
    "Gpu",
    "Hop",
    "Knowledge",
    "LaneHop",
    "LaneRoutes",
    "LayerTimes",
    "Move",
    "OpticalNic",
    "Phase",
    "Placement",
    "Reconfiguration",
    "Region",
    "RegionError",
    "RegionServer",
    "Routing",
    "Shares",
    "Transfer",
    "UnreachableError",
    "all_reduce",
    "all_to_all",
    "best_links",
    "calendar",
    "completion",
    "cross_connects",
    "diagnose",
    "dispatched",
    "estimate_transition",
    "exchange_time",
    "lane_routes",
    "lane_shares",
    "map_links",
    "mean_top_k",
    "nic_loads",
    "pair_demand",
    "plan_links",
    "plan_links_as_printed",
    "plan_region",
    "plan_testbed",
    "routing_in",
    "server_demand",
    "server_traffic",
    "top_k_accuracy",
    "uniform_links",
    "waiting",
]
