"""Results that need no trace: bounds on waste, the ring's efficiency, published ratios."""

from dataclasses import dataclass
from types import MappingProxyType

from lightrig.instruments.jobs.flows.bandwidth import bus_bandwidth
from lightrig.suites.claims.closed_forms import ring_all_reduce


def waste_bound(hops: int, gpus: int, group: int, node_share: float) -> float:
    """A bound on the expected share of GPUs wasted: 2 (Nt - R) Ps^K (Appendix C, equation 1).

    group: Nt, GPUs of a group. gpus: R, GPUs of a node. node_share: Ps, how likely a node is
    faulty. It drops a term in Ps^(2K), so for unlikely faults alone it is a bound; and it is
    printed as a share, though it can exceed 1.
    """
    return 2.0 * (group - gpus) * node_share**hops


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A row of Table 2: GPUs, TP x PP x DP, and the shares of FLOPs used, freely and with TP 8."""

    gpus: int
    parallel: tuple[int, int, int]
    best: float
    tp8: float


MODEL_USE = MappingProxyType(
    {
        row.gpus: row
        for row in (
            ModelUse(1024, (16, 4, 16), 0.5236, 0.5217),
            ModelUse(4096, (16, 8, 32), 0.4668, 0.4282),
            ModelUse(8192, (32, 8, 32), 0.4247, 0.3512),
            ModelUse(16384, (32, 16, 32), 0.3756, 0.2584),
            ModelUse(32768, (32, 16, 64), 0.3090, 0.1690),
            ModelUse(65536, (64, 16, 64), 0.2493, 0.0999),
            ModelUse(131072, (64, 16, 128), 0.1851, 0.0550),
        )
    }
)
"""By GPUs. Source: Table 2 (Llama 3.1 405B, simulated by the authors)."""


@dataclass(frozen=True, slots=True)
class PcieFraming:
    """Return the overhead of a PCIe 4.0 packet, in bytes.

    The payload and how often the receiver answers are guesses: the paper names neither. framing:
    a token of 4 that carries the sequence number, a header of 16, a check sum of 4. answer: a
    data link packet, acknowledging or granting credit.
    """

    payload: int = 128
    framing: int = 24
    answer: int = 8
    answers: float = 1.0

    @property
    def efficiency(self) -> float:
        """The share of raw bits that is payload, the 128b/130b line code included."""
        return self.payload / (self.payload + self.framing + self.answers * self.answer) * 128 / 130


def ring_utilisation(
    ranks: int, size: int, rate: float, efficiency: float, step_ns: float
) -> float:
    """The share of a ring's rate that an all-reduce of `size` bytes uses, as bus bandwidth.

    Each of 2 (n - 1) steps passes size / n bytes on at `efficiency` of `rate` (bit/s), and
    costs `step_ns` beside. For large messages it tends to `efficiency`, whatever the ranks.
    """
    time_ns = ring_all_reduce(ranks, size, rate * efficiency, step_ns)
    return bus_bandwidth("all_reduce", ranks, size, time_ns) / rate
