"""Process groups and traffic of five-dimensional parallelism (RailX, section 5, table 4).

Ranks are numbered with tensor parallelism fastest: [T, C, E, De, P], and D = E De. Volumes are in
elements, as printed; multiply by the bytes of an element. The paper's V stands for the volume and
for the vocabulary; the vocabulary is `vocabulary` here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

Groups = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Degrees of tensor, context, expert, expert-data and pipeline parallelism."""

    tensor: int
    context: int
    expert: int
    expert_data: int
    pipeline: int

    @property
    def data(self) -> int:
        """Data parallelism of attention layers, D = E De."""
        return self.expert * self.expert_data

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.tensor * self.context * self.data * self.pipeline

    def groups(self) -> dict[str, Groups]:
        """Return the process groups of table 4; each kind is a partition of all ranks."""
        t, c, e, d = self.tensor, self.context, self.expert, self.data
        context = self._strided(t, c)
        return {
            "tensor": self._strided(1, t),
            "context": context,
            "expert": self._strided(t * c, e),
            "data-vocabulary": self._strided(t * c, d),
            "data-qkv": self._strided(t, c * d),
            "data-ffn": self._ffn(context),
            "pipeline": self._strided(t * c * d, self.pipeline),
        }

    def _strided(self, stride: int, size: int) -> Groups:
        starts = (i for i in range(self.ranks) if i // stride % size == 0)
        return [tuple(start + k * stride for k in range(size)) for start in starts]

    def _ffn(self, context: Groups) -> Groups:
        """Return unions of context groups at stride T C E, as weights repeat over context."""
        stride = self.tensor * self.context * self.expert
        return [
            tuple(rank + k * stride for k in range(self.expert_data) for rank in group)
            for group in context
            if group[0] // stride % self.expert_data == 0
        ]


@dataclass(frozen=True, slots=True)
class Model:
    """Sizes that the volumes depend on, by the letters of table 4.

    batch B, micro_batches N_B, sequence S, hidden H, layers L, vocabulary V, heads h_A, kv_heads
    h_KV, intermediate I, top_k K.
    """

    batch: int
    micro_batches: int
    sequence: int
    hidden: int
    layers: int
    vocabulary: int
    heads: int
    kv_heads: int
    intermediate: int
    top_k: int


class Volume(NamedTuple):
    """Elements of one operation, and how often it happens in an iteration."""

    elements: float
    times: float


def volumes(model: Model, degrees: Parallelism) -> dict[str, Volume]:
    """Return table 4's volumes V and frequencies F.

    As printed: the data-parallel volume of the vocabulary is divided by T C, those of the other
    layers by T; the experts of a chip do not enter that of the FFN layers.
    """
    t, c = degrees.tensor, degrees.context
    tokens = model.batch * model.sequence * model.hidden
    layers = model.layers / degrees.pipeline
    passes = 4 * model.micro_batches * layers
    kv = 2 * model.kv_heads / model.heads
    return {
        "tensor-attention": Volume(tokens, passes),
        "tensor-expert": Volume(tokens * model.top_k, passes),
        "context": Volume(tokens * kv / t, passes / 2),
        "expert": Volume(tokens * model.top_k / (t * c), passes),
        "data-vocabulary": Volume(2 * model.hidden * model.vocabulary / (t * c), 1),
        "data-qkv": Volume((2 + kv) * model.hidden**2 / t, layers),
        "data-ffn": Volume(3 * model.hidden * model.intermediate / t, layers),
        "pipeline": Volume(tokens / (t * c), 2 * model.micro_batches),
    }


def global_batch(model: Model, degrees: Parallelism) -> int:
    """B N_B D (appendix A.3)."""
    return model.batch * model.micro_batches * degrees.data


def links_missing(groups: Groups, joined: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """Return neighbours in a group, taken as a ring, that `joined` does not know."""
    return [
        (a, b)
        for group in groups
        for a, b in zip(group, (*group[1:], group[0]), strict=True)
        if a != b and not joined(a, b)
    ]


LISTING_1 = Parallelism(tensor=4, context=2, expert=2, expert_data=2, pipeline=2)
"""Degrees of the authors' trace: DP 4 with EP 2 inside, TP 4, PP 2, CP 2."""
