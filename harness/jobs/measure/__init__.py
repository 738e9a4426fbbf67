"""Measurements of jobs."""
