"""Topology selection by the servers themselves."""
