"""Opus: photonic rails whose circuits follow the phases of a training step.

Ding, Lyu, Kataria and Singh, "Photonic Rails in ML Datacenters with Opus". Shim, controller and
orchestrator are values: what happens gives the next one, and the messages that it sends.
"""
