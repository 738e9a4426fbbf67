"""Diagnostics of transceivers."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lightrig.instruments.clock import Span


@dataclass(slots=True)
class Diagnostic:
    """One quantity that a module measures itself; None: the module does not tell it.

    Attributes:
        name: such as `prefec_ber`, `esnr` or `pam4_level_transition`.
        side: `media` (the fiber), `host` (the NIC or switch), or "" where the quantity has none.
        lane: number of the lane; None for the whole module.
        current: the latest value; `minimum` to `maximum` are since the host last asked.
        resolution: the smallest difference that the module can tell at this value; 0 if unknown.
    """

    name: str
    side: str = ""
    lane: int | None = None
    current: float | None = None
    minimum: float | None = None
    average: float | None = None
    maximum: float | None = None
    resolution: float = 0.0


@runtime_checkable
class HasModuleDiagnostics(Protocol):
    """A server whose transceivers may measure the quality of their signals."""

    def module_diagnostics(self, port: str, netdev: str) -> tuple[tuple[Diagnostic, ...], Span]:
        """Return the diagnostics of a NIC port's module, and when they were read.

        None where the module measures nothing. Raises `DeniedError` where its memory cannot be
        read, such as that of an empty cage.
        """
