"""Monitors answer with what they had read for the query before."""

from tests.campaigns.hard_labs.lab_faults import previous_readings
from tests.campaigns.hard_labs.losses import Losses

LAB = Losses(inject=lambda bench, draws: previous_readings(bench))
