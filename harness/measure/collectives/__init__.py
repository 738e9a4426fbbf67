"""Collectives: how long they take and what of the line rate they use, by size and topology."""

from lightrig.flows import Collective
from lightrig.harness.measure.collectives.sweep import (
    Sweep,
    UncheckedResultsError,
    WrongResultsError,
    doubling,
    measure_collective,
    rows,
    sweep,
)
from lightrig.harness.measure.collectives.topology import Topology, topology
from lightrig.instruments.core.collectives import (
    CollectiveCall,
    CollectiveFailedError,
    CollectiveMeasurement,
    CollectiveRunner,
)

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
    "measure_collective",
    "rows",
    "sweep",
    "topology",
]
