"""Loss along every circuit, and the class of transceiver that closes it.

The paper prints no loss and no budget (§2.1, §3). Losses here are bounds that data sheets of such
parts commonly state, budgets are minimum launch power less receiver sensitivity in OMA as in
IEEE 802.3 for the classes named; both are parameters.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightrig.harness.systems.acos.planning.optics import (
    KINDS,
    FabricError,
    Kind,
    OpticalFabric,
    States,
)

LOSS_DB: Mapping[Kind, float] = {"1x2": 1.0, "1x3": 1.2, "1x4": 1.3, "2x2": 1.0}
"""Greatest insertion loss of a switch, assumed."""
FIBER_DB_PER_KM, CONNECTOR_DB = 0.5, 0.25
_DUST_DB = 1e-9


@dataclass(frozen=True, slots=True)
class TransceiverClass:
    """A class of transceivers. budget_db: loss between its connectors that it closes over."""

    name: str
    lanes: int
    budget_db: float


CLASSES: tuple[TransceiverClass, ...] = (
    TransceiverClass("SR8", 8, 1.9),
    TransceiverClass("DR8", 8, 3.0),
    TransceiverClass("FR8", 8, 4.0),
    TransceiverClass("LR8", 8, 6.3),
    TransceiverClass("ER8", 8, 10.0),
    TransceiverClass("2FR4L", 2, 4.0),
    TransceiverClass("2LR4", 2, 6.3),
    TransceiverClass("2ER4", 2, 10.0),
)
"""Weakest first; budgets assumed."""


@dataclass(frozen=True, slots=True)
class Worst:
    """The darkest circuit of all configurations: its switches by kind, and its loss."""

    stages: Mapping[Kind, int]
    depth: int
    loss_db: float


def worst_circuit(
    fabric: OpticalFabric,
    settings: Iterable[States],
    *,
    metres: float = 50.0,
    losses: Mapping[Kind, float] = LOSS_DB,
) -> Worst:
    """Find the greatest loss of any circuit in any of `settings`, states with selection set.

    Every switch adds a connector besides its loss; `metres` is the length of all fibers together.
    """
    per_kind = np.array([losses[kind] + CONNECTOR_DB for kind in KINDS])
    worst: Worst | None = None
    for states in settings:
        trace = fabric.trace(states)
        lit = trace.arrives >= 0
        if not lit.any():
            continue
        stages: npt.NDArray[np.int8] = trace.stages[lit]
        loss = stages @ per_kind + CONNECTOR_DB + metres / 1000 * FIBER_DB_PER_KM
        place = int(loss.argmax())
        if worst is None or loss[place] > worst.loss_db:
            counts = {kind: int(n) for kind, n in zip(KINDS, stages[place], strict=True) if n}
            worst = Worst(counts, sum(counts.values()), float(loss[place]))
    if worst is None:
        raise FabricError("no circuit is lit in any configuration")
    return worst


def closing_class(
    worst: Worst, lanes: int, classes: tuple[TransceiverClass, ...] = CLASSES
) -> TransceiverClass:
    """Return the weakest class whose budget covers a loss; raise `FabricError` where none does."""
    fitting = [each for each in classes if each.lanes == lanes]
    for each in fitting:
        if worst.loss_db <= each.budget_db + _DUST_DB:
            return each
    best = max(fitting, key=lambda each: each.budget_db, default=None)
    offered = f"{best.name} closes {best.budget_db:g} dB" if best else f"no class has {lanes} lanes"
    raise FabricError(
        f"a circuit of {worst.depth} switches loses {worst.loss_db:.2f} dB, and {offered}: "
        "use switches of less loss, or a deployment with fewer stages"
    )
