"""Switching times are independent of each other."""

from tests.campaigns.hard_labs.samples import AT_LIMIT, BELOW, SwitchingTimes

LAB = SwitchingTimes(declined=(AT_LIMIT, BELOW))
