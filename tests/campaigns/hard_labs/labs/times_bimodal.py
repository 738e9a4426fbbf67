"""One switching time of ten is 90 ms instead of 20 ms."""

from tests.campaigns.hard_labs.samples import AT_LIMIT, BELOW, SwitchingTimes, bimodal

LAB = SwitchingTimes(draw=bimodal(0.1), declined=(AT_LIMIT, BELOW))
