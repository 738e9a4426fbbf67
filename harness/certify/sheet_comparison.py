"""Differences between two sheets beyond chance."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from lightrig.harness.certify.sheet import ClauseResult, Sheet


@dataclass(frozen=True)
class Difference:
    """A clause whose verdict or value differs by more than chance; `ports` for those tried."""

    number: str
    title: str
    before: str
    after: str


def differences(before: Sheet, after: Sheet) -> Iterator[Difference]:
    """Yield ports where others were tried, then clauses that differ beyond chance, in order.

    A verdict that changes differs. Two values with intervals differ beyond chance where their
    distance is greater than the root of the sum of their squared half widths, which two equal
    values exceed less often than each interval misses; values without intervals are not judged.
    """
    ports = [(each.ports.ingress, each.ports.egress, each.ports.cabled) for each in (before, after)]
    if ports[0] != ports[1]:
        yield Difference("ports", "that were tried", _ports(before), _ports(after))
    old = {each.requirement.number: each for each in before.clauses}
    new = {each.requirement.number: each for each in after.clauses}
    for number in sorted(old.keys() | new.keys()):
        first, second = old.get(number), new.get(number)
        known = first or second
        assert known is not None
        shown = _shown(first), _shown(second)
        if not (first and second) or first.verdict != second.verdict or _moved(first, second):
            yield Difference(number, known.requirement.title, *shown)


def _ports(sheet: Sheet) -> str:
    """Return which ports were tried: of a sample all, since two may be of equal size."""
    if not sheet.ports.sampled:
        return str(sheet.ports)
    used = ", ".join(map(str, (*sheet.ports.ingress, *sheet.ports.egress)))
    return f"{sheet.ports} (--quick): {used}"


def _moved(first: ClauseResult, second: ClauseResult) -> bool:
    """Whether two values with intervals differ beyond chance."""
    if first.value is None or second.value is None or first.unit != second.unit:
        return False
    if first.interval is None or second.interval is None:
        return False
    distance = abs(second.value - first.value)
    halves = [(high - low) / 2 for low, high in (first.interval, second.interval)]
    return distance > math.hypot(*halves)


def _shown(result: ClauseResult | None) -> str:
    if result is None:
        return "not in the sheet"
    if result.value is None:
        return result.verdict
    text = f"{result.verdict}, {result.shown_value}"
    return f"{text} ({result.shown_interval})" if result.interval else text
