"""The table of docs/appendix/mornings.md, from the stored summary of the campaign `mornings`."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SUMMARY = Path(__file__).with_name("campaigns") / "mornings.json"
_WHEN = ("not", "on the 1st", "on the 2nd", "on the 3rd", "on the 4th")
BEGIN, END = "<!-- mornings: begin, made by `make generated` -->\n", "<!-- mornings: end -->\n"


def store(found: Mapping[str, Any], on: str) -> None:
    """Store a summary of this date; kinds that it has not, and mornings if it has none, stay."""
    stored = json.loads(SUMMARY.read_text(encoding="utf-8"))
    stored["kinds"] |= {name: one | {"on": on} for name, one in found["kinds"].items()}
    if found["quiet"]:
        stored |= {"quiet": found["quiet"], "false": found["false"]}
    SUMMARY.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


def mornings_page(page: str) -> str:
    """Return docs/appendix/mornings.md with the table of all kinds of faults."""
    stored = json.loads(SUMMARY.read_text(encoding="utf-8"))
    before, _, rest = page.partition(BEGIN)
    lines = "\n".join(lines_of(stored))
    days = sorted({one.get("on", stored["on"]) for one in stored["kinds"].values()})
    on = " to ".join(days[:1] + days[1:][-1:])
    return f"{before}{BEGIN}\nMeasured {on}:\n\n{lines}\n\n{END}{rest.partition(END)[2]}"


def lines_of(found: Mapping[str, Any]) -> list[str]:
    """Return a summary as the lines of a table, and a sentence below it."""
    head = "fault", "by morning", "seeds", "on time", "right card", "right since", "false"
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for name, one in found["kinds"].items():
        counts = sorted(Counter(one["mornings"]).items(), key=lambda each: each[0] or math.inf)
        mornings = ", ".join(f"{n} {_WHEN[at]}" for at, n in counts)
        lines.append(
            f"| {name} | {one['by']} | {one['seeds']} | {one['on time']} | {mornings} "
            f"| {one['right since']} | {one['false']} |"
        )
    kinds = found["kinds"].values()
    timely, total = sum(one["on time"] for one in kinds), sum(one["seeds"] for one in kinds)
    quiet = f"{found['false']} cards on {found['quiet']} mornings without a fault"
    if not found["quiet"]:
        quiet = "mornings without a fault were not judged in this run"
    return [*lines, "", f"{timely} of {total} on time; {quiet}."]
