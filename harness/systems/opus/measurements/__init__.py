"""Measurements of Opus on a bench."""
