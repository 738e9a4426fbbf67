"""Bit errors: gates planned from limit and confidence, curves over received power, verdicts."""

from lightrig.harness.measure.bit_errors.climate import NotWarmError, hold_temperature
from lightrig.harness.measure.bit_errors.curves import Curve
from lightrig.harness.measure.bit_errors.gates import (
    Counted,
    GatePlan,
    NothingCountedError,
    count_for,
    count_until_decided,
    plan_gate,
)
from lightrig.harness.measure.bit_errors.judging import judge_counts
from lightrig.harness.measure.bit_errors.light import (
    NoLoopbackPathError,
    Receiver,
    oma,
    plan_of_loop,
)
from lightrig.harness.measure.bit_errors.modules import telemetry_rows
from lightrig.harness.measure.bit_errors.recorder import BitErrors, Recorder, count_all
from lightrig.harness.measure.bit_errors.setup import (
    NoCountersError,
    on_port,
    on_tester,
    patterns_on,
)
from lightrig.harness.measure.bit_errors.sources import MissingParameterError, Signal, TesterChannel

__all__ = [
    "BitErrors",
    "Counted",
    "Curve",
    "GatePlan",
    "MissingParameterError",
    "NoCountersError",
    "NoLoopbackPathError",
    "NotWarmError",
    "NothingCountedError",
    "Receiver",
    "Recorder",
    "Signal",
    "TesterChannel",
    "count_all",
    "count_for",
    "count_until_decided",
    "hold_temperature",
    "judge_counts",
    "oma",
    "on_port",
    "on_tester",
    "patterns_on",
    "plan_gate",
    "plan_of_loop",
    "telemetry_rows",
]
