"""Optical ports on GPUs against NVL72, DeepSeek-V3 on 2,048 GPUs (§8, Fig. 16), in closed form.

All parts of a step grow with the tokens of a micro-batch, so neither its size nor the number of
stages changes a ratio of steps. Loads are even, each copy of a token goes straight to its expert,
exchanges wait for computation and overlap each other within and out of a domain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lightrig.harness.claims.figures.curves import Curve

WIDTH, LAYERS, EXPERT_LAYERS, ACTIVE = 7168, 61, 58, 8
"""Sizes of DeepSeek-V3, which are public: of the layers three are dense; experts a token."""
PARAMETERS = 37e9
"""At work on a token."""
HEADS, QUERY, VALUE, SEQUENCE = 128, 192, 128, 4096
DISPATCH_BYTES, COMBINE_BYTES = 1, 2
"""Of an element, in FP8 and BF16; both exchanges go forward and backward."""
EXPERT_RANKS, DOMAIN = 128, 64
"""EP degree, and GPUs of a domain that are used (§8)."""
ETHERNET = 800e9 / 8e9
"""Bytes a ns."""
OPERATIONS = 2.5e6
"""FLOPs a ns of a GB200's GPU in BF16, dense."""
UTILIZATIONS = (0.4, 0.3, 0.5)
"""A guess, and between what it may lie: the paper prints no time of computation."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Bytes a ns of a GPU within its domain, and out of it between ranks of experts."""

    within: float
    out: float


def nvl72(total_tbps: float) -> Ports:
    """All but Ethernet is NVLink."""
    return Ports(total_tbps * 1000 / 8 - ETHERNET, ETHERNET)


def mixnet(total_tbps: float) -> Ports:
    """Half of what Ethernet leaves is NVLink, half goes to circuits of the region."""
    each = (total_tbps * 1000 / 8 - ETHERNET) / 2
    return Ports(each, each)


def token_nanoseconds(ports: Ports, utilization: float) -> float:
    """Return what a step takes for a token that a GPU puts into the pipeline, of all layers."""
    attention = HEADS * (QUERY + VALUE) * 2 * SEQUENCE / 2 * LAYERS
    operations = 3 * (2 * PARAMETERS + attention)
    sent = 2 * (DISPATCH_BYTES + COMBINE_BYTES) * EXPERT_LAYERS * ACTIVE * WIDTH
    out = sent * (EXPERT_RANKS - DOMAIN) / EXPERT_RANKS
    within = sent * (DOMAIN - 1) / EXPERT_RANKS
    exchanges = max(out / ports.out, within / ports.within)
    return operations / (OPERATIONS * utilization) + exchanges


def optical_ports() -> Sequence[Curve]:
    """Return NVL72's iteration time over MixNet's, by Tbit/s of a GPU (Fig. 16)."""
    totals = (8.0, 16.0)
    found = [
        [
            token_nanoseconds(nvl72(total), share) / token_nanoseconds(mixnet(total), share)
            for share in UTILIZATIONS
        ]
        for total in totals
    ]
    return [
        Curve(
            "NVL72 over MixNet",
            tuple(f"{total:g} Tbit/s" for total in totals),
            tuple(each[0] for each in found),
            tuple(min(each) for each in found),
            tuple(max(each) for each in found),
        )
    ]
