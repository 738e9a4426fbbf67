"""Fabrics of 1xN and 2x2 switches: wiring, switch states, failures, budgets, costs.

Pure functions on plain values; no clock, no instrument.
"""
