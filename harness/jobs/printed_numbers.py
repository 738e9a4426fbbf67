"""Numbers that the ranks of a training script print, compared between two runs of it."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lightrig.instruments.clock import Span

Lines: TypeAlias = Mapping[int, Sequence[tuple[Span, str]]]
"""Lines that each rank has printed, and when."""

_Number: TypeAlias = tuple[str, str]
"""A number, and the line without it, such as that of its step."""


@dataclass(frozen=True, slots=True)
class NumbersComparison:
    """Numbers that ranks print, compared one by one between two runs of one script.

    Attributes:
        pattern: whose group, or whole match, is a number.
        count: how many there were in the first run.
        different: rank, what it printed first, and then; "" for what one run lacks.
        again: how many numbers the second run printed once more; each is compared as well.
        begins: the share of the first run's numbers at which each attempt of the second one
            begins, on the rank that prints most; empty where none prints any.
    """

    pattern: str
    count: int
    different: tuple[tuple[int, str, str], ...]
    again: int = 0
    begins: tuple[float, ...] = ()


def compare(pattern: str, first: Lines, *attempts: Lines) -> NumbersComparison:
    """Compare what all ranks printed in two runs, as texts: equal to the last digit.

    attempts: of the second run; each later one begins at a checkpoint of an earlier one.
    """
    different: list[tuple[int, str, str]] = []
    count, again, most = 0, 0, 0
    begins: tuple[float, ...] = ()
    for rank in sorted(set[int]().union(first, *attempts)):
        expected = _numbers(pattern, first.get(rank, ()))
        printed = [_numbers(pattern, lines.get(rank, ())) for lines in attempts]
        ends, places = 0, list[int]()
        for found in printed:
            begin = _begin(expected, found, ends) if places else 0
            places.append(begin)
            again += min(ends, begin + len(found)) - min(ends, begin)
            different += _differences(rank, expected[ends:begin], [])
            different += _differences(rank, expected[begin : begin + len(found)], found)
            ends = max(ends, begin + len(found))
        different += _differences(rank, expected[ends:], [])
        count += len(expected)
        if len(expected) > most:
            most, begins = len(expected), tuple(place / len(expected) for place in places)
    return NumbersComparison(pattern, count, tuple(different), again, begins)


def joined(pattern: str, *attempts: Lines) -> Lines:
    """Return the lines with numbers of one run that was started again, each of them once.

    A later attempt goes on where its lines equal those of the attempts before; where they equal
    none, at their end.
    """
    found: dict[int, list[tuple[Span, str]]] = {}
    for rank in sorted(set[int]().union(*attempts)):
        whole = found[rank] = []
        for lines in attempts:
            later = [each for each in lines.get(rank, ()) if re.search(pattern, each[1])]
            begin = next(
                place
                for place in range(len(whole) + 1)
                if all(a[1] == b[1] for a, b in zip(whole[place:], later, strict=False))
            )
            whole[begin : begin + len(later)] = later
    return found


def _numbers(pattern: str, lines: Sequence[tuple[Span, str]]) -> list[_Number]:
    return [
        (found[found.lastindex or 0], line[: found.start()] + line[found.end() :])
        for _, line in lines
        for found in re.finditer(pattern, line)
    ]


def _differences(
    rank: int, expected: Sequence[_Number], found: Sequence[_Number]
) -> Iterator[tuple[int, str, str]]:
    for (a, _), (b, _) in itertools.zip_longest(expected, found, fillvalue=("", "")):
        if a != b:
            yield rank, a, b


def _begin(expected: Sequence[_Number], found: Sequence[_Number], latest: int) -> int:
    """Return the place of `expected` at which the numbers of a restart begin.

    That is where numbers and lines are as expected; else where lines are; else the last one that
    leaves room for all of them. The last place up to `latest` goes before later ones.
    """
    last = max(0, len(expected) - len(found))
    places = sorted(range(last + 1), key=lambda place: (place > latest, abs(place - latest)))
    for part in (slice(None), slice(1, None)):
        for place in places:
            if all(a[part] == b[part] for a, b in zip(found, expected[place:], strict=False)):
                return place
    return last
