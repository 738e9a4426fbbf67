"""Drivers: optical power meters."""
