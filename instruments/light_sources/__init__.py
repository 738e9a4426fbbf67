"""Drivers: light sources."""
