"""MixNet: circuits between servers that follow what a mixture of experts has to say.

Source: Liao et al., SIGCOMM 2025. Demand in, links and cross-connects out; no clock, no wire.
Each module says where it departs from the paper, and why.
"""
