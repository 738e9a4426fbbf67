"""All ways of placing a job on a short row, for comparison with what is placed.

Groups are chains of places along the row, written from the paper's wiring (§4.2) and its fat tree
(Appendix D), not from the planner: links over 1 to K nodes, of which a node may not use the
farthest on both sides where K is odd; a place of the deployed row is under ToR `place % tors`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

Chain = tuple[int, ...]


class Rank(NamedTuple):
    """What a policy minimizes, the first one first."""

    missing: int
    over: float
    moved: int


class Row(NamedTuple):
    """A row: number of nodes, K, whether its ends are joined, and nodes under a ToR."""

    nodes: int
    reach: int
    closed: bool
    per_tor: int

    def chains(self, usable: set[int], size: int) -> Iterator[Chain]:
        """Yield every group of `size` usable nodes that links can join."""

        def longer(chain: Chain, last: int) -> Iterator[Chain]:
            if len(chain) == size:
                yield chain
                return
            for hop in range(1, self.reach + 1):
                if self.reach % 2 and hop == last == self.reach:
                    continue
                at = chain[-1] + hop
                if self.closed:
                    at %= self.nodes
                if at in usable and at not in chain:
                    yield from longer((*chain, at), hop)

        for first in usable:
            yield from longer((first,), 0)

    def share(self, groups: Sequence[Chain | None]) -> float:
        """Return the share of the links between groups of a set that cross ToRs."""
        crossing = passed = 0
        tors = self.nodes // self.per_tor
        for first in range(0, len(groups), self.per_tor):
            members = [group for group in groups[first : first + self.per_tor] if group]
            if len(members) > 1:
                for a, b in zip(members, [*members[1:], members[0]], strict=True):
                    crossing += sum(x % tors != y % tors for x, y in zip(a, b, strict=True))
                    passed += len(a)
        return crossing / passed if passed else 0.0

    def rank(
        self, before: Sequence[Chain | None], after: Sequence[Chain | None], limit: float
    ) -> Rank:
        """Return how a placement is judged."""
        share = self.share(after)
        moved = sum(bool(old) and old != new for old, new in zip(before, after, strict=True))
        return Rank(sum(not g for g in after), share if share > limit else 0.0, moved)

    def best(self, before: Sequence[Chain | None], free: set[int], size: int, limit: float) -> Rank:
        """Return the rank of the best of all placements; the groups of `before` may all move."""
        usable = free.union(*(group for group in before if group))
        found = [(chain, sum(1 << at for at in chain)) for chain in self.chains(usable, size)]
        best = Rank(len(before) + 1, 0.0, 0)

        def place(after: list[Chain | None], taken: int, missing: int) -> None:
            nonlocal best
            number = len(after)
            if number == len(before):
                best = min(best, self.rank(before, after, limit))
                return
            old = before[number]
            for chain, mask in sorted(found, key=lambda each: each[0] != old):
                if not mask & taken:
                    place([*after, chain], taken | mask, missing)
            if missing < best.missing:
                place([*after, None], taken, missing + 1)

        place([], 0, 0)
        return best
