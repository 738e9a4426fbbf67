"""The sections that `mlxlink` prints, from text or JSON, and how their values are read."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from lightrig.instruments.servers.tools.output import (
    ToolOutputError,
    ToolReportedError,
    field,
    is_json,
    load,
    optional,
    without_colours,
)

TOOL = "mlxlink"

T = TypeVar("T")

Section = Mapping[str, str]
"""Keys and values as printed, a list's values joined by commas."""


def sections_of(text: str) -> tuple[dict[str, Section], str | None]:
    """Return the sections by title, and the warnings.

    Raises:
        ToolReportedError: mlxlink says that it could not do what it was asked.
        ToolOutputError: there are no sections.
    """
    sections, warning = _of_json(text) if is_json(text) else (_of_text(text), None)
    if not sections:
        raise ToolOutputError(TOOL, "a section with its title underlined", text.strip()[:80])
    return sections, warning


def read_section(
    sections: Mapping[str, Section], title: str, read: Callable[[Section], T | None]
) -> T | None:
    """Return `read(section)`; None if the section is missing."""
    if title not in sections:
        return None
    try:
        return read(sections[title])
    except ValueError as error:
        raise ToolOutputError(TOOL, f"in {title!r}: {error}") from error


def text_of(section: Section, key: str) -> str | None:
    """Return the text of `key`; None if it is missing, blank or N/A."""
    value = section.get(key, "")
    return None if value in ("", "N/A") else value


def read_value(section: Section, key: str, read: Callable[[str], T]) -> T | None:
    """Return `read(text)` of `key`; None if it is missing, blank or N/A."""
    value = text_of(section, key)
    if value is None:
        return None
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def _of_text(text: str) -> dict[str, Section]:
    sections: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    lines = [line.rstrip() for line in without_colours(text).splitlines()]
    for index, line in enumerate(lines):
        below = lines[index + 1] if index + 1 < len(lines) else ""
        if not line or set(line) == {"-"} or (line.endswith("...") and ":" not in line):
            continue
        if below and set(below) == {"-"}:
            if len(below) != len(line) or line in sections:
                raise ToolOutputError(TOOL, "each title once, underlined in its length", line)
            if line == "Errors":
                raise ToolReportedError(TOOL, "a report", " ".join(lines[index + 2 :]))
            current = sections[line] = {}
            continue
        raw, colon, value = line.partition(":")
        key = raw.strip()
        if current is None or not colon or not key or key in current:
            raise ToolOutputError(TOOL, "`key : value` below a title, each key once", line)
        current[key] = value.strip()
    return dict(sections)


def _of_json(text: str) -> tuple[dict[str, Section], str | None]:
    document = load(TOOL, text)
    status = field(TOOL, document, "status", dict)
    if field(TOOL, status, "code", int) != 0:
        raise ToolReportedError(TOOL, "a report", field(TOOL, status, "message", str))
    result = field(TOOL, document, "result", dict)
    output = field(TOOL, result, "output", (dict, str))
    if isinstance(output, str):
        raise ToolOutputError(TOOL, "sections", output)
    warning = optional(TOOL, result, "warning", dict)
    sections: dict[str, Section] = {}
    for title in output:
        section = field(TOOL, output, title, dict)
        sections[title] = {key: _leaf(section, key) for key in section}
    return sections, None if warning is None else field(TOOL, warning, "message", str)


def _leaf(section: object, key: str) -> str:
    value: str | dict[str, object] = field(TOOL, section, key, (str, dict))
    if isinstance(value, str):
        return value
    values: list[str] = field(TOOL, value, "values", list)
    if not all(isinstance(each, str) for each in values):
        raise ToolOutputError(TOOL, f"strings in {key!r}", values)
    return ",".join(values)
