"""Sizes of a transformer, and degrees of its parallelism."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """A transformer. `gated`: three matrices of the feed-forward part; `kv_heads` of `heads`.

    experts: of a layer, 1 for a dense one, of which `active` work on each token.
    """

    layers: int
    width: int
    hidden: int
    vocabulary: int
    heads: int = 1
    kv_heads: int = 1
    gated: bool = False
    experts: int = 1
    active: int = 1

    @property
    def kv_width(self) -> int:
        """Elements of a token's keys."""
        return self.width * self.kv_heads // self.heads


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Degrees, of which `tensor` ranks are folded: they do the same at the same times.

    context: ranks that share each sequence; they gather keys and values, and reduce their
    gradients. sharded: parameters are shared among all that have the same (FSDP), and gathered for
    each pass.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    micro_batches: int = 1
    schedule: str = "1f1b"
    context: int = 1
    sharded: bool = False

    @property
    def replicas(self) -> int:
        """How many ranks of a stage have the same parameters, of a tensor-parallel place."""
        return self.data * self.context

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return self.replicas * self.tensor * self.pipeline
