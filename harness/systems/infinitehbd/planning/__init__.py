"""InfiniteHBD: rings of any size out of transceivers that switch, and what faults cost them.

Shou et al., InfiniteHBD: Building Datacenter-Scale High-Bandwidth Domain for LLM with Optical
Circuit Switching Transceivers, SIGCOMM 2025. Values in, values out; nodes count from 0, where
the paper counts from 1.
"""
