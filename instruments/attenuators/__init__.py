"""Drivers: optical attenuators."""
