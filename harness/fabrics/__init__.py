"""The control planes of published systems: demand in, plan out, in plain values.

What acts in time does so through the bench.
"""
