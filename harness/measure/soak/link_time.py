"""For how long each link was watched: both of its ends without a break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lightrig.testbeds import Link


@dataclass(slots=True)
class LinkTime:
    """Time for which links were watched, in ns, added up between checkpoints."""

    links: tuple[Link, ...]
    _counted: dict[Link, int] = field(default_factory=dict)
    _open: dict[Link, int] = field(default_factory=dict)

    def advance(self, since: Mapping[str, int], until: Mapping[str, int]) -> None:
        """Count until when each server's ports were read; `since`: begin of its present watch."""
        for link in self.links:
            ends = link.a.owner, link.b.owner
            if not all(end in since for end in ends):
                continue
            began = max(self._counted.get(link, 0), *(since[end] for end in ends))
            ended = min(until[end] for end in ends)
            if ended > began:
                self._open[link] = self._open.get(link, 0) + ended - began
                self._counted[link] = ended

    def take(self) -> Iterator[tuple[int, list[Link]]]:
        """Yield the times since the last call, each with its links; that of most links first.

        Servers answer milliseconds after each other, and a row a link would say nothing more:
        times that are alike are the least of them, and what is beyond counts the next time.
        """
        near = _near(self._open.values())
        found: dict[int, list[Link]] = {}
        for link, time in self._open.items():
            found.setdefault(near.get(time, time), []).append(link)
        self._open = {
            link: rest for link, time in self._open.items() if (rest := time - near.get(time, time))
        }
        yield from sorted(found.items(), key=lambda each: -len(each[1]))


def _near(times: Iterable[int], within: int = 1_000_000_000) -> dict[int, int]:
    """Return for each time that is within `within` ns of the most usual ones the least of these."""
    counted = Counter(time // within for time in times)
    if not counted:
        return {}
    usual = counted.most_common(1)[0][0] * within
    alike = [time for time in set(times) if abs(time - usual) <= 2 * within]
    least = min(alike)
    return dict.fromkeys(alike, least)
