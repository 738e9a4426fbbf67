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
    Phase,
)
from lightrig.harness.systems.mixnet.planning.copilot import Copilot
from lightrig.harness.systems.mixnet.planning.course import Course, Place
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


_FORTH = ("dispatch", "dispatch again", "combine gradient")
"""All-to-alls that go the way that the gate has chosen; the others go back."""


@dataclass
class CircuitControl:
    """The calendar's changes for ranks with one expert each, on the servers of `placement`.

    first: strategy for the first all-to-all of a layer; None for circuits that never change.
    course: the order of all-to-alls; by default steps of four a layer without end.
    groups: ranks that exchange rows with each other alone; by default all.
    """

    placement: Placement
    layers: int
    first: FirstExchange | None
    predictions: list[Prediction] = field(default_factory=list)
    course: Course | None = None
    groups: Sequence[Sequence[int]] = ()

    def __post_init__(self) -> None:
        self.ranks = self.placement.ranks
        self._course = self.course or Course(self.layers)
        self._groups = self.groups or (tuple(range(self.ranks)),)
        self._given: dict[int, dict[int, Sequence[int]]] = {}
        self._announced = [0] * self.ranks
        self._ended = [0] * self.ranks
        self._permitted = [0] * self.ranks
        self._changed = 0
        self._copilots = [Copilot() for _ in range(self.layers - 1)]
        self._expected: dict[int, Matrix] = {}
        self._unlearned: list[Place] = []

    def wants(self, rank: int, given: Sequence[int]) -> None:
        """Take an all-to-all that a rank wants to begin, and the rows that it sends to each rank.

        Raises `OutOfOrderError` where these are not those of the layer's dispatch.
        """
        place = self._place(self._announced[rank])
        phase = place.phase
        if phase == "dispatch" and len(given) == self.ranks:
            known = self._given.setdefault(place.visit, {})
            known[rank] = given
            if len(known) == self.ranks:
                self._unlearned.append(place)
            self._announced[rank] += 1
            return
        expected = f"those of {self.ranks} ranks"
        if phase != "dispatch":
            rows = self.traffic(place)[rank].astype(int).tolist()
            if rows == list(given):
                self._announced[rank] += 1
                return
            expected = str(rows)
        raise OutOfOrderError(
            f"rank {rank} sends {list(given)} rows in {phase} of layer {place.layer} of "
            f"{self.layers}, expected {expected}: are there all-to-alls between those of the "
            "layers?"
        )

    def ended(self, rank: int) -> None:
        """Note that the all-to-all that `rank` was permitted last has ended on it."""
        self._ended[rank] += 1

    def due(self) -> DueChange | None:
        """Return the change of circuits that can be made now, if there is one."""
        number = self._next
        if number < self._changed or (knows := self._change_before(number)) is None:
            return None
        place = self._place(number)
        demand = self._demand(place, knows)
        if demand is None:
            return None
        return DueChange(place.step, place.layer, place.phase, knows, demand)

    def changed(self) -> None:
        """Note that the circuits of `due` are in place."""
        self._changed = self._next + 1

    def permitted(self) -> list[Permitted]:
        """Return the ranks that wait and may begin, each once."""
        number = self._next
        if self._changed <= number and self._change_before(number) is not None:
            return []
        if not self._course.has(number):
            return []
        place = self._place(number)
        if len(self._given.get(place.visit, {})) < self.ranks:
            return []
        found = []
        for rank in range(self.ranks):
            if self._permitted[rank] == number < self._announced[rank]:
                self._permitted[rank] += 1
                rows = self.traffic(place)
                found.append(Permitted(rank, place.step, place.layer, place.phase, rows))
        return found

    def learn(self) -> None:
        """Let Copilot learn from the layers that were dispatched, and predict the next ones' loads.

        It takes some ms of a processor, so it is called when no rank waits.
        """
        for place in self._unlearned:
            self._learn(place)
        self._unlearned.clear()

    def sent(self, visit: int) -> Matrix:
        """Rows that the gates of a layer send from each rank to each."""
        known = self._given[visit]
        return np.array([known[rank] for rank in range(self.ranks)], dtype=float)

    def traffic(self, place: Place) -> Matrix:
        """Rows that an all-to-all carries from each rank to each."""
        sent = self.sent(place.visit)
        return sent if place.phase in _FORTH else sent.T

    @property
    def _next(self) -> int:
        """The number of the all-to-all that not every rank has ended."""
        return min(self._ended)

    def _place(self, number: int) -> Place:
        if not self._course.has(number):
            raise OutOfOrderError(
                f"there are more than the {number} all-to-alls of rows of the run before"
            )
        return self._course[number]

    def _change_before(self, number: int) -> Knowledge | None:
        """Return where the demand of the change before an all-to-all comes from; None: no change.

        As the calendar has it. Backwards a layer has the circuits of its forward pass where no
        other layer had the switch meanwhile.
        """
        if not self._course.has(number):
            return None
        place = self._course[number]
        first, phase = self.first, place.phase
        if first is None or phase in ("combine again", "dispatch gradient"):
            return None
        if phase == "dispatch":
            if first == "block":
                return "gate"
            return "predicted" if first == "predict" and place.layer else None
        if phase == "combine":
            return None if first == "block" else "gate"
        return None if self._course.follows(number) else "gate"

    def _demand(self, place: Place, knows: Knowledge) -> Matrix | None:
        if knows == "predicted":
            expected = self._expected.get(place.visit)
            if expected is None:
                return None
            return server_demand(self._predicted(place.visit, expected), self.placement)
        if len(self._given.get(place.visit, {})) < self.ranks:
            return None
        return server_demand(self.sent(place.visit), self.placement)

    def _predicted(self, visit: int, expected: Matrix) -> Matrix:
        """Return rows that each group sends by an expected load, as many as in the layer before."""
        before = self.sent(visit - 1)
        sent = np.zeros_like(before)
        for group in self._groups:
            within = np.ix_(group, group)
            load = expected[list(group)]
            rows = round(float(before[within].sum()) / len(group))
            if load.sum():
                sent[within] = dispatched(rows, load / load.sum(), len(group))
        return sent

    def _learn(self, place: Place) -> None:
        """Note a layer's load: predict the next layer's from it, and let Copilot learn."""
        visit, layer = place.visit, place.layer
        load = self._load(visit)
        if layer:
            before = self._load(visit - 1)
            expected = self._expected[visit]
            self.predictions.append(Prediction(place.step, layer, expected, load, before))
            self._copilots[layer - 1].record(before, load)
        if layer + 1 < self.layers:
            self._expected[visit + 1] = self._copilots[layer].predict(load)

    def _load(self, visit: int) -> Matrix:
        rows = self.sent(visit).sum(axis=0)
        shares: Matrix = rows / rows.sum()
        return shares
