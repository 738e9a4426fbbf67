"""Parts of a step of training scripts of others, beside stamps in a copy of each script.

`LIGHTRIG_SCRIPTS` names a copy of `foreign_parts.json` where the scripts are, as for the campaign
`foreign_scripts`. Each runs once on the circuits of its `testbed`. The parts of its step must add
up to the step, and that to the one by the copy's own stamps, within `SUM`. Two of three parts must
agree with the copy's stamps within `AGREES`: what a rank computes, what it waits for other ranks,
and what is left of its collectives once the last rank has begun one. Where no circuit changes,
waits for circuits are 0. Steps of a script without an optimizer of PyTorch (`cycle`) are as many of
its collectives as repeat themselves, for both.

The first folder of a script's path has its repository at that commit. On a host whose processors
are in use by others the stamps of a copy and ours may be apart by what each thread waits for one.

Needs the extra torch, and namespaces.
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from lightrig.suites.claims.test_opus_scripts import NotListedError, entries, source_of
from tests.campaigns.foreign_scripts import command_of
from tests.campaigns.records import log, reported

SUM, AGREES = 0.01, 0.05
LONGEST_S = 900.0
COMPUTES, RANKS, REST = "computes", "waits for other ranks", "the rest"
PARTS = (COMPUTES, RANKS, REST)
_TAKEN = ("comparison", "phases", "operations", "step", "shares", "circuits")
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
    found |= {key: answer[key] for key in _TAKEN}
    found["hosts"] = [{**host, "servers": len(host["servers"])} for host in answer["hosts"]]
    if answer["step"] is None:
        return found
    ranks = [read(stamps / str(rank)) for rank in range(answer["ranks"])]
    found["own"] = own_parts(
        ranks, answer["step"]["n"], answer["operations"] if entry.get("cycle") else 0
    )
    return found


def read(path: Path) -> list[tuple[str, int, int]]:
    """Return the collectives of a rank by their name in its group, and the ends of its steps."""
    counts: defaultdict[str, int] = defaultdict(int)
    found = []
    lines = map(json.loads, path.read_text().splitlines())
    for group, name, begun, ended in sorted(lines, key=itemgetter(2)):
        if group is None:
            found.append(("step", begun, ended))
            continue
        counts[str(group)] += 1
        found.append((f"{group} {counts[str(group)]} {name}", begun, ended))
    return found


def own_parts(
    ranks: Sequence[Sequence[tuple[str, int, int]]], steps: int, cycle: int = 0
) -> dict[str, float]:
    """Return the mean of a step and of its parts over ranks and the last steps, in ns.

    Of collectives at once, those count that all ranks have begun, as in an answer of `train`.
    Nothing where a rank noted fewer ends of steps. cycle: number of collectives that are a step;
    0: it ends with that of an optimizer.
    """
    came: defaultdict[str, int] = defaultdict(int)
    for rank in ranks:
        for name, begun, _ in rank:
            came[name] = max(came[name], begun)
    lengths: list[float] = []
    parts: dict[str, list[float]] = {name: [] for name in PARTS}
    for rank in ranks:
        done = [each for each in rank if each[0] != "step"]
        if cycle:
            ends = [e for name, _, e in done if not name.endswith("barrier")][::-cycle][::-1]
        else:
            marks = [at for name, at, _ in rank if name == "step"]
            ends = [max((e for _, b, e in done if b < mark), default=mark) for mark in marks]
        if len(ends) <= steps:
            return {}
        first, last = ends[-1 - steps], ends[-1]
        within = [
            (max(b, first), min(max(came[name], b), e), min(e, last))
            for name, b, e in done
            if first < e and b < last
        ]
        rest = covered((max(there, first), e) for _, there, e in within)
        every = covered((b, e) for b, _, e in within)
        lengths.append((last - first) / steps)
        for name, time in zip(PARTS, (last - first - every, every - rest, rest), strict=True):
            parts[name].append(time / steps)
    return {"step": fmean(lengths), **{name: fmean(times) for name, times in parts.items()}}


def covered(intervals: Iterable[tuple[int, int]]) -> int:
    """Return how much time intervals cover together."""
    total = until = 0
    for begin, end in sorted(intervals):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


def ours_of(run: dict[str, Any]) -> dict[str, float]:
    """Return the parts of a step by the answer of `train`, in ns."""
    values = {name: share["value"] for name, share in run["shares"].items()}
    computes, ranks = values[COMPUTES], values[RANKS]
    rest = sum(values.values()) - computes - ranks
    return {"step": run["step"]["value"], COMPUTES: computes, RANKS: ranks, REST: rest}


def verdict(run: dict[str, Any]) -> list[str]:
    """Return what is wrong with a run."""
    if run["status"] or run.get("step") is None or not run["comparison"]["count"]:
        return [f"status {run['status']}, no step, or no number"]
    ours, own = ours_of(run), run["own"]
    if not own:
        return ["its own stamps have fewer steps"]
    wrong = []
    if abs(sum(ours[name] for name in PARTS) - ours["step"]) > SUM * ours["step"]:
        wrong.append("parts do not add up")
    if abs(own["step"] - ours["step"]) > SUM * ours["step"]:
        wrong.append(f"a step is {own['step'] / ours['step']:.3f} of ours by its own stamps")
    if len(apart := [name for name in PARTS if differs(ours[name], own[name])]) > 1:
        wrong.append(f"apart: {', '.join(apart)}")
    if not run["phases"] and any(run["shares"][name]["value"] for name in CIRCUITS):
        wrong.append("waits for circuits that do not change")
    return wrong


def differs(ours: float, own: float) -> bool:
    return abs(own - ours) > AGREES * max(own, ours)


def table(done: Sequence[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return a line for each run, and whether none is wrong."""
    printed, good = [], True
    for run in done:
        wrong = verdict(run)
        good &= not wrong
        times = ""
        if run.get("own"):
            ours, own = ours_of(run), run["own"]
            times = f"n = {run['step']['n']}, " + ", ".join(
                f"{name} {ours[name] / 1e6:.2f} ({own[name] / 1e6:.2f}) ms"
                + (" APART" if differs(ours[name], own[name]) else "")
                for name in ours
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
