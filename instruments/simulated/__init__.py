"""The other end of the wires: a world of light and links, and a peer for each protocol."""
