"""MixNet: circuits between servers that follow what a mixture of experts has to say.

Source: Liao et al., SIGCOMM 2025. Demand in, links and cross-connects out; no clock, no wire.
Each module says where it departs from the paper, and why.
"""

from lightrig.harness.systems.mixnet.planning.calendar import (
    FirstExchange,
    Knowledge,
    LayerTimes,
    Phase,
    Reconfiguration,
    calendar,
    waiting,
)
from lightrig.harness.systems.mixnet.planning.copilot import (
    Copilot,
    Estimate,
    estimate_transition,
    mean_top_k,
    top_k_accuracy,
)
from lightrig.harness.systems.mixnet.planning.cross_connects import (
    cross_connects,
    plan_region,
    plan_testbed,
)
from lightrig.harness.systems.mixnet.planning.demand import (
    DemandError,
    Placement,
    dispatched,
    pair_demand,
    server_demand,
    server_traffic,
)
from lightrig.harness.systems.mixnet.planning.diagnosis import diagnose
from lightrig.harness.systems.mixnet.planning.exchange import Transfer, all_to_all, nic_loads
from lightrig.harness.systems.mixnet.planning.gating import Gating
from lightrig.harness.systems.mixnet.planning.lanes import (
    Shares,
    exchange_time,
    lane_routes,
    lane_shares,
    routing_in,
)
from lightrig.harness.systems.mixnet.planning.nics import map_links
from lightrig.harness.systems.mixnet.planning.optimum import best_links
from lightrig.harness.systems.mixnet.planning.region import (
    Failures,
    Gpu,
    OpticalNic,
    Region,
    RegionError,
    RegionServer,
)
from lightrig.harness.systems.mixnet.planning.routing import Hop, Routing, UnreachableError
from lightrig.harness.systems.mixnet.planning.topology import (
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
    "LayerTimes",
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
