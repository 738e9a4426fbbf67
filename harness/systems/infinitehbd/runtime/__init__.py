"""InfiniteHBD acting in time."""
