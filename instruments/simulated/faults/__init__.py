"""Fault injection on wires and in the lab, and replay of recorded traces."""
