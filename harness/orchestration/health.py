"""State seen of the parts of a fabric: with hysteresis, and a doubt where all go silent at once."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

MISSES = 2
"""Probes in a row without an answer after which a part has failed."""

HITS = 3
"""Probes in a row with an answer after which a part is used again that failed once."""

MORE_MISSES = 10
"""Probes more that parts get after a common cause: attempts that began within it end by their own
time limits, which are longer than a probe's."""

_MOST_HITS = 96
"""The most that a part needs which failed again and again, and after which that is forgotten."""


@dataclass
class _Probes:
    misses: int = 0
    hits: int = 0
    needed: int = 0


@dataclass
class Health:
    """Which parts have failed, from their probes.

    Attributes:
        causes: parts by what they have in common, such as a host, whose failure silences all.
        failed: reasons by part.
        doubt: why silent parts are not taken for failed ones; None where they are.
    """

    causes: Mapping[str, frozenset[str]]
    failed: dict[str, str] = field(default_factory=dict)
    doubt: str | None = None
    _probes: dict[str, _Probes] = field(default_factory=dict)

    def note(self, misses: Mapping[str, str], answered: Set[str]) -> None:
        """Note a round of probes; `misses` has the reason by part that did not answer.

        A part that fails again soon is believed later: what flaps does not move jobs each time.
        """
        # What has never missed a probe is noted nowhere; what had failed at a restart is.
        for name in (self._probes.keys() | self.failed.keys()) & answered:
            part = self._probes.setdefault(name, _Probes())
            part.misses, part.hits = 0, part.hits + 1
            if name in self.failed and part.hits >= part.needed:
                del self.failed[name]
            if part.hits == _MOST_HITS:
                part.needed = 0
        for name in misses:
            part = self._probes.setdefault(name, _Probes())
            part.misses, part.hits = part.misses + 1, 0
        before, self.doubt = self.doubt, self._doubt(misses)
        if before and not self.doubt:
            # A cause that ends lets its parts answer one after the other: each gets its probes.
            for name in misses:
                self._probes[name].misses = -MORE_MISSES
        if self.doubt:
            return
        for name in sorted(misses.keys() - self.failed.keys()):
            part = self._probes[name]
            if part.misses >= MISSES:
                part.needed = min(max(HITS, 2 * part.needed), _MOST_HITS)
                self.failed[name] = misses[name]

    def forget(self, part: str) -> None:
        """Take a part for one that has never failed."""
        self.failed.pop(part, None)
        self._probes.pop(part, None)

    def _doubt(self, misses: Mapping[str, str]) -> str | None:
        """Return why no silent part is taken for a failed one: all of a cause are silent."""
        for cause, parts in self.causes.items():
            # Parts that failed before are no sign of it; a last one is not either.
            left = parts - self.failed.keys()
            if len(left) > 1 and left <= misses.keys():
                first = min(left)
                return (
                    f"all {len(left)} of {cause} fell silent at once, so the fault is taken to be "
                    f"there; nothing is placed anew until one answers ({first}: {misses[first]})"
                )
        return None
