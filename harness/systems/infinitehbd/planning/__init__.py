"""InfiniteHBD: rings of any size out of transceivers that switch, and what faults cost them.

Shou et al., InfiniteHBD: Building Datacenter-Scale High-Bandwidth Domain for LLM with Optical
Circuit Switching Transceivers, SIGCOMM 2025. Values in, values out; nodes count from 0, where
the paper counts from 1.
"""

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
from lightrig.harness.systems.infinitehbd.planning.wiring import (
    FatTree,
    InfiniteHbdError,
    Wiring,
    k_hop,
    powers_of_two,
)

__all__ = [
    "ClusterManager",
    "FatTree",
    "InfiniteHbdError",
    "NodeFabricManager",
    "Orders",
    "Path",
    "PathChange",
    "Placement",
    "RingManager",
    "Wiring",
    "bundles",
    "circuits",
    "gpu_ring",
    "k_hop",
    "orchestrate",
    "paths",
    "place",
    "place_on",
    "plan_of",
    "powers_of_two",
    "wiring_of",
]
