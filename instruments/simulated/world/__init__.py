"""The simulated world: light, links, traffic, ground truth."""
