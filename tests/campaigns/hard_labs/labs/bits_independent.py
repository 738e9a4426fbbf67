"""Bit errors come one by one."""

from tests.campaigns.hard_labs.bits import AT_LIMIT, BELOW, BitErrors

LAB = BitErrors(declined=(AT_LIMIT, BELOW))
