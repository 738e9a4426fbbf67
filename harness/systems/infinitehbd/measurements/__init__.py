"""Measurements of InfiniteHBD on a bench."""
