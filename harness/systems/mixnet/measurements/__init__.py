"""Measurements of MixNet on a bench."""
