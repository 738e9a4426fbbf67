"""Selected topologies for `lightrig simulate`: each rank moves its own switches (section 4.4).

Rings and lines have a rank's whole rate; all-to-alls go over an expander, where others forward
them. A torus of three dimensions, which never changes, has a third of the rate for each.
"""

from collections.abc import Callable, Mapping
from functools import partial

from lightrig.harness.systems.acos.planning.exchanges import (
    expander_slowdown,
    switch_slowdown,
    torus_slowdown,
)
from lightrig.harness.systems.acos.planning.optics import FabricError as ExchangeError
from lightrig.harness.workloads.fabrics import FabricError, Options, Rates, Selected
from lightrig.harness.workloads.graph import Workload

_DIMENSIONS = 3


def selected_topologies(options: Options) -> Selected:
    """Return the fabric of `acos:scale_out=400G,skew=0.3,seed=2`: a rank's links are of one kind.

    skew: spread of the receivers of all-to-alls, drawn by `seed`, as is the expander.
    """
    found = topologies(
        Rates.of(options), options.number("skew", 0.0, 0.0), int(options.number("seed", 1))
    )
    options.end()
    return found


def topologies(rates: Rates, skew: float = 0.0, seed: int = 1) -> Selected:
    """Return the same of rates."""

    def timed(slowdown: Callable[[int, float, int], float], ranks: int) -> float:
        try:
            return slowdown(ranks, skew, seed) * switch_slowdown(ranks, skew, seed)
        except ExchangeError as error:
            raise FabricError(f"acos: {error}") from None

    loads = (
        f"receivers of all-to-alls are drawn, as exp({skew:g} x) with x normal: not measured"
        if skew
        else "all-to-alls are even",
    )
    return Selected(
        rates,
        _thirds,
        ("selected", "torus", "packet"),
        {
            "selected": partial(timed, expander_slowdown),
            "torus": partial(timed, torus_slowdown),
            "packet": lambda ranks: switch_slowdown(ranks, skew, seed),
        },
        {
            "selected": (
                f"all-to-alls go over an expander of degree 8, drawn by seed {seed}, on shortest "
                "paths; what ranks forward for others is part of their own time",
                *loads,
            ),
            "torus": ("a torus of three dimensions, a third of the rate for each kind", *loads),
            "packet": loads,
        },
    )


def _thirds(workload: Workload) -> Mapping[str, float]:
    # An all-to-all crosses all dimensions, and has all links.
    return dict.fromkeys(("dp", "pp", "cp"), 1 / _DIMENSIONS)
