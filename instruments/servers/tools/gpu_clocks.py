"""Why the clocks of a GPU are low, by whichever vendor's tool."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuClocks:
    """A GPU's clocks.

    Attributes:
        index: of the GPU, as the vendor's tool counts.
        reasons: why its clocks are below their greatest value, by name; None: it does not tell.
        slow: those of them that mean heat or a lack of power.
    """

    index: int
    reasons: tuple[str, ...] | None
    slow: tuple[str, ...] = ()
