"""Drivers of optical switches, one file a model family."""
