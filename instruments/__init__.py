"""Capabilities, drivers, wires, clocks, servers and simulated devices."""
