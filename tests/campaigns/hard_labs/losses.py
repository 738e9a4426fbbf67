"""Labs whose insertion losses are measured end to end, by a switch's monitors or its modules.

The truth is the loss that the world draws for each circuit, at the wavelength and temperature that
the reference states, in the mean over polarization and over the times that it is made.
"""

import random
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.insertion_loss.chains import chains
from lightrig.harness.measure.insertion_loss.faults import find_faults, misread
from lightrig.harness.measure.insertion_loss.matrix import measure_losses
from lightrig.harness.measure.insertion_loss.references import references_of
from lightrig.harness.measure.insertion_loss.rows import all_rows, not_included
from lightrig.testbeds import Circuit, LightrigError
from tests.campaigns.hard_labs.found import Found, Lab
from tests.campaigns.hard_labs.timing import bound, described, merged

IDEAL = {
    "switches": {
        "ocs": {
            "acknowledge": {"mean": "40 ms"},
            "settle": {"mean": "24 ms"},
            "loss": {
                "mean": "1.2 dB",
                "sd": "0.05 dB",
                "ingress": "0.05 dB",
                "egress": "0.05 dB",
                "repeatability": "0.02 dB",
            },
            "monitor": {
                "averaging": "10 ms",
                "noise": "0.03 dB",
                "offset": "0.15 dB",
                "drift": "0.01 dB",
            },
        }
    },
    "references": {"uncertainty": "0.04 dB"},
}


@dataclass(frozen=True)
class Losses(Lab):
    """A lab whose losses are measured once.

    Attributes:
        simulation: what differs from the ideal lab's.
        switch: what the testbed states of its switch, beside its model.
        inject: changes the world once references were taken; may return a function that says
            afterwards whether the fault showed in any reading.
    """

    # A search for faults errs in one measurement of a hundred, and its fault takes losses away.
    declined_by_chance: float = 0.01
    simulation: Mapping[str, Any] = field(default_factory=dict)
    switch: Mapping[str, Any] = field(default_factory=dict)
    inject: Callable[[Bench, random.Random], Callable[[], bool] | None] = lambda bench, draws: None

    def measure(self, seed: int, found: Found) -> None:
        """Measure the losses, and compare each with that of the world."""
        draws = random.Random(f"labs {seed}")
        description = described(merged(IDEAL, self.simulation), self.switch, ports=4)
        with warnings.catch_warnings(record=True), bound(description, seed) as bench:
            world = bench.world
            assert world is not None
            (chain,) = chains(bench, references_of(bench))
            circuits = {(a, b) for a in chain.ingress for b in chain.egress}
            truths = {c: world.loss("ocs", c) for c in map(Circuit._make, circuits)}
            showed = self.inject(bench, draws)
            try:
                losses = measure_losses(Fabric(bench), chain)
            except LightrigError as error:
                found.sentences.append(f"{type(error).__name__}: {error}")
                found.declines("insertion_loss", len(circuits))
                return
            found.to_be_named = showed is None or showed()
            faults = find_faults(losses, bench.testbed)
            found.sentences += [f"{fault.kind} at {fault.subject}: {fault}" for fault in faults]
            losses = losses.without(misread(losses, faults))
            for row in all_rows(losses, faults, bench, {}):
                found.sentences.append(f"{row.quantity}: {dict(row.conditions)}")
            found.sentences += filter(None, [not_included(losses)])
            for circuit, loss in losses.losses.items():
                half = loss.budget.expanded
                ends = loss.value, loss.value - half, loss.value + half
                found.holds("insertion_loss", "interval", *ends, truths[circuit])
            found.declines("insertion_loss", len(circuits) - len(losses.losses))
