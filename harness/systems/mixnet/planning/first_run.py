"""What a first run of a script, over packets alone, shows of its experts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lightrig.harness.systems.mixnet.planning.course import (
    Course,
    CourseError,
    Part,
    Seen,
    course_of,
)
from lightrig.harness.systems.mixnet.planning.demand import Matrix
from lightrig.harness.systems.mixnet.planning.expert_regions import ExpertRegion, expert_regions


class Announced(NamedTuple):
    """An all-to-all that a rank has begun: its step, its part, and the rows to each of `ranks`."""

    step: int
    part: Part
    ranks: tuple[int, ...]
    given: tuple[int, ...]


def regions_of(
    announced: Mapping[int, Sequence[Announced]],
    server_of: Sequence[int],
    switches: Mapping[int, str],
) -> list[tuple[ExpertRegion, Course]]:
    """Return the regions whose experts exchange rows, and the course of each.

    announced: by rank, in their order. Raises `RegionError`, and `CourseError` where the ranks of a
    region do not begin the same all-to-alls.
    """
    groups = sorted({each.ranks for of_rank in announced.values() for each in of_rank})
    regions = expert_regions(groups, server_of, switches)
    return [(region, course_of(_seen(region, announced))) for region in regions]


def _seen(region: ExpertRegion, announced: Mapping[int, Sequence[Announced]]) -> list[Seen]:
    first = announced[region.ranks[0]]
    for rank in region.ranks:
        found = announced[rank]
        if len(found) != len(first):
            raise CourseError(
                f"rank {rank} begins {len(found)} all-to-alls of rows and rank {region.ranks[0]} "
                f"{len(first)}: ranks whose rows may pass over each other's NICs begin as many"
            )
        for number, (one, expected) in enumerate(zip(found, first, strict=True)):
            if (one.step, one.part) != (expected.step, expected.part):
                raise CourseError(
                    f"all-to-all {number} of rank {rank} is of step {one.step} ({one.part}), that "
                    f"of rank {region.ranks[0]} of step {expected.step} ({expected.part})"
                )
    place = {rank: number for number, rank in enumerate(region.ranks)}
    seen = []
    for number, one in enumerate(first):
        rows: Matrix = np.zeros((len(place), len(place)))
        for rank in region.ranks:
            sent = announced[rank][number]
            rows[place[rank], [place[peer] for peer in sent.ranks]] = sent.given
        seen.append(Seen(one.step, one.part, rows))
    return seen
