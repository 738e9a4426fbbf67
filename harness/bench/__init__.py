"""The bench: a testbed bound to hardware or a simulated world, leased, configured and restored."""

from lightrig.harness.bench.assembly import UnsupportedHostError
from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.binding import LabUnavailableError, bind, bind_only
from lightrig.harness.bench.fabric import Fabric, Transition

__all__ = [
    "Bench",
    "Fabric",
    "LabUnavailableError",
    "Transition",
    "UnsupportedHostError",
    "bind",
    "bind_only",
]
