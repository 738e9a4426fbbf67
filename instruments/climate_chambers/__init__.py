"""Drivers: climate chambers."""
