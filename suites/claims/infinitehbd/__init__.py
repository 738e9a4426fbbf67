"""Computations of figures of infinitehbd's paper: read by `lightrig claims`, run by no suite."""
