"""Rows of values with an uncertainty budget, and their closure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lightrig.harness.bench import Bench
from lightrig.harness.measure.closure import closure_row
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.closure import judge_deviations
from lightrig.harness.statistics.uncertainty import Component


@dataclass(frozen=True)
class Result:
    """One value in dB with its uncertainty.

    Attributes:
        subject: the circuit.
        value: in dB.
        components: of its uncertainty, k = 1.
        factor: half the 95 % interval over the combined standard uncertainty.
        at: when it was measured, on the bench's clock.
        true: the true value of a simulated world, else None.
        least: the least value that there is.
    """

    subject: str
    value: float
    components: Sequence[Component]
    factor: float
    at: int
    true: float | None
    least: float

    @property
    def half(self) -> float:
        """Half the width of the 95 % interval, in dB."""
        return self.factor * math.hypot(*(part.standard for part in self.components))


def record_results(
    recording: Recording,
    bench: Bench,
    switch: str,
    quantity: str,
    results: Sequence[Result],
    conditions: Mapping[str, Scalar] | None = None,
) -> None:
    """Record each value with its bounds, each component of its budget, and closure of all."""
    rows = [row for one in results for row in _rows(one, quantity, conditions or {})]
    if switch in bench.simulated:
        found = [(one.value - one.true) / one.half for one in results if one.true is not None]
        if found:
            verdict = judge_deviations(found)
            rows.append(closure_row(switch, f"closure.{quantity}", verdict, results[-1].at))
    recording.record(rows)


def _rows(one: Result, quantity: str, conditions: Mapping[str, Scalar]) -> Iterator[Row]:
    low, high = max(one.value - one.half, one.least), one.value + one.half
    yield Row(one.subject, quantity, one.value, low, high, "dB", one.at, dict(conditions))
    for part in one.components:
        name, db = f"{quantity}.budget.{part.name}", part.standard
        yield Row(one.subject, name, db, db, db, "dB", one.at, dict(conditions))
