"""Planning and arithmetic of RailX: values in, values out.

Feng et al., RailX: A Flexible, Scalable, and Low-Cost Network Architecture for Hyper-Scale LLM
Training Systems. Each module states where it departs from the paper, and why.
"""

from lightrig.harness.systems.railx.planning.chip_graph import ChipGraph, node_diameter
from lightrig.harness.systems.railx.planning.cross_connects import (
    CrossConnect,
    Difference,
    Settings,
    dark,
)
from lightrig.harness.systems.railx.planning.hamiltonian import DecompositionError, decomposition
from lightrig.harness.systems.railx.planning.minimal_routing import (
    NoDirectLinkError,
    Routes,
    minimal_routes,
)
from lightrig.harness.systems.railx.planning.physical import (
    Fabric,
    RailPort,
    RailxError,
    SwitchPort,
)
from lightrig.harness.systems.railx.planning.scheduling import (
    Allocation,
    Job,
    availability,
    largest_job,
    pack,
    place_jobs,
)
from lightrig.harness.systems.railx.planning.topologies import (
    Axis,
    balanced,
    configure,
    dragonfly,
    hyperx,
    nearest,
    rail_rings,
    split_hyperx,
    switched_phases,
    torus,
    uneven,
)

__all__ = [
    "Allocation",
    "Axis",
    "ChipGraph",
    "CrossConnect",
    "DecompositionError",
    "Difference",
    "Fabric",
    "Job",
    "NoDirectLinkError",
    "RailPort",
    "RailxError",
    "Routes",
    "Settings",
    "SwitchPort",
    "availability",
    "balanced",
    "configure",
    "dark",
    "decomposition",
    "dragonfly",
    "hyperx",
    "largest_job",
    "minimal_routes",
    "nearest",
    "node_diameter",
    "pack",
    "place_jobs",
    "rail_rings",
    "split_hyperx",
    "switched_phases",
    "torus",
    "uneven",
]
