"""Cost and power of interconnects: Table 8 as published, and what follows from it."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", float, npt.NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class Component:
    """So many parts of a kind, each for so many dollars and watts."""

    kind: str
    count: int
    dollars: float
    watts: float


@dataclass(frozen=True, slots=True)
class Interconnect:
    """The parts that join `gpus` GPUs, with `gbytes_per_s` of bandwidth for each."""

    gpus: int
    gbytes_per_s: int
    parts: tuple[Component, ...]

    @property
    def dollars(self) -> float:
        """For each GPU."""
        return sum(part.count * part.dollars for part in self.parts) / self.gpus

    @property
    def watts(self) -> float:
        """For each GPU."""
        return sum(part.count * part.watts for part in self.parts) / self.gpus

    @property
    def dollars_per_gbyte(self) -> float:
        """For each GPU and GB/s."""
        return self.dollars / self.gbytes_per_s

    @property
    def watts_per_gbyte(self) -> float:
        """For each GPU and GB/s."""
        return self.watts / self.gbytes_per_s


def _nvlink(gpus: int, switches: int, cables: int, *others: Component) -> Interconnect:
    switch = Component("NVLink switch", switches, 28_000, 275)
    return Interconnect(gpus, 900, (switch, Component("DAC cable", cables, 35.60, 0.1), *others))


def _ocstrx(modules: int, cables: int) -> Interconnect:
    parts = (
        Component("DAC cable", cables, 199.60, 0.1),
        Component("OCSTrx", modules, 600, 12),
        Component("fiber", modules, 6.80, 0),
    )
    return Interconnect(4, 800, parts)


INTERCONNECTS = MappingProxyType(
    {
        "tpuv4": Interconnect(
            4096,
            300,
            (
                Component("OCS", 48, 80_000, 108),
                Component("DAC cable", 5120, 63.60, 0.1),
                Component("optical module", 6144, 360, 12),
                Component("fiber", 6144, 6.80, 0),
            ),
        ),
        "nvl-36": _nvlink(36, 9, 2592),
        "nvl-72": _nvlink(72, 18, 5184),
        "nvl-36x2": _nvlink(72, 36, 6480, Component("ACC cable", 162, 320, 2.5)),
        "nvl-576": _nvlink(
            576,
            432,
            41_472,
            Component("optical module", 4608, 850, 25),
            Component("fiber", 4608, 6.80, 0),
        ),
        "infinitehbd-2": _ocstrx(16, 4),
        "infinitehbd-3": _ocstrx(24, 2),
    }
)
"""By name, with the number of hops. Source: Table 8 (published prices, not ours)."""


def aggregate_cost(interconnect: Interconnect, unusable: T, gpu_dollars: float) -> T:
    """Dollars for each GPU: its interconnect, and its share of the GPUs wasted or faulty (§6.5).

    unusable: the share of GPUs that are. gpu_dollars: what a GPU costs, which the paper does
    not print.
    """
    return unusable * gpu_dollars + interconnect.dollars
