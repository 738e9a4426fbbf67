"""Output of tools that jobs run."""
