"""Published systems: one package each, with its planning, computations and claims."""
