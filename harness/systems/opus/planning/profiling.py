"""From what ranks were seen to do to the phase tables that their shims consult."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from lightrig.harness.systems.opus.planning.operations import Operation, OpusError, RailJob
from lightrig.harness.systems.opus.planning.schedule import PhaseTable, numbered

_Named: TypeAlias = tuple[str, int]
"""Group of an operation, and how many sends and receives are joined in it."""


@dataclass(frozen=True, slots=True)
class SeenOperations:
    """Operations of a rank in their order, as they were seen.

    Attributes:
        groups: of each.
        parts: the directions, s or r, of the sends and receives that are joined in each; "" for a
            collective. Empty where nothing is known of them.
        steps: how many operations had begun before the end of each step of an optimizer.
    """

    groups: Sequence[str]
    parts: Sequence[str] = ()
    steps: Sequence[int] = ()


def profiled(job: RailJob, seen: Mapping[int, SeenOperations]) -> tuple[PhaseTable, ...]:
    """Every rank's phase table, from its operations in their order.

    Steps end with those of an optimizer; most are alike. Where all after some are, as many as one
    likes may follow. Without an optimizer, what repeats itself to the end, at least twice, is taken
    for the steps; what comes before is done once. Where nothing does, all of it is one step.
    Raises `OpusError` for ranks that do not agree in what they tell each other, or say nothing.
    """
    tables = _tables(job, seen)
    used = {
        one.dimension for each in tables for one in (*each.before, *each.operations, *each.whole)
    }
    return tuple(replace(each, still=True) for each in tables) if len(used) == 1 else tables


def _tables(job: RailJob, seen: Mapping[int, SeenOperations]) -> tuple[PhaseTable, ...]:
    joined = {name: _joined(job, name, seen) for name in job.groups}
    ranks = [_rank(rank, seen[rank], joined) for rank in range(len(job.stage_of))]
    steps = [_split(names, ends) for names, ends in ranks]
    if len({len(each) for each in steps}) == 1:
        usual = [_usual(each) for each in steps]
        alike = [
            number
            for number in range(len(steps[0]) - 1)
            if all(each[number] == one for each, one in zip(steps, usual, strict=True))
        ]
        if len(alike) > 1:
            return tuple(
                _table_of_steps(job, each, one, alike)
                for each, one in zip(steps, usual, strict=True)
            )
    return tuple(_table_of_cycle(job, names) for names, _ in ranks)


def _joined(job: RailJob, name: str, seen: Mapping[int, SeenOperations]) -> list[int]:
    """Return how many sends and receives of a pair are joined in each of their operations.

    Two ranks may begin them in different orders, such as each its own send first. Those up to
    which both have begun the same are one operation: none of them waits for one after it. A
    collective of the two is one by itself.
    """
    members = job.groups[name].ranks
    begun: dict[int, str] = {}
    for place, rank in enumerate(members):
        one = seen[rank]
        parts = one.parts or [""] * len(one.groups)
        of_group = (part for group, part in zip(one.groups, parts, strict=True) if group == name)
        begun[rank] = "".join(part or "c" for part in of_group)
        if place:  # as the first rank of the pair sees them
            begun[rank] = begun[rank].translate(str.maketrans("sr", "rs"))
    first, *later = begun.values()
    if any(len(parts) != len(first) for parts in later):
        counted = ", ".join(f"rank {rank} {len(parts)}" for rank, parts in begun.items())
        raise OpusError(f"operations of {name} differ in number: {counted}")
    if len(members) != 2 or set(first) <= {"c"}:
        return [1] * len(first)
    (second,) = later
    if first.count("s") != second.count("s"):
        raise OpusError(
            f"rank {members[0]} sends {first.count('s')} messages of {name}, and rank {members[1]} "
            f"receives {second.count('s')}"
        )
    blocks, start = [], 0
    sends = collectives = 0
    for end, (part, partner) in enumerate(zip(first, second, strict=True), 1):
        sends += (part == "s") - (partner == "s")
        collectives += (part == "c") - (partner == "c")
        if sends or collectives:
            continue
        if end - start > 1 and "c" in first[start:end]:
            raise OpusError(
                f"rank {members[0]} and rank {members[1]} begin a collective of {name} between "
                "sends and receives in different orders"
            )
        blocks.append(end - start)
        start = end
    return blocks


def _rank(
    rank: int, seen: SeenOperations, joined: Mapping[str, Sequence[int]]
) -> tuple[list[_Named], list[int]]:
    """Return a rank's operations, and how many there are at the end of each optimizer's step."""
    parts = seen.parts or [""] * len(seen.groups)
    every = [(group, at) for at, (group, part) in enumerate(zip(seen.groups, parts, strict=True))
             for _ in part or "c"]  # fmt: skip
    found: list[_Named] = []
    begins: list[int] = []
    counts: Counter[str] = Counter()
    place = 0
    while place < len(every):
        group, at = every[place]
        size = joined[group][counts[group]]
        if between := {each for each, _ in every[place : place + size]} - {group}:
            raise OpusError(
                f"rank {rank} begins operations of {sorted(between)} between sends and receives "
                f"of {group} that the other rank begins in another order"
            )
        counts[group] += 1
        found.append((group, size))
        begins.append(at)
        place += size
    return found, [sum(begin < end for begin in begins) for end in seen.steps]


def _split(names: Sequence[_Named], ends: Sequence[int]) -> list[tuple[_Named, ...]]:
    """Return the operations of each step, and those after the last one."""
    return [
        tuple(names[begin:end]) for begin, end in zip([0, *ends], [*ends, len(names)], strict=True)
    ]


def _usual(steps: Sequence[tuple[_Named, ...]]) -> tuple[_Named, ...]:
    """Return the most frequent step; of those as frequent, the one that comes last at first."""
    counts = Counter(steps[:-1])
    return max(counts, key=lambda step: (counts[step], steps.index(step)), default=())


def _table_of_steps(
    job: RailJob,
    steps: Sequence[tuple[_Named, ...]],
    usual: tuple[_Named, ...],
    alike: Sequence[int],
) -> PhaseTable:
    every = [one for step in steps for one in step]
    begins = [sum(map(len, steps[:number])) for number in alike]
    unusual = [number for number in range(len(steps)) if number not in alike]
    tail = steps[-1]
    if steps[0] + tail and (steps[0], tail) == (usual[len(tail) :], usual[: len(tail)]):
        unusual = [number for number in unusual if number not in (0, len(steps) - 1)]
    unlike = tuple((number + 1, len(steps[number])) for number in unusual if steps[number])
    length = len(usual)
    if not tail and alike[-2:] == [len(steps) - 3, len(steps) - 2]:
        first = next(
            at for at in alike if list(alike[alike.index(at) :]) == [*range(at, len(steps) - 1)]
        )
        once = sum(map(len, steps[:first]))
        made = _operations(job, every[: once + length])
        return PhaseTable(
            made[once:],
            before=made[:once],
            joined=tuple(size for _, size in every[: once + length]),
            unlike=unlike,
            profiled_steps=len(steps) - 1 - first,
        )
    whole = _operations(job, every)
    return PhaseTable(
        whole[begins[0] : begins[0] + length],
        whole=whole,
        begins=tuple(begins),
        joined=tuple(size for _, size in every),
        unlike=unlike,
        profiled_steps=len(alike),
    )


def _table_of_cycle(job: RailJob, seen: Sequence[_Named]) -> PhaseTable:
    once, period = _cycle(seen)
    made = _operations(job, seen[: once + period])
    joined = tuple(size for _, size in seen[: once + period])
    steps = (len(seen) - once) // max(period, 1)
    return PhaseTable(made[once:], before=made[:once], joined=joined, profiled_steps=steps)


def _operations(job: RailJob, names: Sequence[_Named]) -> tuple[Operation, ...]:
    return numbered([Operation(name, 0, job.groups[name].dimension) for name, _ in names])


def _cycle(seen: Sequence[_Named]) -> tuple[int, int]:
    """Return the shortest prefix and period that reproduce the whole sequence."""
    found = 0, len(seen)
    for period in range(1, len(seen) // 2 + 1):
        alike = 0
        while alike + period < len(seen) and seen[-1 - alike] == seen[-1 - alike - period]:
            alike += 1
        rounds = (alike + period) // period
        once = len(seen) - rounds * period
        if once + period < sum(found):
            found = once, period
    return found
