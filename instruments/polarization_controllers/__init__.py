"""Drivers: polarization controllers."""
