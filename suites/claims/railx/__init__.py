"""Computations of figures of railx's paper: read by `lightrig claims`, run by no suite."""
