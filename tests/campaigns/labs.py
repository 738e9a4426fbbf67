"""Hard labs with a ground truth of their own, compared with every number of the harness.

Each of the labs in `hard_labs/labs` is measured with `LABS_SEEDS` seeds (default 500), all labs
with one seed before the next, for at most `LABS_SECONDS` of processor time (default 7,000); `LABS`
names some, by commas. Every seed of a lab is a line of the campaign's file
(`tests.campaigns.records`), behind which a campaign that was ended goes on. `LABS_STORE=1` stores
the summary from which `make generated` makes the table of docs/appendix/closure.md.
"""

import datetime
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.campaigns.hard_labs import about, load_labs
from tests.campaigns.hard_labs.cells import summary
from tests.campaigns.hard_labs.found import Found, Lab
from tests.campaigns.records import log, reported

SUMMARY = Path(__file__).with_name("labs.json")


def play(lab: Lab, name: str, seed: int) -> dict[str, Any]:
    """Measure one seed of a lab; returns its line."""
    found, began = Found(), time.process_time()
    line: dict[str, Any] = {"lab": name, "seed": seed}
    try:
        lab.measure(seed, found)
    except Exception as error:
        line["error"] = f"{type(error).__name__}: {error}"
    return {**line, **found.as_line(lab), "seconds": round(time.process_time() - began, 3)}


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return the table of all labs, and whether every promise was kept."""
    printed, good = [], True
    for name, found in summary(load_labs(), done).items():
        named = found["named"]
        printed.append(
            f"{name}: {about(name)}; {found['seeds']} seeds of {found['seconds']} s of processor"
            + ("; named in {} of {}".format(*named) if named else "")
        )
        for quantity, cell in found["cells"].items():
            text = f"  {quantity:<24} n {cell['n']:>6,} missed {cell['missed']:>5,}"
            text += f" declined {cell['declined']:>4,}"
            if cell["n"]:
                text += f" bias {cell['bias']:>9.4f} width {cell['width']:>9.4f} x {cell['ratio']}"
            if "coverage" in cell:
                text += " covers {:.3f} ({:.3f} to {:.3f})".format(*cell["coverage"])
            printed.append(text)
        for what, counts in found["verdicts"].items():
            words = ", ".join(f"{counts[word]} {word}" for word in ("right", "wrong", "undecided"))
            printed.append(f"  {what:<24} {words}; wrong at most {counts['bounds'][1]:.1%}")
        printed += [f"  BROKEN {sentence}" for sentence in found["broken"]]
        good &= not found["broken"]
    return printed, good


def main(report: Callable[[str], object] = print) -> bool:
    """Measure every lab and print the table; returns whether every promise was kept."""
    count, limit = (
        int(os.environ.get("LABS_SEEDS", "500")),
        float(os.environ.get("LABS_SECONDS", "7000")),
    )
    wanted = {
        name: lab
        for name, lab in load_labs().items()
        if name in os.environ.get("LABS", name).split(",")
    }
    with log("labs") as lines:
        done = {(line["lab"], line["seed"]) for line in lines.done}
        began = time.process_time()
        for seed in range(1, count + 1):
            for name, lab in wanted.items():
                if (name, seed) not in done and time.process_time() - began < limit:
                    lines.add(play(lab, name, seed))
        of_wanted = [line for line in lines.done if line["lab"] in wanted]
    good = reported(*table(of_wanted), report)
    if os.environ.get("LABS_STORE"):
        store(of_wanted)
    return good


def store(done: list[dict[str, Any]]) -> None:
    """Store the summary of the labs for the page; labs that were not run keep theirs."""
    found = summary(load_labs(), done)
    on = datetime.datetime.now(datetime.UTC).date().isoformat()
    for name, each in found.items():
        lab = load_labs()[name]
        each |= {"about": about(name), "declined": lab.declined, "excused": dict(lab.excused)}
        each["on"] = on
    stored = json.loads(SUMMARY.read_text(encoding="utf-8"))["labs"] | found
    found = {name: stored[name] for name in load_labs() if name in stored}
    text = json.dumps({"labs": found}, indent=1, sort_keys=True, ensure_ascii=False)
    SUMMARY.write_text(text + "\n", encoding="utf-8")
