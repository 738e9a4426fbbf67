"""What a test has measured so far: few figures, and cheap enough to keep while it measures."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from harness.record import Row
from harness.report.estimates import CONFIDENCE
from harness.report.stages import ordered
from harness.report.units import shown
from harness.statistics import Quantile, quantile

# A ratio of bits that were never wrong is a bound, of which there is no median.
_HIDDEN = frozenset(
    ("closure", "harness", "loss", "outage", "bit_error_ratio", "bit_errors", "nic_error_ratio")
)
_FEW = ("acknowledged", "light_back", "carrier_up", "first_datagram", "first_collective")
_MOST = 4


@dataclass(frozen=True, slots=True)
class Figure:
    """A median of `n` samples, all in `unit`.

    lower, upper: its 95 % interval; None where `n` is too small for one.
    """

    quantity: str
    value: float
    lower: float | None
    upper: float | None
    unit: str
    n: int
    simulated: bool


@dataclass(slots=True)
class _Samples:
    unit: str
    simulated: bool
    low: dict[object, float] = field(default_factory=dict)
    high: dict[object, float] = field(default_factory=dict)


class Quantities:
    """The samples of one test: one an event, the greatest of its subjects, as in the report."""

    def __init__(self) -> None:
        self._samples: dict[str, _Samples] = {}
        self._rows = 0

    def add(self, simulated: bool, rows: Iterable[Row]) -> None:
        """Take rows that were recorded."""
        for row in rows:
            family, dot, _ = row.quantity.partition(".")
            # A stage of one subject is part of the whole event's, which is told of.
            if family in _HIDDEN or (not dot and f"reconfiguration.{family}" in self._samples):
                continue
            samples = self._samples.get(row.quantity)
            if samples is None:
                samples = self._samples[row.quantity] = _Samples(row.unit, simulated)
            self._rows += 1
            event = row.conditions.get("event", -self._rows)
            low = row.value if row.lower is None else row.lower
            high = row.value if row.upper is None else row.upper
            samples.low[event] = max(low, samples.low.get(event, low))
            samples.high[event] = max(high, samples.high.get(event, high))

    def figures(self) -> Iterator[Figure]:
        """Every quantity that was measured, as it stands now."""
        for name, samples in self._samples.items():
            low = np.fromiter(samples.low.values(), dtype=float)
            high = np.fromiter(samples.high.values(), dtype=float)
            found = quantile(low, high, 0.5, CONFIDENCE)
            if isinstance(found, Quantile):
                value, lower, upper = found.value, found.lower, found.upper
            else:
                value, lower, upper = float(np.median((low + high) / 2)), None, None
            yield Figure(name, value, lower, upper, samples.unit, low.size, samples.simulated)

    def few(self) -> list[Figure]:
        """The figures that matter most, no more than fit in a line."""
        if not self._samples:
            return []
        found = {figure.quantity: figure for figure in self.figures()}
        stages = {name.partition(".")[2] for name in found if name.startswith("reconfiguration.")}
        known = [f"reconfiguration.{s}" for s in ordered(_FEW) if s in stages]
        rest = [name for name in found if not name.startswith("reconfiguration.")]
        return [found[name] for name in [*known, *rest][:_MOST]]


def in_a_line(figures: Iterable[Figure]) -> str:
    """Write figures for people: `light_back 43.1 ms (median of 300)`."""
    by_company: dict[tuple[int, bool], list[str]] = {}
    for one in figures:
        name = one.quantity.removeprefix("reconfiguration.")
        by_company.setdefault((one.n, one.simulated), []).append(
            f"{name} {shown(one.value, one.unit)}"
        )
    return "; ".join(
        f"{', '.join(each)} ({'median' if len(each) == 1 else 'medians'} of {n:,}"
        f"{', simulated' if simulated else ''})"
        for (n, simulated), each in by_company.items()
    )
