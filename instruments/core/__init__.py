"""Instrument base, capabilities, errors, registry and endpoints."""
