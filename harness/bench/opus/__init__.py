"""Opus acting in time, through the bench."""

from harness.bench.opus.emulation import emulate
from harness.bench.opus.on_fabric import FabricRails, fitting_job
from harness.bench.opus.rails import Incident, Journal, Rails, RailsLostError, Wait

__all__ = [
    "FabricRails",
    "Incident",
    "Journal",
    "Rails",
    "RailsLostError",
    "Wait",
    "emulate",
    "fitting_job",
]
