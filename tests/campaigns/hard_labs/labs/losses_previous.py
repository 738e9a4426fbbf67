"""Monitors answer with what they had read for the query before."""

from tests.campaigns.hard_labs.losses import Losses
from tests.campaigns.hard_labs.plants import previous_readings

LAB = Losses(plant=lambda bench, draws: previous_readings(bench))
