"""Insertion loss: every circuit of a switch against a reference, and what is wrong with it.

chain, = chains(bench, references_of(bench))
losses = measure_losses(fabric, chain)
faults = find_faults(losses, bench.testbed)
"""

from lightrig.harness.measure.insertion_loss.chains import Chain, NothingToMeasureError, chains
from lightrig.harness.measure.insertion_loss.end_to_end import PathLosses, measure_path_losses
from lightrig.harness.measure.insertion_loss.faults import Fault, find_faults, misread
from lightrig.harness.measure.insertion_loss.matrix import Loss, Losses, measure_losses
from lightrig.harness.measure.insertion_loss.monitor_references import (
    Hands,
    take_monitor_references,
)
from lightrig.harness.measure.insertion_loss.references import (
    references_of,
    simulated_references,
    take_references,
)
from lightrig.harness.measure.insertion_loss.rows import measure_insertion_loss

__all__ = [
    "Chain",
    "Fault",
    "Hands",
    "Loss",
    "Losses",
    "NothingToMeasureError",
    "PathLosses",
    "chains",
    "find_faults",
    "measure_insertion_loss",
    "measure_losses",
    "measure_path_losses",
    "misread",
    "references_of",
    "simulated_references",
    "take_monitor_references",
    "take_references",
]
