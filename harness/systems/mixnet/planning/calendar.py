"""Times of circuit changes in a layer, the traffic known by then, and the time training waits."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Phase: TypeAlias = Literal[
    "dispatch", "combine", "dispatch again", "combine again", "combine gradient",
    "dispatch gradient",
]  # fmt: skip
"""The four all-to-alls of a layer: two in the forward pass, two in the backward pass.

Where a layer's activations were not kept the backward pass has its first two again.
"""
Knowledge: TypeAlias = Literal["gate", "predicted", "unchanged"]
"""Source of the demand: the gate itself, Copilot, or the layer before."""
FirstExchange: TypeAlias = Literal["block", "predict", "reuse"]
"""Strategies for the first all-to-all, whose demand is known only as it begins (§5.1)."""


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Computation of a layer between its all-to-alls, in ns, forward and backward.

    The gate speaks at the end of `attention`; the experts compute between the exchanges.
    """

    attention: int
    experts: int
    attention_backward: int
    experts_backward: int


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """One change of circuits.

    Attributes:
        layer: which one, from 0 in the forward order.
        before: the all-to-all that it serves first.
        transposed: whether that carries the transpose of what the gate dispatched. Both
            directions of a pair share a link, so the circuits are the same.
        knows: where its demand comes from.
        hidden_by: computation that it can hide behind, in ns.
        blocked: how long training waits for it, in ns.
    """

    layer: int
    before: Phase
    transposed: bool
    knows: Knowledge
    hidden_by: int
    blocked: int


def calendar(
    layers: int, times: LayerTimes, delay: int, first: FirstExchange = "block"
) -> Iterator[Reconfiguration]:
    """The changes of circuits of one iteration, in the order in which they happen.

    Each layer's circuits are set for its forward pass and again, since other layers had the
    switch meanwhile, for its backward pass (MixNet App. B.2). For the first all-to-all either
    training waits until the gate has spoken and the circuits have moved, or a prediction moves
    them behind the attention and the gate's word corrects them behind the experts, or the
    circuits of the layer before stay and only the correction is made. The last layer's circuits
    are still there when its backward pass begins; the others' are set behind the attention's
    backward pass of the layer above.

    delay: of one change of circuits, in ns, light and links included.
    """

    def change(
        layer: int, before: Phase, knows: Knowledge, window: int, transposed: bool
    ) -> Reconfiguration:
        blocked = max(0, delay - window)
        return Reconfiguration(layer, before, transposed, knows, window, blocked)

    for layer in range(layers):
        if first == "block":
            yield change(layer, "dispatch", "gate", 0, False)
            continue
        if first == "predict" and layer:
            yield change(layer, "dispatch", "predicted", times.attention, False)
        yield change(layer, "combine", "gate", times.experts, True)
    for layer in reversed(range(layers - 1)):
        window = times.attention_backward
        yield change(layer, "combine gradient", "gate", window, False)


def exchanges(layers: int) -> Iterator[tuple[int, Phase]]:
    """Yield the all-to-alls of one iteration in their order, each with its layer."""
    for layer in range(layers):
        yield layer, "dispatch"
        yield layer, "combine"
    for layer in reversed(range(layers)):
        yield layer, "combine gradient"
        yield layer, "dispatch gradient"


def waiting(changes: Iterator[Reconfiguration]) -> int:
    """Return the time that training waits for all of them, in ns."""
    return sum(each.blocked for each in changes)
