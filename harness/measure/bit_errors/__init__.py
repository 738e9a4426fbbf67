"""Bit errors: gates planned from limit and confidence, curves over received power, verdicts."""

from harness.measure.bit_errors.climate import NotWarmError, hold_temperature
from harness.measure.bit_errors.curves import Curve
from harness.measure.bit_errors.gates import (
    Counted,
    GatePlan,
    NothingCountedError,
    count_for,
    count_until_decided,
    plan_gate,
)
from harness.measure.bit_errors.judging import judge_counts
from harness.measure.bit_errors.light import NoWayBackError, Receiver, oma, plan_of_loop
from harness.measure.bit_errors.measuring import BitErrors, Book, count_all
from harness.measure.bit_errors.modules import telemetry_rows
from harness.measure.bit_errors.opening import NoCountersError, on_port, on_tester, patterns_on
from harness.measure.bit_errors.sources import NotStatedError, Signal, TesterChannel

__all__ = [
    "BitErrors",
    "Book",
    "Counted",
    "Curve",
    "GatePlan",
    "NoCountersError",
    "NoWayBackError",
    "NotStatedError",
    "NotWarmError",
    "NothingCountedError",
    "Receiver",
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
