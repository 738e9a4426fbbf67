"""Power budgets of a plan's light paths, by the measured losses of its circuits.

`lightrig check` uses the greatest loss that a switch's data sheet allows; this uses the losses that
were measured. A path with an unmeasured circuit is not judged.
"""

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lightrig.harness.statistics.uncertainty import Margin, margin
from lightrig.testbeds import (
    Circuit,
    LightrigError,
    Plan,
    Port,
    Testbed,
    TransceiverSpec,
    format_db,
    format_dbm,
)
from lightrig.testbeds.light_paths import LightPath, light_paths


class BudgetError(LightrigError):
    """The received power of a path of a plan is certainly below the receiver's sensitivity."""


class BudgetWarning(UserWarning):
    """The received power of a path of a plan may be below the receiver's sensitivity."""


class KnownLoss(NamedTuple):
    """A measured loss and its standard uncertainty, both in dB."""

    value: float
    standard: float


class PowerBudget:
    """The measured losses of a testbed's circuits, and the margins of its plans."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._known: dict[tuple[str, Circuit], KnownLoss] = {}

    def add_measured(self, switch: str, losses: Mapping[Circuit, KnownLoss]) -> None:
        """Add measured losses of circuits of a switch."""
        self._known |= {(switch, circuit): loss for circuit, loss in losses.items()}

    def margins(self, plan: Plan) -> Iterator[tuple[LightPath, Margin]]:
        """Yield the margin of each path of `plan` whose circuits were all measured.

        The launched power is taken as uniform between the transmitter's limits, the sensitivity
        from the transceiver's type, the losses of fibers from the testbed file.
        """
        if not self._known:
            return
        for path in light_paths(self._testbed.cabling, plan):
            sender, receiver = self._transceiver(path.source), self._transceiver(path.sink)
            stages = [self._known.get(crossing) for crossing in path.crossings]
            if sender is None or receiver is None or None in stages:
                continue
            middle = (sender.launch.min + sender.launch.max) / 2
            half = (sender.launch.max - sender.launch.min) / 2
            lost: list[tuple[float, float]] = [stage for stage in stages if stage is not None]
            lost += [(fiber.loss_db, 0.0) for fiber in path.fibers]
            needed = receiver.receive.min, 0.0
            yield path, margin((middle, half / math.sqrt(3)), lost, needed)

    def check(self, plan: Plan) -> None:
        """Refuse a plan without margin; warn of one whose margin is within the uncertainty.

        Raises `BudgetError`, naming each path and its margin.
        """
        missing = []
        for path, found in self.margins(plan):
            finding = (
                f"{path}: {format_db(found.value)} left of its power budget "
                f"(95 % interval {format_db(found.value - found.expanded)} … "
                f"{format_db(found.value + found.expanded)})"
            )
            if found.closes is None:
                warnings.warn(f"plan {plan.name}: {finding}", BudgetWarning, stacklevel=4)
            elif not found.closes:
                missing.append(f"{finding}; {self._needs(path.sink)}")
        if missing:
            raise BudgetError(
                f"plan {plan.name} is not applied, since its light cannot be received:\n  "
                + "\n  ".join(missing)
                + "\n  try: clean the connectors that a measurement of insertion loss names"
            )

    def _needs(self, sink: Port) -> str:
        kind = self._transceiver(sink)
        assert kind is not None
        return f"{sink} needs {format_dbm(kind.receive.min)}"

    def _transceiver(self, port: Port) -> TransceiverSpec | None:
        if port.owner in self._testbed.instruments:
            return None
        return self._testbed.transceiver_of(port)
