"""Declarations of many quantities as a table."""

import re
from typing import Any, get_args

from lightrig.harness.quantities.quantity import (
    Better,
    Combination,
    Quantity,
    QuantityDeclarationError,
    Terminal,
)
from lightrig.testbeds.baselines import Rule

UNITS = ("ns", "dB", "dBm", "bit/s", "W", "share", "1", "°C", "mA")
_FIELDS = {
    **dict.fromkeys(UNITS, "unit"),
    **dict.fromkeys(get_args(Better), "better"),
    **dict.fromkeys(get_args(Combination), "combine"),
    **dict.fromkeys(get_args(Terminal), "terminal"),
}
"""The field of `Quantity` that each word without a key states."""
_NUMBERS = ("minimum", "ratio")
_RULE = (*_NUMBERS, "test", "direction", "effect")


def table(text: str) -> tuple[Quantity, ...]:
    """Return the quantities that a table declares, in its order.

    [Light sources] dB better=... options that hold for all of the section
    launched_power hidden minimum=5
        optical power that a source launches into its fiber

    A line per section, with the title in brackets; a line per quantity with its name and options,
    and an indented line with its meaning. Options are the values of `unit`, `better`, `combine`
    and `terminal`, or `title="..."`, `aliases=a,b`, `beside=a,b`, `greatest=1`; `unjudged` for a
    quantity that is not compared between nights, or the fields of its `Rule`; lines that begin with
    # are comments. Raises `QuantityDeclarationError`.
    """
    found: list[Quantity] = []
    section, shared, name, options = "", list[str](), "", list[str]()
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section, _, common = line[1:].partition("]")
            shared = _parts(common)
        elif line.startswith("    "):
            found.append(_quantity(name, line.strip(), section, [*shared, *options]))
        else:
            name, *options = _parts(line)
    return tuple(found)


def _parts(line: str) -> list[str]:
    """Split a line at spaces that are not in double quotes; `shlex` takes ten times as long."""
    if line.count('"') % 2:
        raise QuantityDeclarationError(f"found a quote without its second in {line!r}")
    return [found.replace('"', "") for found in re.findall(r'(?:"[^"]*"|[^"\s])+', line)]


def _quantity(name: str, meaning: str, section: str, options: list[str]) -> Quantity:
    fields: dict[str, Any] = {}
    rule: dict[str, Any] = {}
    for word in options:
        key, is_pair, value = word.partition("=")
        if word == "unjudged":
            fields["baseline"] = None
        elif is_pair and key in _RULE:
            rule[key] = int(value) if key in _NUMBERS else value
        elif is_pair and key in ("least", "greatest"):
            fields[key] = float(value)
        elif is_pair and key in ("aliases", "beside"):
            fields[key] = tuple(value.split(","))
        elif is_pair and key == "title":
            fields[key] = value
        elif word in _FIELDS:
            fields[_FIELDS[word]] = word
        else:
            raise QuantityDeclarationError(f"{name}: found the option {word!r} in its table")
    if rule:
        fields["baseline"] = Rule(**rule)
    return Quantity(name=name, meaning=meaning, section=section, **fields)
