"""Simulated programs of jobs."""
