"""The order of a script's all-to-alls, as it is or as a first run has shown it.

A layer's experts are visited by a forward pass: dispatch and combine. Its gradients come back by
two more, in the order of the layers backwards; before them a layer whose activations were not kept
visits its experts again. An evaluation pass has no gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from lightrig.harness.systems.mixnet.planning.calendar import Phase, exchanges
from lightrig.harness.systems.mixnet.planning.demand import DemandError, Matrix

Part: TypeAlias = Literal["forward", "again", "gradient"]
"""Where a rank begins an all-to-all: in a forward pass, in one that a backward pass repeats for a
layer whose activations were not kept, or for gradients."""


class CourseError(DemandError):
    """All-to-alls that are no passes of experts."""


class Seen(NamedTuple):
    """An all-to-all of a first run: its step, its part, and the rows from each rank to each."""

    step: int
    part: Part
    rows: Matrix


class Place(NamedTuple):
    """An all-to-all of a script.

    visit: counts what gates have chosen, layer after layer and pass after pass.
    """

    step: int
    layer: int
    phase: Phase
    visit: int


@dataclass(frozen=True)
class Course:
    """The all-to-alls of a script.

    layers: of a pass. places: all of them; None for steps without end, each a pass and its
    gradients.
    """

    layers: int
    places: tuple[Place, ...] | None = None

    def __getitem__(self, number: int) -> Place:
        """Return an all-to-all by its number; raises `IndexError` after the last."""
        if self.places is not None:
            return self.places[number]
        order = tuple(exchanges(self.layers))
        step, place = divmod(number, len(order))
        layer, phase = order[place]
        return Place(step, layer, phase, step * self.layers + layer)

    def has(self, number: int) -> bool:
        """Whether there are that many all-to-alls and one more."""
        return self.places is None or number < len(self.places)

    def follows(self, number: int) -> bool:
        """Whether an all-to-all has the rows of the one before, or its transpose."""
        return number > 0 and self[number].visit == self[number - 1].visit


def course_of(seen: Sequence[Seen]) -> Course:
    """Return the course of a first run.

    Raises `CourseError` for all-to-alls that come back otherwise than they went, that are no whole
    passes, and where none has gradients.
    """
    pairs = [_pair(forth, back) for forth, back in zip(seen[::2], seen[1::2], strict=False)]
    if len(seen) % 2:
        raise CourseError(f"found {len(seen)} all-to-alls of rows, expected pairs: forth and back")
    visits: list[tuple[Matrix, bool]] = []
    """Rows of each, and whether its gradients have come."""
    of_pair: list[int] = []
    backward: list[int] = []
    chains: list[list[int]] = []
    for number, pair in enumerate(pairs):
        if pair.part == "forward":
            of_pair.append(len(visits))
            visits.append((pair.rows, False))
            backward = []
            continue
        visit = _returned(visits, backward, pair, number)
        of_pair.append(visit)
        if pair.part == "gradient":
            visits[visit] = visits[visit][0], True
            if backward and visit == backward[-1] - 1:
                backward.append(visit)
            else:
                backward = [visit]
                chains.append(backward)
    if not chains:
        raise CourseError("found no all-to-alls of gradients: nothing is trained")
    layers = max(map(len, chains))
    layer_of = _layers(len(visits), chains, layers)
    places = []
    for pair, visit in zip(pairs, of_pair, strict=True):
        forth, back = _PHASES[pair.part]
        places += [Place(pair.step, layer_of[visit], phase, visit) for phase in (forth, back)]
    return Course(layers, tuple(places))


_PHASES: dict[Part, tuple[Phase, Phase]] = {
    "forward": ("dispatch", "combine"),
    "again": ("dispatch again", "combine again"),
    "gradient": ("combine gradient", "dispatch gradient"),
}


def _pair(forth: Seen, back: Seen) -> Seen:
    if forth.part != back.part or not np.array_equal(forth.rows, back.rows.T):
        raise CourseError(
            f"in step {forth.step} rows do not come back as they were sent: found "
            f"{forth.rows.astype(int).tolist()} ({forth.part}), then "
            f"{back.rows.astype(int).tolist()} ({back.part})"
        )
    return forth


def _returned(
    visits: list[tuple[Matrix, bool]], backward: Sequence[int], pair: Seen, number: int
) -> int:
    """Return the visit whose gradients come, or are about to.

    The one before the last, or the latest that fits, such as of another micro-batch.
    """
    if backward and (before := backward[-1] - 1) >= 0 and _fits(visits[before], pair):
        return before
    for visit in reversed(range(len(visits))):
        if _fits(visits[visit], pair):
            return visit
    raise CourseError(
        f"pair {number} of all-to-alls, in step {pair.step}, brings back rows of no forward pass: "
        f"{pair.rows.astype(int).tolist()}"
    )


def _fits(visit: tuple[Matrix, bool], pair: Seen) -> bool:
    return not visit[1] and np.array_equal(visit[0], pair.rows)


def _layers(visits: int, chains: Sequence[Sequence[int]], layers: int) -> list[int]:
    """Return the layer of each visit; what no gradient came back from are evaluation passes."""
    found = [-1] * visits
    for chain in chains:
        if len(chain) != layers:
            raise CourseError(f"found passes of {layers} and of {len(chain)} layers")
        for layer, visit in enumerate(reversed(chain)):
            found[visit] = layer
    ends = [-1, *(visit for visit, layer in enumerate(found) if layer >= 0), visits]
    for before, after in pairwise(ends):
        alone = after - before - 1
        if alone % layers:
            raise CourseError(
                f"found an evaluation pass of {alone} layers, expected a multiple of {layers}"
            )
        for place in range(alone):
            found[before + 1 + place] = place % layers
    return found
