"""Share of a cluster's FLOP/s that training a model uses, by tensor, pipeline and data parallelism.

The paper's simulator is its authors' own and not described (§6.3): this is another one, as plain
as can be, whose inputs beyond the paper's are guesses. A step is computation on matrices, the ring
all-reduces of tensor parallelism, which nothing hides, the bubble of a pipeline without
interleaving, and one all-reduce of gradients.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError

PEAK_FLOPS: Final = 989e12
"""Of an H100 (§6.1)."""
MEMORY: Final = 80 * 2**30
"""Bytes of an H100 (§6.1)."""
HBD_BYTES_S: Final = 6.4e12 / 8
"""Of a GPU within its high-bandwidth domain (§6.1)."""
DCN_BYTES_S: Final = 400e9 / 8
"""Of a GPU between domains (§6.1)."""
BATCH: Final = 2048
"""Sequences of a step (§6.3)."""

MATRIX_EFFICIENCY: Final = 0.6
"""A guess: share of the peak that matrices of any size reach."""
WEIGHT_BYTES, GRADIENT_BYTES, OPTIMISER_BYTES = 2, 4, 12
"""Of a parameter; the optimiser's are sharded over data parallelism (guesses)."""
ACTIVATION_BYTES: Final = 2
"""Of a layer, token and hidden unit: inputs of layers alone are stored, and the time to compute the
rest again is not counted (guesses; with all activations stored TP 8 would not fit the memory)."""

TENSOR, DATA, PIPELINE = ([1 << bit for bit in range(most)] for most in (8, 11, 5))
"""Degrees that are tried: up to 128, 1024 and 16 (§6.3)."""


@dataclass(frozen=True, slots=True)
class Model:
    """A transformer.

    Attributes:
        layers: of which `moe_share` have experts in place of one feed-forward network.
        hidden: width.
        feed_forward: parameters of a layer's feed-forward network, or of one expert.
        sequence: tokens of a sequence.
        vocabulary: tokens known.
        experts: of a layer that has them; `top` of them see each token.
    """

    layers: int
    hidden: int
    feed_forward: float
    sequence: int
    vocabulary: int
    experts: int = 1
    top: int = 1
    moe_share: float = 0.0

    @property
    def attention(self) -> float:
        """Parameters of a layer's attention, with as many heads for keys as for queries."""
        return 4.0 * self.hidden**2

    @property
    def parameters(self) -> float:
        """All parameters, the two embeddings included."""
        feed = self.feed_forward * (1 + self.moe_share * (self.experts - 1))
        return self.layers * (self.attention + feed) + 2.0 * self.hidden * self.vocabulary

    @property
    def token_flops(self) -> float:
        """FLOPs of a token in a layer, forward and backward; attention looks at half of all."""
        feed = self.feed_forward * (1 + self.moe_share * (self.top - 1))
        return 6.0 * (self.attention + feed + self.sequence * self.hidden)

    @property
    def expert_flops(self) -> float:
        """Of those, the experts' share, on average over the layers."""
        return 6.0 * self.feed_forward * self.moe_share * self.top


LLAMA: Final = Model(126, 16384, 3.0 * 16384 * 53248, 8192, 128256)
"""Llama 3.1 405B with multi-head attention, as the authors simplified it (§6.3); sequences of 8,192
tokens are those of its pre-training, a guess here."""
GPT_MOE: Final = Model(192, 12288, 2.0 * 12288 * 49152, 2048, 64000, 8, 2, 0.5)
"""GPT-MoE (Appendix B)."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """Degrees of parallelism; `expert` of the tensor-parallel GPUs hold whole experts."""

    tensor: int
    pipeline: int
    data: int
    expert: int = 1

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.tensor * self.pipeline * self.data


def use(model: Model, by: Strategy, imbalance: float = 0.0) -> float | None:
    """The share of the cluster's FLOP/s that is used; None where the memory does not hold it.

    imbalance: (max - min) / max of the tokens of an expert; the slowest one keeps all waiting,
    and tokens are taken to be spread evenly between least and most.
    """
    if BATCH % by.data or model.layers < by.pipeline:
        return None
    if _bytes(model, by) > MEMORY:
        return None
    micro = BATCH // by.data
    tokens = model.sequence
    layers = model.layers / by.pipeline
    compute = tokens * model.token_flops / by.tensor / (PEAK_FLOPS * MATRIX_EFFICIENCY)
    expert = tokens * model.expert_flops / by.tensor / (PEAK_FLOPS * MATRIX_EFFICIENCY)
    if by.expert > 1:
        compute += expert * (1 / (1 - imbalance / 2) - 1)
    one = layers * (compute + _within_domain(model, by))
    gradients = (
        2.0
        * (by.data - 1)
        / by.data
        * WEIGHT_BYTES
        * model.parameters
        / (by.tensor * by.pipeline)
        / DCN_BYTES_S
    )
    step = one * (micro + by.pipeline - 1) + gradients
    ideal = BATCH * tokens * model.layers * model.token_flops / (by.gpus * PEAK_FLOPS)
    return ideal / step


def best(
    model: Model,
    gpus: int,
    *,
    tensor: Sequence[int] = TENSOR,
    expert: Sequence[int] = (1,),
    imbalance: float = 0.0,
) -> tuple[float, Strategy]:
    """The best use and its strategy; raises `InfiniteHbdError` where none fits the memory."""
    tried = (
        (found, by)
        for by in _strategies(gpus, tensor, expert)
        if (found := use(model, by, imbalance)) is not None
    )
    try:
        return max(tried, key=lambda one: one[0])
    except ValueError:
        raise InfiniteHbdError(f"no strategy of {gpus} GPUs fits the memory") from None


def _strategies(gpus: int, tensor: Sequence[int], expert: Sequence[int]) -> Iterator[Strategy]:
    for t, p, d, e in itertools.product(tensor, PIPELINE, DATA, expert):
        if t * p * d == gpus and t % e == 0:
            yield Strategy(t, p, d, e)


def _within_domain(model: Model, by: Strategy) -> float:
    """Seconds of communication in the domain for a sequence in a layer, both passes (Table 3)."""

    def all_reduce(members: int) -> float:
        size = 2.0 * model.sequence * model.hidden  # in 16 bits
        return 2.0 * (members - 1) / members * size / HBD_BYTES_S

    feed = all_reduce(by.tensor)
    if by.expert > 1:
        group = by.tensor // by.expert
        exchange = all_reduce(by.expert) * model.top / by.expert
        feed = (1 - model.moe_share) * feed + model.moe_share * (all_reduce(group) + exchange)
    return 2.0 * (all_reduce(by.tensor) + feed)


def _bytes(model: Model, by: Strategy) -> float:
    """Bytes of a GPU of the pipeline's first stage, which has most microbatches in flight."""
    parameters = model.parameters / (by.tensor * by.pipeline)
    states = parameters * (WEIGHT_BYTES + GRADIENT_BYTES + OPTIMISER_BYTES / by.data)
    activations = ACTIVATION_BYTES * model.sequence * model.hidden * model.layers / by.tensor
    return states + activations
