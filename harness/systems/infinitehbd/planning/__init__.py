"""InfiniteHBD: rings of any size out of transceivers that switch, and what faults cost them.

Shou et al., InfiniteHBD: Building Datacenter-Scale High-Bandwidth Domain for LLM with Optical
Circuit Switching Transceivers, SIGCOMM 2025. Values in, values out; nodes count from 0, where
the paper counts from 1.
"""

from lightrig.harness.systems.infinitehbd.planning.architectures import (
    ARCHITECTURES,
    Architecture,
    KHop,
    waste,
)
from lightrig.harness.systems.infinitehbd.planning.bypass import RingManager, plan_of, wiring_of
from lightrig.harness.systems.infinitehbd.planning.managers import (
    ClusterManager,
    NodeFabricManager,
    Orders,
    PathChange,
)
from lightrig.harness.systems.infinitehbd.planning.placement import (
    Placement,
    orchestrate,
    place,
    place_on,
)
from lightrig.harness.systems.infinitehbd.planning.rings import (
    Path,
    bundles,
    circuits,
    gpu_ring,
    paths,
)
from lightrig.harness.systems.infinitehbd.planning.trace import (
    States,
    Trace,
    production_trace,
    states,
)
from lightrig.harness.systems.infinitehbd.planning.traffic import careless, cross_tor_share, job_of
from lightrig.harness.systems.infinitehbd.planning.wiring import (
    FatTree,
    InfiniteHbdError,
    Wiring,
    k_hop,
    powers_of_two,
)

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "ClusterManager",
    "FatTree",
    "InfiniteHbdError",
    "KHop",
    "NodeFabricManager",
    "Orders",
    "Path",
    "PathChange",
    "Placement",
    "RingManager",
    "States",
    "Trace",
    "Wiring",
    "bundles",
    "careless",
    "circuits",
    "cross_tor_share",
    "gpu_ring",
    "job_of",
    "k_hop",
    "orchestrate",
    "paths",
    "place",
    "place_on",
    "plan_of",
    "powers_of_two",
    "production_trace",
    "states",
    "waste",
    "wiring_of",
]
