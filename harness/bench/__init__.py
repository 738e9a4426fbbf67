"""A testbed come alive: bound to hardware or a simulated world, leased, applied to, restored."""

from harness.bench.bench import Bench
from harness.bench.binding import LabTroubleError, NotHereError, bind, bind_switches
from harness.bench.fabric import Fabric, Transition

__all__ = [
    "Bench",
    "Fabric",
    "LabTroubleError",
    "NotHereError",
    "Transition",
    "bind",
    "bind_switches",
]
