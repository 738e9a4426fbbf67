"""Losses are measured by monitors that noise, offset and drift as their references say."""

from tests.campaigns.hard_labs.losses import Losses

LAB = Losses()
