"""Opus acting in time, through the bench."""

from lightrig.harness.systems.opus.runtime.on_fabric import FabricRails, fitting_job
from lightrig.harness.systems.opus.runtime.rails import (
    Incident,
    Journal,
    Rails,
    RailsLostError,
    Wait,
)
from lightrig.harness.systems.opus.runtime.training import Trained, TrainingJob
from lightrig.instruments.jobs.traffic.training import Done, Script

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
    "fitting_job",
]
