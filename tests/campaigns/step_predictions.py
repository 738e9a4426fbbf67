"""Steps of scripts of others, predicted and stored before runs on circuits check them.

The scripts are those of `LIGHTRIG_SCRIPTS`, a list as for the campaign `foreign_scripts`, that have
a public source, with as many steps as `longer` gives them there: a mean of a few steps of
milliseconds is that of what else the machine did meanwhile. Each runs `PREDICTION_ROUNDS` times
(default 3) by `lightrig train` on the circuits of its testbed; the first round's prediction, made
from its run on the ring of all ranks, is a line of the campaign's file before that round's circuits
are used. The interval must reach at most `SHARE` of the prediction to each side, and hold the
median of the rounds' measured steps, for eight scripts in ten.

Needs the extra torch, and namespaces.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from lightrig.suites.claims.test_opus_scripts import NotListedError, entries, source_of
from tests.campaigns.foreign_scripts import command_of
from tests.campaigns.records import Log, log, reported

SHARE = 0.25
AT_LEAST = 0.8
MS = 1e6
LONGEST_S = 1800.0


def longer(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of the list with its arguments and prelude for more steps."""
    more = dict(entry.get("longer", {}))
    further = more.pop("prelude", "")
    return {**entry, **more, "prelude": "; ".join(filter(None, (entry.get("prelude"), further)))}


def one_run(entry: dict[str, Any], number: int, folder: Path, lines: Log) -> None:
    """Run a script; note the prediction once it is stored, then what was measured."""
    script, stored = folder / Path(entry["script"]).name, folder / "stored.jsonl"
    script.write_text(source_of(entry))
    command = command_of(entry, "circuits", script)
    place = command.index("--json")
    about = {"script": entry["script"], "round": number}
    tail: list[str] = []
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [*command[:place], "--store-prediction", str(stored), *command[place:]],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
        )
        late = threading.Timer(LONGEST_S, process.terminate)
        late.start()
        assert process.stderr is not None
        for line in process.stderr:
            tail = [*tail[-20:], line.rstrip()]
            if line.startswith("predicted ") and stored.exists():
                step = json.loads(stored.read_text())["step"]
                lines.add({**about, "predicted": [step["value"], step["lower"], step["upper"]]})
        status = process.wait()
        late.cancel()
        output.seek(0)
        document = json.loads(output.read() or "{}")
    step = document.get("step")
    found = {**about, "status": status, "load": round(os.getloadavg()[0], 1)}
    if step:
        found |= {"measured": step["value"], "ends": [step["lower"], step["upper"]]}
        found["steps"] = step["n"]
        found["unpredicted"] = document["predicted"].get("none")
    else:
        found["printed"] = tail
    lines.add(found)


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return each script's prediction beside what was measured, and whether enough were right."""
    printed = [f"{'script':<34}{'predicted':>32}{'median measured':>17}  rounds"]
    right = 0
    scripts = list(dict.fromkeys(each["script"] for each in done))
    for name in scripts:
        of = [each for each in done if each["script"] == name]
        steps = [each["measured"] for each in of if "measured" in each]
        first = next((each["round"] for each in of if "measured" in each), None)
        # A run that was cut has stored a prediction, too, and is repeated.
        stored = [each["predicted"] for each in of if "predicted" in each if each["round"] == first]
        if not stored:
            why = next((each["unpredicted"] for each in of if each.get("unpredicted")), "no run")
            printed.append(f"{name:<34}{'-':>32}{'':>17}  {why}")
            continue
        value, lower, upper = stored[-1]
        found = median(steps)
        narrow, inside = (upper - lower) / 2 <= SHARE * value, lower <= found <= upper
        right += narrow and inside
        interval = f"{value / MS:.1f} ({lower / MS:.1f} to {upper / MS:.1f}) ms"
        each = " ".join(f"{step / MS:.1f}" for step in steps)
        printed.append(
            f"{name:<34}{interval:>32}{found / MS:>14.1f} ms  {each}: "
            f"{'inside' if inside else 'OUTSIDE'}{'' if narrow else ', TOO WIDE'}"
        )
    printed.append(f"{right} of {len(scripts)} inside narrow intervals")
    return printed, bool(scripts) and right >= AT_LEAST * len(scripts)


def main(report: Callable[[str], object] = print) -> bool:
    """Predict and check; returns whether enough were right."""
    rounds = int(os.environ.get("PREDICTION_ROUNDS", "3"))
    only = os.environ.get("PREDICTION_SCRIPTS", "")
    chosen = [longer(each) for each in entries() if each.get("source") and only in each["script"]]
    with log("step_predictions") as lines, tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for entry in chosen:
                of = [e for e in lines.done if e["script"] == entry["script"] and "status" in e]
                if len(of) > number:
                    continue
                try:
                    one_run(entry, number, Path(tempfile.mkdtemp(dir=folder)), lines)
                except NotListedError as error:
                    report(str(error))
        return reported(*table(lines.done), report)


if __name__ == "__main__":
    sys.exit(not main())
