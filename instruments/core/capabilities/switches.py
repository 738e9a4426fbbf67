"""Management of switches beside their circuits; a driver has what its switch offers.

Each method raises `DeniedError`, with the code `CANNOT` where this unit, or this wire of it, has no
such command.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from lightrig.instruments.clock import Span
from lightrig.testbeds import Circuit


@runtime_checkable
class HasPortLabels(Protocol):
    """A switch whose ports have labels."""

    def labels(self) -> Mapping[int, str]:
        """Return labels by port; a port without one has the empty one, or is left out."""

    def set_label(self, port: int, text: str) -> None:
        """Label `port`; the empty text removes its label."""


@runtime_checkable
class BlocksPorts(Protocol):
    """A switch that blocks the light of ports, by a shutter or otherwise."""

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Return whether each of `ports` lets light pass."""

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Let the light of `ports` pass, or block it; their circuits stay."""


@runtime_checkable
class Restartable(Protocol):
    """A switch that restarts by a command."""

    def restart(self, *, warm: bool) -> None:
        """Begin a restart and end all sessions; `warm` is to keep the light."""


@runtime_checkable
class SavesConfiguration(Protocol):
    """A switch that keeps its configuration over a restart once it was saved."""

    def save_configuration(self) -> None:
        """Save the present configuration over the one saved before."""


@runtime_checkable
class Resettable(Protocol):
    """A switch that resets its configuration by a command."""

    def reset_configuration(self) -> None:
        """Remove all circuits; returns when that is done."""


class CircuitNotifications(Protocol):
    """A subscription to the circuits of a switch."""

    def next(self, timeout: int) -> tuple[Span, frozenset[Circuit]]:
        """Return when the next notification came, and the circuits by it, in at most `timeout` ns.

        Raises `NoReplyError` where none came.
        """

    def close(self) -> None:
        """End the subscription."""


@runtime_checkable
class NotifiesCircuits(Protocol):
    """A switch that notifies subscribers of circuits that are made and removed."""

    def follow_circuits(self) -> CircuitNotifications:
        """Subscribe; the first notification is the next change."""
