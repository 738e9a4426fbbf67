"""Planning and arithmetic of RailX: values in, values out.

Feng et al., RailX: A Flexible, Scalable, and Low-Cost Network Architecture for Hyper-Scale LLM
Training Systems. Each module states where it departs from the paper, and why.
"""
