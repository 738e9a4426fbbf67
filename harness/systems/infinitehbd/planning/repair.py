"""Which groups of a job move once some were lost: none, as few as a search finds, or all.

Groups are rows of places in the row, -1 where a group is missing; the number of a row is the
number of its group. On a fat tree as many consecutive groups as a ToR has nodes form a set, whose
groups are to lie under the same ToRs (`planning.traffic`). A place of the deployed row is under
ToR `place % tors`, since Algorithm 3 deploys one node of each ToR after the other.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from lightrig.harness.systems.infinitehbd.planning.placement import (
    aligned,
    most_groups,
    orchestrate,
)
from lightrig.harness.systems.infinitehbd.planning.rings import joinable
from lightrig.harness.systems.infinitehbd.planning.traffic import crossings
from lightrig.harness.systems.infinitehbd.planning.wiring import FatTree, Mask, Nodes, RowWiring

MISSING = -1
_SHORT = 64
"""ToRs of a row on which the search has time for further starts."""


class Policy(StrEnum):
    """What may move when groups of a job are missing, or cross ToRs."""

    KEEP = "keep"
    REPAIR = "repair"
    OPTIMAL = "optimal"


@dataclass(frozen=True)
class Repair:
    """The groups of one job on a row, and the nodes that it may have.

    Attributes:
        wiring: of the row. tree: the packet network behind it, if there is one.
        before: the groups that it has, by number.
        usable: places that are free for it. pinned: groups that must stay, by number.
        limit: greatest share of its traffic that may cross ToRs where that can be had.
    """

    wiring: RowWiring
    tree: FatTree | None
    before: Nodes
    usable: Mask
    pinned: Mask
    limit: float

    def placed(self, policy: Policy) -> Nodes:
        """Return the groups as a policy places them.

        `keep` moves none. `repair` has, in this order: no more groups missing than placing the
        job afresh; no more than `limit` of its traffic across ToRs; as few groups moved as found.
        `optimal` is Algorithm 1 afresh wherever that has fewer groups missing or less traffic
        across ToRs.
        """
        if (self.before == MISSING).all():
            return self._afresh()
        filled = self._filled(self.before)
        if policy == Policy.KEEP or (policy == Policy.REPAIR and self._good(filled)):
            return filled
        if policy == Policy.OPTIMAL:
            if self._missing(filled) <= self._unavoidable and not self.share(filled):
                return filled
            return min((filled, self._afresh()), key=self._loss)
        candidates = [filled, *self._repaired(filled)]
        best = min(candidates, key=self._rank)
        if not self._good(best) or self._moved(best) > self._per_set:
            best = min((best, self._afresh()), key=self._rank)
        return best

    def share(self, groups: Nodes) -> float:
        """Return the share of the traffic between groups that crosses ToRs."""
        crossing, passed = self._crossings(groups)
        return float(crossing.sum() / passed.sum()) if passed.any() else 0.0

    # ------------------------------------------------------------------------ judgement

    @property
    def _size(self) -> int:
        return int(self.before.shape[1])

    @property
    def _per_set(self) -> int:
        return self.tree.per_tor if self.tree else 1

    @property
    def _tors(self) -> int:
        return self.wiring.nodes // self._per_set

    @property
    def _unavoidable(self) -> int:
        """Groups that are missing however the job is placed."""
        possible = int(self.pinned.sum()) + len(self._most(self._room()))
        return max(len(self.before) - possible, 0)

    def _rank(self, groups: Nodes) -> tuple[int, bool, int, float]:
        # Where no placement found meets the limit, none moves for a little less.
        share = self.share(groups)
        return self._missing(groups), share > self.limit, self._moved(groups), share

    def _loss(self, groups: Nodes) -> tuple[int, float]:
        return self._missing(groups), self.share(groups)

    def _good(self, groups: Nodes) -> bool:
        if self.tree and self.share(groups) > self.limit:
            return False
        missing = self._missing(groups)
        return not missing or missing <= self._unavoidable

    def _missing(self, groups: Nodes) -> int:
        return int((groups[:, 0] == MISSING).sum())

    def _moved(self, groups: Nodes) -> int:
        return int(((groups != self.before).any(axis=1) & (self.before[:, 0] != MISSING)).sum())

    def _crossings(self, groups: Nodes) -> tuple[Nodes, Nodes]:
        tors = np.where(groups == MISSING, MISSING, groups % self._tors)
        return crossings(tors, self._per_set)

    def _free(self, groups: Nodes) -> Mask:
        """Return the places that no group of the job has."""
        free = self._room()
        free[groups[groups != MISSING]] = False
        return free

    def _room(self) -> Mask:
        """Return the places that are free once all groups that may move have left theirs."""
        room = self.usable.copy()
        loose = self.before[~self.pinned]
        room[loose[loose != MISSING]] = True
        return room

    def _most(self, usable: Mask) -> Nodes:
        return most_groups(self.wiring, usable, self._size)

    # ------------------------------------------------------------------------ afresh

    def _afresh(self) -> Nodes:
        """Return the job placed by Algorithm 1, its groups with numbers of like ones before."""
        room, count = self._room(), int((~self.pinned).sum())
        if not self.tree:
            return self._numbered(self._most(room)[:count])
        order = self.tree.order()
        place_in_row = np.argsort(order)
        found = orchestrate(self.tree, ~room[place_in_row], self._size, self.wiring.reach, count)
        groups = place_in_row[found.groups] if found else self._most(room)
        groups = groups[joinable(self.wiring, groups)]
        if len(groups) < count:  # the row may be a ring; its deployed line is not
            groups = self._most(room)
        made = self._numbered(place_in_row[aligned(self.tree, order[groups])][:count])
        if not self.share(made):
            return made
        # Algorithm 1 gives up every ToR with a fault of a domain, or aligns none of its groups.
        return min((made, self._sets_first(room, count)), key=self._loss)

    def _sets_first(self, room: Mask, count: int) -> Nodes:
        """Return the job with as many whole sets under the same ToRs as leave room for the rest."""
        whole: Mask = np.asarray(room.reshape(self._per_set, -1).all(axis=0))
        starts = np.flatnonzero(whole)[: self._size if self._tors <= _SHORT else 1]
        made = []
        for start in starts.tolist():  # which ToRs are left over decides where the rest fits
            made.append(self._sets_from(room, whole & (np.arange(self._tors) >= start), count))
            if self._loss(made[-1]) <= (self._unavoidable, 0.0):
                break
        return min(made, key=self._loss) if made else self._numbered(self._most(room)[:count])

    def _sets_from(self, room: Mask, whole: Mask, count: int) -> Nodes:
        windows = self._windows(whole)
        planes = np.arange(self._per_set)[:, None] * self._tors
        possible = min(count, len(self._most(room)))
        for sets in range(min(len(windows), possible // self._per_set), 0, -1):
            laid = (windows[:sets, None] + planes).reshape(-1, self._size)
            left = room.copy()
            left[laid] = False
            rest = self._most(left)
            if len(laid) + len(rest) >= possible:
                return self._numbered(np.concatenate([laid, rest])[:count])
        return self._numbered(self._most(room)[:count])

    def _numbered(self, found: Nodes) -> Nodes:
        """Return groups by number: set by set, each in place of the one most like it."""
        groups = np.where(self.pinned[:, None], self.before, MISSING)
        number_of = {tuple(row): number for number, row in enumerate(self.before.tolist())}
        slots: dict[int, list[int]] = {}
        for number in np.flatnonzero(~self.pinned).tolist():
            slots.setdefault(number // self._per_set, []).append(number)
        chunks = [found[n : n + self._per_set] for n in range(0, len(found), self._per_set)]
        alike: list[tuple[int, int, int]] = []
        for index, chunk in enumerate(chunks):
            numbers = [number_of.get(tuple(row), MISSING) for row in chunk.tolist()]
            sets = [number // self._per_set for number in numbers if number != MISSING]
            alike += [(-sets.count(each), index, each) for each in set(sets)]
        left, set_of = set(slots), dict[int, int]()
        sizes = {len(numbers) for numbers in slots.values()}
        for _, index, each in sorted(alike):
            size = len(chunks[index])
            fits = size == len(slots[each]) or (size < len(slots[each]) and size not in sizes)
            if index not in set_of and each in left and fits:
                set_of[index] = each
                left.remove(each)
        remaining = iter(sorted(left, key=lambda each: (-len(slots[each]), each)))
        rest: list[list[int]] = []
        for index, chunk in enumerate(chunks):
            numbers_left = slots[set_of[index] if index in set_of else next(remaining)].copy()
            new = []
            for row in chunk.tolist():
                if (number := number_of.get(tuple(row), MISSING)) in numbers_left:
                    groups[number] = row
                    numbers_left.remove(number)
                else:
                    new.append(row)
            for number, row in zip(numbers_left, new, strict=False):
                groups[number] = row
            rest += new[len(numbers_left) :]
        empty = np.flatnonzero((groups[:, 0] == MISSING) & ~self.pinned)
        for number, row in zip(empty.tolist(), rest, strict=False):
            groups[number] = row
        return groups

    # ------------------------------------------------------------------------ what is missing

    def _filled(self, groups: Nodes) -> Nodes:
        """Return groups with as many of the missing ones as free nodes hold; none moves."""
        groups = groups.copy()
        lost = np.flatnonzero(groups[:, 0] == MISSING)
        if not lost.size:
            return groups
        if self.tree:
            for each in np.unique(lost // self._per_set).tolist():
                if (found := self._beside(groups, each, moving=False)) is not None:
                    groups = found
        lost = np.flatnonzero(groups[:, 0] == MISSING)
        if not lost.size:
            return groups
        free = self._free(groups)
        found = self._most(free)
        if self.tree:  # ToRs that are free as a whole are left to whole sets
            broken = free.reshape(self._per_set, -1)
            some = self._most((broken & ~broken.all(axis=0)).ravel())
            found = some if len(some) >= min(lost.size, len(found)) else found
        count = min(lost.size, len(found))
        groups[lost[:count]] = found[:count]
        return groups

    # ------------------------------------------------------------------------ few moves

    def _repaired(self, filled: Nodes) -> Iterator[Nodes]:
        """Yield placements by which groups move: sets that cross ToRs, or runs of neighbours."""
        if self.tree:
            groups = self.before
            while not self._good(filled):
                crossing, _ = self._crossings(filled)
                short = np.bincount(
                    np.flatnonzero(filled[:, 0] == MISSING) // self._per_set,
                    minlength=len(crossing),
                )
                broken = np.flatnonzero((crossing > 0) | (short > 0)).tolist()
                found = [self._beside(groups, each, moving=True) for each in broken]
                made = [each for each in found if each is not None]
                if not made:
                    # Each is a search: sets that have lost a group are few, those that cross many.
                    lost = {n // self._per_set for n in np.flatnonzero(groups[:, 0] == MISSING)}
                    some = [n for n in broken if n in lost] or broken[:1]
                    shifted = [self._set_shifted(groups, n) for n in some]
                    made = [each for each in shifted if each is not None]
                made = [each for each in made if (each != groups).any()]
                if not made:
                    break
                groups = min(made, key=self._moved)
                filled = self._filled(groups)
            yield filled
        if self._missing(filled) > self._unavoidable:
            yield self._row_shifted()

    def _beside(self, groups: Nodes, number: int, *, moving: bool) -> Nodes | None:
        """Return groups with one set under the same ToRs; None where no free nodes allow it.

        It goes beside a group of it that stays, or to ToRs that are free as a whole. moving:
        whether groups of it that are there may move.
        """
        members = self._members(number)
        present = [n for n in members if groups[n, 0] != MISSING]
        fixed = [n for n in present if self.pinned[n] or not moving]
        bare = groups.copy()
        bare[[n for n in members if n not in fixed]] = MISSING
        free = self._free(bare).reshape(self._per_set, -1)
        best = None
        for anchor in fixed[:1] or present:
            tors, planes = groups[anchor] % self._tors, groups[anchor] // self._tors
            if (planes == planes[0]).all():
                open_: Mask = np.asarray(free[:, tors].all(axis=1))
                open_[planes[0]] = True
                if (made := self._laid(groups, members, tors, open_)) is not None:
                    best = made if best is None else min((best, made), key=self._moved)
        if best is None and not fixed:
            windows = self._windows(np.asarray(free.all(axis=0)))
            if len(windows):
                everywhere = np.ones(self._per_set, dtype=bool)
                best = self._laid(bare, members, windows[0], everywhere)
        return best

    def _members(self, number: int) -> list[int]:
        first = number * self._per_set
        return list(range(first, min(first + self._per_set, len(self.before))))

    def _laid(
        self, groups: Nodes, members: Sequence[int], tors: Nodes, open_: Mask
    ) -> Nodes | None:
        """Return groups with those of a set at `tors`, in the places under them that are open."""
        planes = [plane * self._tors + tors for plane in np.flatnonzero(open_)]
        rows = {tuple(plane.tolist()) for plane in planes}
        stay = [n for n in members if tuple(groups[n].tolist()) in rows]
        for number in stay:
            rows.remove(tuple(groups[number].tolist()))
        rest = [n for n in members if n not in stay]
        if len(rows) < len(rest) or any(self.pinned[n] for n in rest):
            return None
        laid = groups.copy()
        for number, row in zip(rest, sorted(rows), strict=False):
            laid[number] = row
        return laid

    def _windows(self, tors: Mask) -> Nodes:
        """Return as many groups of ToRs as can be made of `tors`."""
        line = RowWiring(self._tors, self.wiring.hops)
        return most_groups(line, tors, self._size)

    def _set_shifted(self, groups: Nodes, number: int) -> Nodes | None:
        """Return groups with room made for one set by moving a run of neighbouring sets."""
        members = self._members(number)
        if self.pinned[members].any():
            return None
        bare = groups.copy()
        bare[members] = MISSING
        whole = self._whole_sets(bare)
        free: Mask = np.asarray(self._free(bare).reshape(self._per_set, -1).all(axis=0))
        order = sorted(whole, key=lambda each: int(whole[each].min()))
        run = shortest_run(
            [whole[each] for each in order], free, lambda mask: len(self._windows(mask))
        )
        if run is None:
            return None
        freed = [order[index] for index in run]
        for each in freed:
            free[whole[each]] = True
        windows = [tuple(row) for row in self._windows(free).tolist()][: len(freed) + 1]
        stay = {each for each in freed if tuple(whole[each].tolist()) in windows}
        for each in stay:
            windows.remove(tuple(whole[each].tolist()))
        everywhere = np.ones(self._per_set, dtype=bool)
        moving = [each for each in freed if each not in stay]
        for each in moving:
            bare[self._members(each)] = MISSING
        for each, window in zip([number, *moving], windows, strict=False):
            laid = self._laid(bare, self._members(each), np.array(window), everywhere)
            if laid is None:
                return None
            bare = laid
        return bare

    def _whole_sets(self, groups: Nodes) -> dict[int, Nodes]:
        """Return the ToRs of the sets that may move and have all of the places under them."""
        count = len(groups) // self._per_set
        sets = groups[: count * self._per_set].reshape(count, self._per_set, self._size)
        tors, planes = sets % self._tors, sets // self._tors
        whole = (
            (sets != MISSING).all(axis=(1, 2))
            & (tors == tors[:, :1]).all(axis=(1, 2))
            & (np.sort(planes, axis=1) == np.arange(self._per_set)[:, None]).all(axis=(1, 2))
            & ~self.pinned[: count * self._per_set].reshape(count, self._per_set).any(axis=1)
        )
        return {each: tors[each, 0] for each in np.flatnonzero(whole).tolist()}

    def _row_shifted(self) -> Nodes:
        """Return groups with room made for what is missing by moving runs of neighbours."""
        loose = np.flatnonzero(~self.pinned & (self.before[:, 0] != MISSING)).tolist()
        order = sorted(loose, key=lambda number: int(self.before[number, 0]))
        target = len(self.before) - self._unavoidable
        free, moved = self.usable.copy(), list[int]()

        def possible(numbers: Sequence[int]) -> int:
            room = self.usable.copy()
            room[self.before[numbers].ravel()] = True
            standing = len(self.before) - self._missing(self.before) - len(numbers)
            return standing + len(self._most(room))

        while possible(moved) < target and order:
            rows = [self.before[number] for number in order]
            found = shortest_run(rows, free, lambda mask: len(self._most(mask)), around=True)
            run = range(len(order)) if found is None else found
            moved += [order[index] for index in run]
            free[self.before[moved].ravel()] = True
            order = [number for number in order if number not in moved]
        for number in moved.copy():
            if possible([each for each in moved if each != number]) >= target:
                moved.remove(number)
        bare = self.before.copy()
        bare[moved] = MISSING
        return self._refilled(bare, moved)

    def _refilled(self, groups: Nodes, moved: Sequence[int]) -> Nodes:
        """Return groups with the missing ones filled, those that moved into old places first."""
        found = [tuple(row) for row in self._most(self._free(groups)).tolist()]
        for number in moved:
            if (row := tuple(self.before[number].tolist())) in found:
                groups[number] = row
                found.remove(row)
        empty = np.flatnonzero(groups[:, 0] == MISSING)
        for number, row in zip(empty.tolist(), found, strict=False):
            groups[number] = row
        return groups


def shortest_run(
    blocks: Sequence[Nodes], free: Mask, most: Callable[[Mask], int], *, around: bool = False
) -> list[int] | None:
    """Return the shortest run of neighbouring blocks that makes room for one more; None: no run.

    blocks: places of each, in order. free: places that are free already. most: how many blocks
    a mask of free places holds. around: whether a run may go over the end.
    """
    base = most(free)

    def gains(first: int, count: int) -> bool:
        room = free.copy()
        for index in range(first, first + count):
            room[blocks[index % len(blocks)]] = True
        return most(room) > base + count

    best: list[int] | None = None
    length = 0
    for first in range(len(blocks)):
        length = max(length - 1, 0)
        longest = len(blocks) if around else len(blocks) - first
        if best is not None:
            longest = min(longest, len(best) - 1)
        while length <= longest and not gains(first, length):
            length += 1
        if length <= longest:
            best = [index % len(blocks) for index in range(first, first + length)]
    return best
