"""Ranges in names: "server[0-3].nic[0-1]" and "ocs.[34,33,36,35]" stand for lists."""

from __future__ import annotations

import itertools
import re

from lightrig.testbeds.errors import LightrigError

MOST_NAMES = 4096
"""Largest number of names in one range; more is taken for a typing error."""

_EXAMPLE = "e.g. 'server[0-3]' or 'ocs.[34,33]'"


class RangeError(LightrigError, ValueError):
    """A range cannot be read; `offset` counts characters from 0 to the mistake."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def expand(text: str) -> list[str]:
    """List the names that `text` stands for, the last range running fastest.

    Numbers keep the leading zeros of their first: "r[08-10]" is r08, r09, r10.
    Raises `RangeError`.
    """
    parts: list[list[str]] = []
    count = 1
    at = 0
    while at < len(text):
        if text[at] == "]":
            raise RangeError(f"found ']' without '[' in {text!r}, {_EXAMPLE}", at)
        if text[at] != "[":
            end = next((i for i in range(at, len(text)) if text[i] in "[]"), len(text))
            parts.append([text[at:end]])
            at = end
            continue
        end = text.find("]", at)
        if end < 0:
            raise RangeError(f"found '[' without ']' in {text!r}, {_EXAMPLE}", at)
        parts.append(_numbers(text, at + 1, end))
        count *= len(parts[-1])
        if count > MOST_NAMES:
            raise RangeError(f"{text!r} stands for more than {MOST_NAMES} names", at)
        at = end + 1
    return ["".join(names) for names in itertools.product(*parts)]


def _numbers(text: str, start: int, end: int) -> list[str]:
    numbers: list[str] = []
    at = start
    for item in text[start:end].split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", item, re.ASCII)
        if match is None:
            raise RangeError(
                f"found {item!r} in a range, expected a number or two, "
                f"e.g. 'server[0-3]' or 'ocs.[34,33]'",
                at,
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise RangeError(
                f"the range {item.strip()!r} runs downwards, expected upwards or a list, "
                f"e.g. '[{last}-{first}]' or '[{first},{max(first - 1, last)}]'",
                at,
            )
        if last - first >= MOST_NAMES:
            raise RangeError(f"the range {item.strip()!r} is longer than {MOST_NAMES}", at)
        width = len(match[1]) if match[1].startswith("0") else 1
        numbers += [f"{number:0{width}d}" for number in range(first, last + 1)]
        at += len(item) + 1
    return numbers
