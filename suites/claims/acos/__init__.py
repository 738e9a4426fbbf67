"""Computations of figures of acos's paper: read by `lightrig claims`, run by no suite."""
