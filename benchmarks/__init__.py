"""Costs of the harness itself: each benchmark prints a ratio against a peer or a limit."""
