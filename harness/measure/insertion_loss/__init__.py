"""Insertion loss: every circuit of a switch against a reference, and what is wrong with it.

chain, = chains(bench, references_of(bench))
losses = measure_losses(fabric, chain)
faults = find_faults(losses, bench.testbed)
"""
