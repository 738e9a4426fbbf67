"""Measurements by name, bound to an open testbed: what a test and a notebook take alike.

The name is that of the plugin's fixture and of the attribute of a notebook's lab.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pkgutil import resolve_name
from typing import Any

_FUNCTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "bring_up": ("bring_up", ("fabric", "links")),
    "measure_reconfiguration": ("reconfiguration", ("fabric", "links", "measure")),
    "measure_outage": ("outage", ("fabric", "links", "measure")),
    "measure_power": ("power", ("bench", "measure")),
    "measure_insertion_loss": ("insertion_loss.rows", ("fabric", "measure")),
    "measure_path_losses": ("insertion_loss.end_to_end", ("fabric", "measure")),
    "measure_fiber_losses": ("fiber_losses", ("fabric", "measure")),
    "measure_path_changes": ("path_changes", ("fabric", "measure")),
    "measure_switching": ("switching_times", ("fabric", "measure")),
    "measure_switch_optics": ("switch_optics", ("fabric", "measure")),
    "measure_telemetry": ("transceivers", ("clock", "measure")),
    "hold_temperature": ("climate", ("clock", "measure")),
    "bit_error_counter": ("bit_errors.setup", ("fabric", "measure")),
    "measure_port_errors": ("bit_errors.setup", ("bench", "measure")),
    "measure_frame_loss": ("bit_errors.frame_loss", ("bench", "measure")),
    "measure_signal_quality": ("signal_quality", ("bench", "measure")),
    "measure_errors_around": ("bit_errors.setup", ("fabric", "links", "measure")),
    "measure_pattern_errors": ("bit_errors.setup", ("bench", "measure")),
}
"""The module below `harness.measure` of each, and the parts of an open testbed that it takes."""

NAMES = tuple(_FUNCTIONS)


def parts_of(name: str) -> tuple[str, ...]:
    """Return the parts of an open testbed that a measurement takes first, in their order."""
    return _FUNCTIONS[name][1]


def bound(name: str, *parts: Any) -> Callable[..., Any]:
    """Return a measurement that has its first arguments, those of `parts_of`.

    Its module is loaded now, and no earlier.
    """
    module, _ = _FUNCTIONS[name]
    return partial(resolve_name(f"lightrig.harness.measure.{module}:{name}"), *parts)
