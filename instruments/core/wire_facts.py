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
        second: another source, independent of the first; empty where only one is known.
    """

    text: str
    source: str = ""
    wires: Collection[str] = ()
    second: str = ""

    @property
    def confirmed(self) -> bool:
        """Whether a source confirms it."""
        return bool(self.source)

    @property
    def has_one_source(self) -> bool:
        """Whether one source confirms it and no second does."""
        return bool(self.source) and not self.second

    def is_about(self, scheme: str) -> bool:
        """Return whether the fact matters on the wire `scheme`."""
        return not self.wires or scheme in self.wires
