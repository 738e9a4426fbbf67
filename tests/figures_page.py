"""The table of declared figures, and what each came to when last stored."""

import json
from collections.abc import Iterator
from typing import Any

from lightrig.harness.claims.figures.declarations import Figure, load_figures
from lightrig.harness.claims.figures.storing import summary_file
from lightrig.harness.claims.published import load_published, published_files
from lightrig.harness.system_registry import installed_systems

_HEAD = "figure | what | drawn from | printed values: agree, compared, all | largest difference | s"


def figures_page() -> str:
    """Return the table of all figures."""
    return "# All figures\n\nHow to [draw them](../figures.md).\n" + "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    tables = []
    drawn = count = 0
    for name, system in installed_systems().items():
        if not system.built_in or name not in published_files():
            continue
        published = load_published(published_files()[name])
        figures = load_figures(published)
        stored = json.loads(summary_file(published.path).read_text(encoding="utf-8"))
        rows = [_row(one, stored["figures"][number]) for number, one in figures.items()]
        count += len(rows)
        drawn += sum(stored["figures"][number]["drawn"] for number in figures)
        tables += ["", f"## {system.title}, {stored['day']}", "", f"| {_HEAD} |", _RULE, *rows]
    yield ""
    yield (
        f"{drawn} of {count} are drawn. The difference is from the nearer end of the printed "
        "range, as a share of the printed value; `make figures` measures it, and the time, on one "
        "processor."
    )
    yield from tables
    yield ""


_RULE = "|" + " --- |" * len(_HEAD.split(" | "))


def _row(figure: Figure, outcome: dict[str, Any]) -> str:
    part = figure.part
    if not outcome["drawn"]:
        absent = (reason for panel in part.panels for reason in panel.absent.values())
        why = part.not_drawn or next(absent, "no run is stored")
        return f"| {figure.number} | {part.title} | not drawn: {why} | | | |"
    origin = ", ".join(outcome["from"]) + (", stored" if outcome["stored"] else "")
    off = outcome["largest difference"]
    values = f"{outcome['agree']}, {outcome['compared']}, {outcome['printed']}"
    seconds = f"{outcome['seconds']:.0f}" if outcome["seconds"] >= 1 else "< 1"
    difference = "" if off is None else "none" if off == 0 else f"{off:.2%}"
    return (
        f"| {figure.number} | {part.title} | {origin} | {values if outcome['printed'] else ''} "
        f"| {difference} | {seconds} |"
    )
