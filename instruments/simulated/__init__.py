"""Simulated instruments: a world of light and links, and devices on real wires."""
