"""From tokens that gates send to experts to what servers send to each other."""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.testbeds import LightrigError

Matrix: TypeAlias = npt.NDArray[np.float64]


class DemandError(LightrigError, ValueError):
    """A demand, a placement or a count of ports makes no sense."""


@dataclass(frozen=True, slots=True)
class Placement:
    """On which server each rank of an expert-parallel group is.

    `server_of` has a server's number for each rank. `experts_per_rank` experts are on each:
    expert e is on rank e // experts_per_rank.

    Raises `DemandError` where a rank is on no server.
    """

    server_of: tuple[int, ...]
    servers: int
    experts_per_rank: int = 1

    def __post_init__(self) -> None:
        strays = [rank for rank, at in enumerate(self.server_of) if not 0 <= at < self.servers]
        if strays:
            raise DemandError(f"rank {strays[0]} is on no server of 0 to {self.servers - 1}")

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.server_of)

    @classmethod
    def even(cls, ranks: int, servers: int, experts_per_rank: int = 1) -> "Placement":
        """As many ranks on each server, neighbours together."""
        if servers < 1 or ranks % servers:
            raise DemandError(f"{ranks} ranks cannot be spread evenly over {servers} servers")
        each = ranks // servers
        return cls(tuple(rank // each for rank in range(ranks)), servers, experts_per_rank)

    def moved(self, rank: int, to: int) -> "Placement":
        """The placement after `rank` went to a backup GPU on server `to`."""
        server_of = list(self.server_of)
        server_of[rank] = to
        return replace(self, server_of=tuple(server_of))


def dispatched(tokens: int, load: npt.ArrayLike, ranks: int) -> Matrix:
    """Return the tokens from each rank to each expert where all gates choose by `load`.

    tokens: of each rank. load: share of each expert, which sums to 1.
    """
    return np.tile(tokens * np.asarray(load, dtype=float), (ranks, 1))


def server_traffic(tokens: npt.ArrayLike, placement: Placement) -> Matrix:
    """Return the traffic between servers, servers x servers, with zeros on the diagonal.

    tokens: ranks x experts, in tokens or bytes. Raises `DemandError` for another shape and for
    what is negative or not finite.
    """
    sent = np.asarray(tokens, dtype=float)
    ranks = placement.ranks
    shape = (ranks, ranks * placement.experts_per_rank)
    if sent.shape != shape:
        raise DemandError(f"found tokens of shape {sent.shape}, expected ranks x experts {shape}")
    if not (np.isfinite(sent) & (sent >= 0)).all():
        raise DemandError("found tokens below zero or not finite, expected counts")
    by_rank = sent.reshape(ranks, ranks, placement.experts_per_rank).sum(axis=2)
    on = np.zeros((ranks, placement.servers))
    on[np.arange(ranks), placement.server_of] = 1
    traffic: Matrix = on.T @ by_rank @ on
    np.fill_diagonal(traffic, 0)
    return traffic


def pair_demand(traffic: npt.ArrayLike) -> Matrix:
    """Both directions of each pair added, as an upper triangle (MixNet §5.2, step 1).

    A link is provisioned for both directions together, and the four all-to-alls of a layer
    carry the same matrix or its transpose, so one demand stands for all four.
    """
    sent = np.asarray(traffic, dtype=float)
    if sent.ndim != 2 or sent.shape[0] != sent.shape[1]:
        raise DemandError(f"found traffic of shape {sent.shape}, expected servers x servers")
    both: Matrix = np.triu(sent + sent.T, 1)
    return both


def server_demand(tokens: npt.ArrayLike, placement: Placement) -> Matrix:
    """Return the demand of server pairs, from the tokens of ranks to experts."""
    return pair_demand(server_traffic(tokens, placement))
