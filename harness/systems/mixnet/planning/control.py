"""Control of a region's circuits while a mixture of experts trains, as a state machine.

Ranks announce all-to-alls, with the rows that each sends to each, and their ends. The first one of
a layer, its dispatch, has what the layer's gate has chosen; the other three take the same rows back
and forth. The calendar says which all-to-alls get circuits of their own, and what of the gates is
known then. A change begins once every rank has ended the all-to-all before, so that none runs over
circuits that move, and the next all-to-all begins once it is made. The caller has the wire.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lightrig.harness.systems.mixnet.planning.calendar import (
    FirstExchange,
    Knowledge,
    LayerTimes,
    Phase,
    Reconfiguration,
    calendar,
    exchanges,
)
from lightrig.harness.systems.mixnet.planning.copilot import Copilot
from lightrig.harness.systems.mixnet.planning.demand import (
    DemandError,
    Matrix,
    Placement,
    dispatched,
    server_demand,
)


class OutOfOrderError(DemandError):
    """A rank announced another all-to-all than the next one of a step of `layers` layers."""


@dataclass(frozen=True, slots=True)
class DueChange:
    """Circuits that are to be changed now.

    Attributes:
        step: the iteration, from 0.
        layer, before: the all-to-all that they serve first.
        knows: where their demand comes from.
        demand: of pairs of servers, above the diagonal, in rows.
    """

    step: int
    layer: int
    before: Phase
    knows: Knowledge
    demand: Matrix


@dataclass(frozen=True, slots=True)
class Permitted:
    """An all-to-all that a rank may begin, and the rows from each rank to each."""

    rank: int
    step: int
    layer: int
    phase: Phase
    traffic: Matrix


@dataclass(frozen=True, slots=True)
class Prediction:
    """Copilot's load of a layer's experts beside the actual one, in shares."""

    step: int
    layer: int
    predicted: Matrix
    actual: Matrix
    before: Matrix
    """Load of the layer before: what to expect if nothing changed."""


@dataclass
class CircuitControl:
    """The calendar's changes for ranks with one expert each, on the servers of `placement`.

    first: strategy for the first all-to-all of a layer; None for circuits that never change.
    """

    placement: Placement
    layers: int
    first: FirstExchange | None
    predictions: list[Prediction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ranks = self.placement.ranks
        self._order = list(exchanges(self.layers))
        unknown = LayerTimes(0, 0, 0, 0)  # only the order of changes is used
        changes = calendar(self.layers, unknown, 0, self.first) if self.first else ()
        self._changes: dict[tuple[int, Phase], Reconfiguration] = {
            (each.layer, each.before): each for each in changes
        }
        self._given: dict[tuple[int, int], dict[int, Sequence[int]]] = {}
        self._announced = [0] * self.ranks
        self._ended = [0] * self.ranks
        self._permitted = [0] * self.ranks
        self._changed = 0
        self._copilots = [Copilot() for _ in range(self.layers - 1)]
        self._expected: dict[tuple[int, int], Matrix] = {}
        self._unlearned: list[tuple[int, int]] = []

    def wants(self, rank: int, given: Sequence[int]) -> None:
        """Take an all-to-all that a rank wants to begin, and the rows that it sends to each rank.

        Raises `OutOfOrderError` where these are not those of the layer's dispatch.
        """
        step, (layer, phase) = self._place(self._announced[rank])
        if phase == "dispatch" and len(given) == self.ranks:
            known = self._given.setdefault((step, layer), {})
            known[rank] = given
            if len(known) == self.ranks:
                self._unlearned.append((step, layer))
            self._announced[rank] += 1
            return
        expected = f"those of {self.ranks} ranks"
        if phase != "dispatch":
            rows = self.traffic(step, layer, phase)[rank].astype(int).tolist()
            if rows == list(given):
                self._announced[rank] += 1
                return
            expected = str(rows)
        raise OutOfOrderError(
            f"rank {rank} sends {list(given)} rows in {phase} of layer {layer} of {self.layers}, "
            f"expected {expected}: are there all-to-alls between those of the layers?"
        )

    def ended(self, rank: int) -> None:
        """Note that the all-to-all that `rank` was permitted last has ended on it."""
        self._ended[rank] += 1

    def due(self) -> DueChange | None:
        """Return the change of circuits that can be made now, if there is one."""
        number = self._next
        if number < self._changed:
            return None
        step, (layer, phase) = self._place(number)
        change = self._changes.get((layer, phase))
        if change is None:
            return None
        demand = self._demand(step, change)
        if demand is None:
            return None
        return DueChange(step, layer, phase, change.knows, demand)

    def changed(self) -> None:
        """Note that the circuits of `due` are in place."""
        self._changed = self._next + 1

    def permitted(self) -> list[Permitted]:
        """Return the ranks that wait and may begin, each once."""
        number = self._next
        step, (layer, phase) = self._place(number)
        if (layer, phase) in self._changes and self._changed <= number:
            return []
        if len(self._given.get((step, layer), {})) < self.ranks:
            return []
        found = []
        for rank in range(self.ranks):
            if self._permitted[rank] == number < self._announced[rank]:
                self._permitted[rank] += 1
                found.append(Permitted(rank, step, layer, phase, self.traffic(step, layer, phase)))
        return found

    def learn(self) -> None:
        """Let Copilot learn from the layers that were dispatched, and predict the next ones' loads.

        It takes some ms of a processor, so it is called when no rank waits.
        """
        for place in self._unlearned:
            self._learn(*place)
        self._unlearned.clear()

    def sent(self, step: int, layer: int) -> Matrix:
        """Rows that the gates of a layer send from each rank to each."""
        known = self._given[step, layer]
        return np.array([known[rank] for rank in range(self.ranks)], dtype=float)

    def traffic(self, step: int, layer: int, phase: Phase) -> Matrix:
        """Rows that a layer's all-to-all carries from each rank to each."""
        sent = self.sent(step, layer)
        return sent if phase in ("dispatch", "combine gradient") else sent.T

    @property
    def _next(self) -> int:
        """The number of the all-to-all that not every rank has ended."""
        return min(self._ended)

    def _place(self, number: int) -> tuple[int, tuple[int, Phase]]:
        step, place = divmod(number, len(self._order))
        return step, self._order[place]

    def _demand(self, step: int, change: Reconfiguration) -> Matrix | None:
        if change.knows == "predicted":
            expected = self._expected.get((step, change.layer))
            if expected is None:
                return None
            rows = float(self.sent(step, change.layer - 1).sum()) / self.ranks
            sent = dispatched(round(rows), expected, self.ranks)
            return server_demand(sent, self.placement)
        if len(self._given.get((step, change.layer), {})) < self.ranks:
            return None
        return server_demand(self.sent(step, change.layer), self.placement)

    def _learn(self, step: int, layer: int) -> None:
        """Note a layer's load: predict the next layer's from it, and let Copilot learn."""
        load = self._load(step, layer)
        if layer:
            before = self._load(step, layer - 1)
            expected = self._expected[step, layer]
            self.predictions.append(Prediction(step, layer, expected, load, before))
            self._copilots[layer - 1].record(before, load)
        if layer + 1 < self.layers:
            self._expected[step, layer + 1] = self._copilots[layer].predict(load)

    def _load(self, step: int, layer: int) -> Matrix:
        rows = self.sent(step, layer).sum(axis=0)
        shares: Matrix = rows / rows.sum()
        return shares
