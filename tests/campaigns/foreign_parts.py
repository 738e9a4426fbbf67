"""Parts of a step of training scripts of others, beside stamps in a copy of each script.

`LIGHTRIG_SCRIPTS` names a copy of `foreign_parts.json` where the scripts are, as for the campaign
`foreign_scripts`. Each runs once on the circuits of its `testbed`. The parts of its step must add
up to the step, and that to the one by the copy's own stamps, within `SUM`. Where all collectives of
a script wait (`stamped`), its own stamps must agree with two parts within `AGREES`: what a rank
computes, and what it waits for other ranks. Where no circuit changes, waits for circuits are 0.

The first folder of a script's path has its repository at that commit. On a host whose processors
are in use by others the stamps of a copy and ours may be apart by what each thread waits for one.

Needs the extra torch, and namespaces.
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from lightrig.suites.claims.test_opus_scripts import NotListedError, entries, source_of
from tests.campaigns.foreign_scripts import command_of
from tests.campaigns.records import log, reported

SUM, AGREES = 0.01, 0.05
LONGEST_S = 900.0
COMPUTES, RANKS = "computes", "waits for other ranks"
CIRCUITS = ("queue", "switch", "light", "link")


def one_run(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run a copy of a script that notes stamps; return what both say of a step."""
    script, stamps = folder / Path(entry["script"]).name, folder / "stamps"
    stamps.mkdir()
    noting = f"{entry['prelude']}; same.stamps({str(stamps)!r})"
    script.write_text(source_of({**entry, "prelude": noting}))
    command = command_of(entry, "circuits", script)
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=LONGEST_S
    )
    found: dict[str, Any] = {"script": entry["script"], "status": done.returncode}
    found["arguments"] = entry.get("arguments", [])
    if not done.stdout.startswith("{"):
        return found | {"printed": done.stderr.splitlines()[-20:]}
    answer = json.loads(done.stdout)
    found |= {key: answer[key] for key in ("comparison", "phases", "step", "shares", "circuits")}
    found["hosts"] = [{**host, "servers": len(host["servers"])} for host in answer["hosts"]]
    if answer["step"] is None:
        return found
    ranks = [read(stamps / str(rank)) for rank in range(answer["ranks"])]
    found["own"] = own_parts(ranks, answer["step"]["n"])
    return found


def read(path: Path) -> list[tuple[str, int, int]]:
    """Return the collectives of a rank by their name in its group, and the ends of its steps."""
    counts: defaultdict[str, int] = defaultdict(int)
    found = []
    for group, name, begun, ended in map(json.loads, path.read_text().splitlines()):
        if group is None:
            found.append(("step", begun, ended))
            continue
        counts[str(group)] += 1
        found.append((f"{group} {counts[str(group)]} {name}", begun, ended))
    return found


def own_parts(ranks: Sequence[Sequence[tuple[str, int, int]]], steps: int) -> dict[str, float]:
    """Return the mean of a step and of two of its parts over ranks and the last steps, in ns.

    Nothing where a rank noted fewer ends of steps.
    """
    came: defaultdict[str, int] = defaultdict(int)
    for rank in ranks:
        for name, begun, _ in rank:
            came[name] = max(came[name], begun)
    lengths, computed, waited = [], [], []
    for rank in ranks:
        done = [each for each in rank if each[0] != "step"]
        marks = [at for name, at, _ in rank if name == "step"]
        ends = [max((e for _, b, e in done if b < mark), default=mark) for mark in marks]
        if len(ends) <= steps:
            return {}
        first, last = ends[-1 - steps], ends[-1]
        within = [(name, b, e) for name, b, e in done if first < e <= last]
        lengths.append((last - first) / steps)
        computed.append((last - first - sum(e - b for _, b, e in within)) / steps)
        waits = (min(came[name], e) - b for name, b, e in within)
        waited.append(sum(waits) / steps)
    return {"step": fmean(lengths), COMPUTES: fmean(computed), RANKS: fmean(waited)}


def verdict(run: dict[str, Any], stamped: bool) -> list[str]:
    """Return what is wrong with a run."""
    if run["status"] or run.get("step") is None or not run["comparison"]["count"]:
        return [f"status {run['status']}, no step, or no number"]
    step, shares, own = run["step"]["value"], run["shares"], run["own"]
    values = {name: share["value"] for name, share in shares.items()}
    if not own:
        return ["its own stamps have fewer steps"]
    wrong = []
    if abs(sum(values.values()) - step) > SUM * step:
        wrong.append("parts do not add up")
    if abs(own["step"] - step) > SUM * step:
        wrong.append(f"a step is {own['step'] / step:.3f} of ours by its own stamps")
    wrong += [
        f"{name}: {values[name] / 1e6:.2f} ms, own {own[name] / 1e6:.2f} ms"
        for name in ((COMPUTES, RANKS) if stamped else ())
        if abs(own[name] - values[name]) > AGREES * max(own[name], values[name])
    ]
    if not run["phases"] and any(values[name] for name in CIRCUITS):
        wrong.append("waits for circuits that do not change")
    return wrong


def table(done: Sequence[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return a line for each run, and whether none is wrong."""
    stamped = {(e["script"], str(e.get("arguments", []))): e.get("stamped") for e in entries()}
    printed, good = [], True
    for run in done:
        wrong = verdict(run, bool(stamped.get((run["script"], str(run["arguments"])))))
        good &= not wrong
        times = ""
        if run.get("own"):
            pairs = [("step", run["step"])] + [(n, run["shares"][n]) for n in (COMPUTES, RANKS)]
            times = ", ".join(
                f"{name} {ours['value'] / 1e6:.2f} ({run['own'][name] / 1e6:.2f}) ms"
                for name, ours in pairs
            )
        about = " ".join(map(str, run["arguments"]))[:40]
        printed.append(f"{run['script']} {about}: {'; '.join(wrong) or 'right'}; {times}")
    return printed, good


def main(report: Callable[[str], object] = print) -> bool:
    """Run what is listed once each; returns whether nothing is wrong."""
    with log("foreign_parts") as lines, tempfile.TemporaryDirectory() as folder:
        for entry in entries():
            if any(
                (each["script"], each["arguments"]) == (entry["script"], entry.get("arguments", []))
                for each in lines.done
            ):
                continue
            try:
                lines.add(one_run(entry, Path(tempfile.mkdtemp(dir=folder))))
            except (NotListedError, subprocess.TimeoutExpired) as error:
                report(str(error))
        return reported(*table(lines.done), report)


if __name__ == "__main__":
    sys.exit(not main())
