"""Collectives: how long they take and what of the line rate they use, by size and topology."""

from harness.measure.collectives.sweep import (
    Sweep,
    UncheckedResultsError,
    WrongResultsError,
    doubling,
    rows,
    sweep,
)
from harness.measure.collectives.topology import Topology, topology
from instruments.collectives import (
    CollectiveCall,
    CollectiveFailedError,
    CollectiveMeasurement,
    CollectiveRunner,
)
from testbeds.flows import Collective

__all__ = [
    "Collective",
    "CollectiveCall",
    "CollectiveFailedError",
    "CollectiveMeasurement",
    "CollectiveRunner",
    "Sweep",
    "Topology",
    "UncheckedResultsError",
    "WrongResultsError",
    "doubling",
    "rows",
    "sweep",
    "topology",
]
