"""Waits of a pipeline of four stages, predicted from those of two and three, then measured.

`GROWTH` runs (default 5), on namespaces of this machine: the pipeline of `predictions`, with two
replicas, trains with two and with three stages on a switch that takes 50 ms; the waits computed
for four stages are a line of the campaign's file before it trains with four stages, on switches
that take 50 and 200 ms. A measured wait is compared with the computed one at the mean length of
the changes that it waited for, between the two switching times beside that on a straight line.

Needs the extra torch, and namespaces.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.jobs.training import RESULTS, TrainingRequest
from lightrig.harness.systems.opus.measurements.train_script import train
from lightrig.testbeds import load
from tests.campaigns.predictions import MS, REPLICAS, SCRIPT, STEPS, testbed_of
from tests.campaigns.records import Log, log, reported

BASE_MS, BASE_STAGES = 50, (2, 3)
SWITCHING_MS = (50, 200)
STAGES = 4


def request(stages: int, *also: int) -> TrainingRequest:
    """Return the request of a pipeline with so many stages, and of others."""
    degrees: list[Mapping[str, int]] = [{"pp": each, "dp": REPLICAS} for each in (stages, *also)]
    steps = (str(STEPS),)
    return TrainingRequest(
        *(SCRIPT, "predicted.py", steps, degrees[0], "provisioning", RESULTS),
        ranks=stages * REPLICAS,
        also=degrees[1:],
    )


def one_run(file: Path, run: int, lines: Log) -> None:
    """Predict, store, measure, store."""
    bench = bind(load(file), "simulated", run)
    fabric = Fabric(bench)
    assert bench.world is not None
    (switch,) = bench.switches
    try:
        bench.world.set_switching_time(switch, BASE_MS * MS)
        base = train(fabric, request(*BASE_STAGES), lambda part, rank, line: None).document()
        predicted = {
            each["switching_ns"]: [each[bound] for bound in ("value", "lower", "upper")]
            for each in base["growth"]
            if each["stages"] == STAGES
        }
        lines.add({"run": run, "predicted": predicted})
        for switching in SWITCHING_MS:
            bench.world.set_switching_time(switch, switching * MS)
            found = train(fabric, request(STAGES), lambda part, rank, line: None).document()
            means = {name: round(found[name]["value"]) for name in ("waited", "change")}
            load_now = round(os.getloadavg()[0], 1)
            lines.add({"run": run, "switching_ms": switching, **means, "load": load_now})
    finally:
        fabric.restore()
        bench.close()


def computed(predicted: Mapping[str, list[float]], change: float) -> list[float]:
    """Return the wait and its interval where a change takes `change` ns."""
    times = sorted(predicted, key=int)
    curves = zip(*(predicted[each] for each in times), strict=True)
    return [float(np.interp(change, [*map(int, times)], curve)) for curve in curves]


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return the predictions beside what was measured, and whether there are any."""
    predicted = {
        each["run"]: {str(name): wait for name, wait in each["predicted"].items()}
        for each in done
        if "predicted" in each
    }
    printed = [
        f"{'switching':>9}{'run':>5}{'a change':>10}{'computed':>31}{'measured':>11}  inside"
    ]
    measured = [each for each in done if "waited" in each]
    inside = 0
    for each in measured:
        value, lower, upper = computed(predicted[each["run"]], each["change"])
        holds = lower <= each["waited"] <= upper
        inside += holds
        interval = f"{value / MS:.1f} ({lower / MS:.1f} to {upper / MS:.1f}) ms"
        printed.append(
            f"{each['switching_ms']:>6} ms{each['run']:>5}{each['change'] / MS:>7.1f} ms"
            f"{interval:>31}{each['waited'] / MS:>8.1f} ms  {'yes' if holds else 'NO'}"
        )
    printed.append(f"{inside} of {len(measured)} inside the intervals")
    return printed, bool(measured)


def main(report: Callable[[str], object] = print) -> bool:
    """Predict and check; returns whether that was done."""
    runs = int(os.environ.get("GROWTH", "5"))
    with log("growth") as lines, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rails8.yaml"
        file.write_text(testbed_of(STAGES * REPLICAS))
        for run in range(runs):
            if len([each for each in lines.done if each["run"] == run]) <= len(SWITCHING_MS):
                one_run(file, run, lines)
        return reported(*table(lines.done), report)


if __name__ == "__main__":
    sys.exit(not main())
