"""Simulated devices, each with the protocol and the behaviour of one model."""
