"""Bit errors come in bursts of 4 in the mean, as behind an equalizer."""

from tests.campaigns.hard_labs.bits import AT_LIMIT, BELOW, BitErrors, bursts

LAB = BitErrors(errors=bursts(4), declined=("ratio", AT_LIMIT, BELOW))
