"""Bit errors come in bursts of 30 in the mean, some 30 of them."""

from tests.campaigns.hard_labs.bits import AT_LIMIT, BELOW, BitErrors, bursts

LAB = BitErrors(errors=bursts(30), mean=900.0, declined=("ratio", AT_LIMIT, BELOW))
