"""A server that did not answer, on a bench that is used without it."""

from collections.abc import Mapping, Sequence
from typing import NoReturn

from lightrig.instruments.core.capabilities import (
    Identity,
    PendingSettlement,
    PortWatch,
    Stage,
)
from lightrig.instruments.core.errors import NotThereError


class AbsentServer:
    """Stands for a server that did not answer; whatever is asked of it raises `NotThereError`.

    why: name and address, and what was tried.
    """

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.why = why

    def identity(self) -> Identity:
        """Raise `NotThereError`."""
        self._refuse()

    def watch(
        self, ports: Sequence[PortWatch], *, period: int, datagram_period: int | None
    ) -> frozenset[tuple[str, Stage]]:
        """Raise `NotThereError`."""
        self._refuse()

    def settle(
        self,
        stages: Mapping[str, Sequence[Stage]],
        *,
        timeout: int,
        gaps: bool = False,
        departures: Mapping[str, Sequence[int]] | None = None,
    ) -> PendingSettlement:
        """Raise `NotThereError`."""
        self._refuse()

    def streams(self) -> Mapping[int, str]:
        """Raise `NotThereError`."""
        self._refuse()

    def wire(self) -> Sequence[str]:
        """Return nothing: there is no wire."""
        return ()

    def unwatch(self) -> None:
        """Observe nothing, as before."""

    def close(self) -> None:
        """Close nothing: there is no session."""

    def _refuse(self) -> NoReturn:
        raise NotThereError(self.name, f"is needed here, and did not answer ({self.why})")
