"""The table of docs/appendix/closure.md, from the stored summary of the campaign `labs`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SUMMARY = Path(__file__).with_name("campaigns") / "labs.json"
BEGIN, END = "<!-- labs: begin, made by `make generated` -->\n", "<!-- labs: end -->\n"

_HEAD = "lab | quantity | n | missed | coverage, 95 % bounds | width, of informed | bias | declined"


def closure_page(page: str) -> str:
    """Return docs/appendix/closure.md with the table of all labs."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return (
        f"{before}{BEGIN}\n{_tables(json.loads(SUMMARY.read_text(encoding='utf-8')))}\n{END}{after}"
    )


def _tables(stored: Mapping[str, Any]) -> str:
    labs = stored["labs"]
    seconds = sum(lab["seconds"] for lab in labs.values())
    lines = [
        f"`python -m tests.campaigns labs`: {len(labs)} labs; {seconds:.1f} s of processor for one "
        "seed of all. Seeds are numbered from 1; their number, and the day, are in the last table.",
        "",
        f"| {_HEAD} |",
        "|" + " --- |" * len(_HEAD.split(" | ")),
    ]
    for name, lab in labs.items():
        for quantity, cell in lab["cells"].items():
            lines.append(f"| {name} | {quantity} | {_cell(cell)} |")
    lines += ["", "| lab | judged | right | wrong, at most | undecided |", "|" + " --- |" * 5]
    for name, lab in labs.items():
        for what, found in lab["verdicts"].items():
            wrong = f"{found['wrong']:,}, {found['bounds'][1]:.1%}"
            lines.append(
                f"| {name} | {what} | {found['right']:,} | {wrong} | {found['undecided']:,} |"
            )
    lines += ["", "| lab | seeds | on | fault | cause reported | open |", "|" + " --- |" * 6]
    for name, lab in labs.items():
        named = "{:,} of {:,}".format(*lab["named"]) if lab["named"] else ""
        excused = "; ".join(f"{what} may miss: {why}" for what, why in lab["excused"].items())
        fault = f"{lab['about']} ({excused})" if excused else lab["about"]
        run = f"{lab['seeds']:,} | {lab['on']}"
        lines.append(f"| {name} | {run} | {fault} | {named} | {'; '.join(lab['broken'])} |")
    return "\n".join(lines) + "\n"


def _cell(cell: Mapping[str, Any]) -> str:
    if not cell["n"]:
        return f"0 | | | | | {cell['declined']:,}"
    coverage = ""
    if "coverage" in cell:
        coverage = "{:.3f}, {:.3f} to {:.3f}".format(*cell["coverage"])
    ratio = "" if cell.get("ratio") is None else f", x {cell['ratio']:.2f}"
    width, bias = f"{cell['width']:.4g}{ratio}", f"{cell['bias']:.2g}"
    missed = f"{cell['missed']:,}"
    return f"{cell['n']:,} | {missed} | {coverage} | {width} | {bias} | {cell['declined']:,}"
