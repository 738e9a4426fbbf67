"""Computations of figures of mixnet's paper: read by `lightrig claims`, run by no suite."""
