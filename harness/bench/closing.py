"""Whether the light of a plan can be received, by what its circuits were measured to lose.

A testbed's file is checked against the most that its switches may lose; this is about what they
do lose. A circuit that nobody has measured is not judged.
"""

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from harness.statistics.uncertainty import Margin, margin
from testbeds import (
    Circuit,
    LightrigError,
    Plan,
    Port,
    Testbed,
    TransceiverSpec,
    format_db,
    format_dbm,
)
from testbeds.paths import LightPath, light_paths


class BudgetError(LightrigError):
    """A plan leads light that surely cannot be received."""


class BudgetWarning(UserWarning):
    """A plan leads light of which nobody can say whether it can be received."""


class KnownLoss(NamedTuple):
    """A measured loss and its standard uncertainty, both in dB."""

    value: float
    standard: float


class Closing:
    """What is known of the losses of a testbed's circuits, and what follows for its plans."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._known: dict[tuple[str, Circuit], KnownLoss] = {}

    def know(self, switch: str, losses: Mapping[Circuit, KnownLoss]) -> None:
        """Take note of what circuits of a switch were measured to lose."""
        self._known |= {(switch, circuit): loss for circuit, loss in losses.items()}

    def margins(self, plan: Plan) -> Iterator[tuple[LightPath, Margin]]:
        """The margin of each path of `plan` whose circuits were all measured.

        A transmitter sends anything between its least and its greatest power, evenly; a
        receiver needs what its type states, and fibers lose what the file states.
        """
        if not self._known:
            return
        for path in light_paths(self._testbed.cabling, plan):
            sender, receiver = self._transceiver(path.source), self._transceiver(path.sink)
            stages = [self._known.get(crossing) for crossing in path.crossings]
            if sender is None or receiver is None or None in stages:
                continue
            middle = (sender.launch_min_dbm + sender.launch_max_dbm) / 2
            half = (sender.launch_max_dbm - sender.launch_min_dbm) / 2
            lost: list[tuple[float, float]] = [stage for stage in stages if stage is not None]
            lost += [(fiber.loss_db, 0.0) for fiber in path.fibers]
            needed = receiver.receive_min_dbm, 0.0
            yield path, margin((middle, half / math.sqrt(3)), lost, needed)

    def check(self, plan: Plan) -> None:
        """Refuse a plan that surely cannot close; warn of one that nobody is sure of.

        Raises `BudgetError`, naming each path with what is missing.
        """
        missing = []
        for path, found in self.margins(plan):
            told = (
                f"{path}: {format_db(found.value)} left of its power budget "
                f"(95 % interval {format_db(found.value - found.expanded)} … "
                f"{format_db(found.value + found.expanded)})"
            )
            if found.closes is None:
                warnings.warn(f"plan {plan.name}: {told}", BudgetWarning, stacklevel=4)
            elif not found.closes:
                missing.append(f"{told}; {self._needs(path.sink)}")
        if missing:
            raise BudgetError(
                f"plan {plan.name} is not applied, since its light cannot be received:\n  "
                + "\n  ".join(missing)
                + "\n  try: clean the connectors that a measurement of insertion loss names"
            )

    def _needs(self, sink: Port) -> str:
        kind = self._transceiver(sink)
        assert kind is not None
        return f"{sink} needs {format_dbm(kind.receive_min_dbm)}"

    def _transceiver(self, port: Port) -> TransceiverSpec | None:
        if port.owner in self._testbed.instruments:
            return None
        return self._testbed.transceiver_of(port)
