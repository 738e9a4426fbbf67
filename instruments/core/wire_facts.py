"""Facts about the wire of a model: those that a source confirms, and those that none does."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WireFact:
    """One fact that a driver relies on.

    Attributes:
        text: the fact, as a phrase.
        source: the manual, program or capture that confirms it; empty where none does.
        wires: the schemes that it is about; empty for all of the driver.
    """

    text: str
    source: str = ""
    wires: Collection[str] = ()

    @property
    def confirmed(self) -> bool:
        """Whether a source confirms it."""
        return bool(self.source)

    def is_about(self, scheme: str) -> bool:
        """Return whether the fact matters on the wire `scheme`."""
        return not self.wires or scheme in self.wires
