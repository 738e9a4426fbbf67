"""Mechanisms of ACOS's paper that are properties of its graphs: expanders and tori."""

from itertools import product

from lightrig.harness.claims.computed import Computed, exactly
from lightrig.harness.systems.acos.planning.broadcasts import breadth_first_broadcast, torus
from lightrig.harness.systems.acos.planning.expanders import after_switch_failures, splittable

_OPTIMAL = 1e-6


def expander_switches() -> Computed:
    """Return the share of expanders that stay within four hops without any one of their 2x2."""
    worst = {
        (half, split): max(after_switch_failures(splittable(half, seed=1), split=split))[0]
        for half, split in product((8, 9, 16, 32), (False, True))
    }
    listed = ", ".join(
        f"{'split' if split else 'merged'} 2 x {half}: {diameter}"
        for (half, split), diameter in worst.items()
    )
    return exactly(
        sum(diameter <= 4 for diameter in worst.values()) / len(worst),
        f"each 2x2 in turn; no GPU is cut off. Greatest diameters: {listed}",
    )


def broadcasts() -> Computed:
    """Return the share of tori on which a breadth-first broadcast meets the bandwidth bound."""
    found = {
        sizes: breadth_first_broadcast(torus(sizes)) for sizes in product((4, 8, 16), (2, 4, 8))
    }
    optimal = [abs(each.relative - 1) < _OPTIMAL for each in found.values()]
    return exactly(
        sum(optimal) / len(optimal),
        f"{sum(optimal)} of {len(optimal)} tori of 4, 8 and 16 by 2, 4 and 8 GPUs; on those with a "
        f"dimension of length 2 it takes up to {max(each.relative for each in found.values()):.3f} "
        f"times the bound. {found[16, 8].steps} steps on 16 x 8, where a ring has 127",
    )
