"""Switching times follow one another, with a correlation of 0.6 from one to the next."""

from tests.campaigns.hard_labs.samples import AT_LIMIT, BELOW, SwitchingTimes, autocorrelated

LAB = SwitchingTimes(draw=autocorrelated(0.6), n=594, declined=("p95", AT_LIMIT, BELOW))
