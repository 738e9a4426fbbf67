"""Drivers: bit error testers."""
