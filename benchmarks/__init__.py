"""What the harness itself costs: each benchmark prints a ratio against a peer or a limit."""
