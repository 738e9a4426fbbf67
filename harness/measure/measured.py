"""A measured value of one subject, as a person at a bench reads it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightrig.harness.statistics.quantiles import NotEnough, quantile
from lightrig.instruments.clock import Span
from lightrig.testbeds import LightrigError
from lightrig.testbeds.intervals import interval


class NothingMeasuredError(LightrigError):
    """Raised where a measurement has ended without a value of the subject that was asked for."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One value with what it needs to be understood.

    Attributes:
        quantity: what was measured, by the name of its rows.
        subject: of which port, circuit or testbed.
        value, lower, upper: in `unit`.
        unit: "dB", "dBm" or "ns".
        n: number of samples behind it.
        simulated: whether anything that took part was.
        ends: what `lower` and `upper` are.
        remark: what a reader must know besides; empty mostly.
    """

    quantity: str
    subject: str
    value: float
    lower: float
    upper: float
    unit: str
    n: int
    simulated: bool
    ends: str = "95 % interval"
    remark: str = ""

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends, in `unit`."""
        return self.lower, self.upper

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        shown, context = self._parts()
        return f"{shown} ({'; '.join(context)})"

    def _repr_html_(self) -> str:
        """Return the value for a notebook."""
        shown, context = self._parts()
        return Markup("<b>{}</b> <small>{}</small>").format(shown, "; ".join(context))

    def _parts(self) -> tuple[str, list[str]]:
        written = interval(self.lower, self.upper, self.unit, self.value)
        context = [f"{self.subject} {self.quantity}", f"n = {self.n}"]
        context += [f"{self.ends} {written.ends}"]
        context += [self.remark] if self.remark else []
        return written.value, context + (["simulated"] if self.simulated else [])


def median_of(quantity: str, subject: str, spans: Sequence[Span], *, simulated: bool) -> Measured:
    """Return the median of durations that are known within bounds, in ns.

    Its ends are a 95 % interval of the median whatever the distribution (see
    `statistics.quantiles`), of fewer samples than that needs the least and the greatest bound.
    """
    lows, highs = [span.earliest for span in spans], [span.latest for span in spans]
    found = quantile(lows, highs, 0.5)
    if isinstance(found, NotEnough):
        value = statistics.median((low + high) / 2 for low, high in spans)
        ends, least, most = f"all of {found.n}", min(lows), max(highs)
        remark = f"no 95 % interval: {found.needed} samples needed"
        return Measured(
            quantity, subject, value, least, most, "ns", found.n, simulated, ends, remark
        )
    assert found.lower is not None
    return Measured(
        quantity, subject, found.value, found.lower, found.upper, "ns", found.n, simulated
    )
