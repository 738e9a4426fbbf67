"""Topology selection under traffic: its rows and how they come about."""
