"""Drivers: oscilloscopes."""
