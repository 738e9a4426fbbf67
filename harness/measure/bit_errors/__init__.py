"""Bit errors: gates planned from limit and confidence, curves over received power, verdicts."""

from lightrig.harness.measure.bit_errors.counting import BitErrors
from lightrig.harness.measure.bit_errors.curves import Curve
from lightrig.harness.measure.bit_errors.frame_loss import measure_frame_loss
from lightrig.harness.measure.bit_errors.light import (
    NoLoopbackPathError,
    Receiver,
    oma,
    plan_of_loop,
)
from lightrig.harness.measure.bit_errors.setup import (
    NoCountersError,
    bit_error_counter,
    measure_errors_around,
    measure_pattern_errors,
    measure_port_errors,
)
from lightrig.harness.measure.bit_errors.sources import MissingParameterError, Signal, TesterChannel
from lightrig.harness.measure.gates import NothingCountedError

__all__ = [
    "BitErrors",
    "Curve",
    "MissingParameterError",
    "NoCountersError",
    "NoLoopbackPathError",
    "NothingCountedError",
    "Receiver",
    "Signal",
    "TesterChannel",
    "bit_error_counter",
    "measure_errors_around",
    "measure_frame_loss",
    "measure_pattern_errors",
    "measure_port_errors",
    "oma",
    "plan_of_loop",
]
