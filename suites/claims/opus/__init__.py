"""Computations of figures of opus's paper: read by `lightrig claims`, run by no suite."""
