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

_REMARKS = ("-E- ", "-W- ", "-I- ")

Section = Mapping[str, str]
"""Keys and values as printed, a list's values joined by commas."""


def sections_of(text: str) -> tuple[dict[str, Section], str | None]:
    """Return the sections by title, and the warnings.

    A part of the request that failed is a warning where the rest was answered: the status is 1
    then, and the sections are complete (`FEC Histogram is not supported`).

    Raises:
        ToolReportedError: mlxlink says that it could not do what it was asked.
        ToolOutputError: there are no sections.
    """
    sections, warning = _of_json(text) if is_json(text) else _of_text(text)
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


def _of_text(text: str) -> tuple[dict[str, Section], str | None]:
    sections: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    lines = [line.rstrip() for line in without_colours(text).splitlines()]
    remarks = [line.strip() for line in lines if line.strip().startswith(_REMARKS)]
    lines = [line for line in lines if not line.strip().startswith(_REMARKS)]
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
    if remarks and not sections:
        raise ToolReportedError(TOOL, "a report", " ".join(remarks))
    return dict(sections), "; ".join(remarks) or None


def _of_json(text: str) -> tuple[dict[str, Section], str | None]:
    document = load(TOOL, text)
    status = field(TOOL, document, "status", dict)
    failure = ""
    if field(TOOL, status, "code", int) != 0:
        failure = field(TOOL, status, "message", str)
    result = document.get("result") if failure else field(TOOL, document, "result", dict)
    answered = isinstance(result, dict) and (not failure or "output" in result)
    output = field(TOOL, result, "output", (dict, str)) if answered else ""
    if failure and (not isinstance(output, dict) or not output or "semaphore" in failure.lower()):
        raise ToolReportedError(TOOL, "a report", failure)
    if isinstance(output, str):
        raise ToolOutputError(TOOL, "sections", output)
    warning = optional(TOOL, result, "warning", dict)
    sections: dict[str, Section] = {}
    for title in output:
        section = field(TOOL, output, title, dict)
        sections[title] = {key: _leaf(section, key) for key in section}
    remarks = [] if warning is None else [field(TOOL, warning, "message", str)]
    return sections, "; ".join(filter(None, [failure, *remarks])) or None


def _leaf(section: object, key: str) -> str:
    value: str | dict[str, object] = field(TOOL, section, key, (str, dict))
    if isinstance(value, str):
        return value
    values: list[str] = field(TOOL, value, "values", list)
    if not all(isinstance(each, str) for each in values):
        raise ToolOutputError(TOOL, f"strings in {key!r}", values)
    return ",".join(values)
