"""Rings for `lightrig simulate`: tensor parallelism of any size on them, all else on a fat tree."""

from lightrig.harness.workloads.fabrics import FatTree, Options, Rates

_RING = "6400G"
"""Rate of a GPU into its ring, of eight OCS transceivers of 800 Gbit/s (InfiniteHBD, section 4)."""


def rings(options: Options) -> FatTree:
    """Return the fabric of `infinitehbd:scale_up=6400G,oversubscription=1,leaf=64`."""
    found = FatTree(
        Rates.of(options, _RING),
        options.number("oversubscription", 1),
        int(options.number("leaf", 64)),
        ranks_a_leaf=True,
    )
    options.end()
    return found
