"""Opus acting in time, through the bench."""

from harness.bench.opus.emulation import emulate
from harness.bench.opus.on_fabric import FabricRails, fitting_job
from harness.bench.opus.rails import Incident, Journal, Rails, RailsLostError, Wait
from harness.bench.opus.training import Trained, TrainingJob
from instruments.servers.training import Done, Script

__all__ = [
    "Done",
    "FabricRails",
    "Incident",
    "Journal",
    "Rails",
    "RailsLostError",
    "Script",
    "Trained",
    "TrainingJob",
    "Wait",
    "emulate",
    "fitting_job",
]
