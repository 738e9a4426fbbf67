"""Capabilities of jobs."""
