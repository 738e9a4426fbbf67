"""Simulated servers: their files, ports, programs and probe."""
