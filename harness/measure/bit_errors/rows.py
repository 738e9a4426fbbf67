"""Counts as rows: the ratio with its exact bounds, and the bare count of errors."""

from collections.abc import Iterator, Mapping

from lightrig.harness.measure.gates import Counted
from lightrig.harness.record import Row, Scalar

RATIO = "bit_error_ratio"
OVER_POWER = "bit_error_ratio.over_power"
OF_NIC = "nic_error_ratio"
FRAME_LOSS = "frame_loss_ratio"
ERRORS = "bit_errors"
VOID = "bit_errors.void"
SENSITIVITY = "sensitivity"
SENSITIVITY_OMA = "sensitivity.oma"


def count_rows(
    counted: Counted, quantity: str, event: int, conditions: Mapping[str, Scalar]
) -> Iterator[Row]:
    """One gate.

    A gate that bounds nothing is a row of its own kind, which says why: its value is the share
    of the bits that should have been compared and were not.
    """
    count = counted.count
    gate = max(count.ended.latest - count.began.earliest, 0)
    time = count.began.earliest
    row_conditions: dict[str, Scalar] = {**conditions, "event": event, "gate_ns": gate}
    ratio = counted.ratio
    if ratio is None:
        row_conditions["trouble"] = counted.void_reason or "no bit was compared"
        missed = 1 - min(count.bits / counted.expected, 1.0) if counted.expected else 1.0
        yield Row(counted.counter, VOID, missed, missed, missed, "1", time, row_conditions)
        return
    row_conditions |= {"bits": count.bits, "confidence": counted.confidence}
    if count.most_bits is not None:
        row_conditions["most_bits"] = count.most_bits
    if counted.decision is not None:
        row_conditions["stopped"] = counted.decision
    seen = counted.errors
    # Numbers with a fraction: what was measured distinguishes no cases between nights.
    bursts: dict[str, Scalar] = {
        "error_looks": float(seen.events),
        "error_squares": float(seen.squares),
        "error_largest": float(seen.largest),
    }
    if counted.burst is not None:
        bursts["burst"] = float(counted.burst)
    errors = {"errors": count.errors, **bursts, **row_conditions}
    yield Row(counted.counter, quantity, ratio.value, ratio.lower, ratio.upper, "1", time, errors)
    if quantity != OVER_POWER:
        yield Row(
            counted.counter,
            ERRORS,
            count.errors,
            count.errors,
            count.errors,
            "1",
            time,
            row_conditions,
        )
