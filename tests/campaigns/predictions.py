"""Predicted waits for circuits, stored before a run with that switching time checks them.

`PREDICTIONS` runs (default 5) each of a pipeline of 2 and of 4 stages, with two replicas, on
namespaces of this machine: a base run on a switch that takes 20 ms, from whose journal the wait of
a step is predicted for switches that take 50 and 200 ms; the predictions are lines of the
campaign's file before the switch is made slower and the script runs again. A prediction is narrow
if its interval is at most 25 % or 30 ms wide to each side. At least nine in ten must be narrow
and hold the measured wait.

Needs the extra torch, and namespaces.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.jobs.statistics.means import mean_of, predicted_mean
from lightrig.harness.systems.opus.measurements.training import (
    changes,
    computed_by_step,
    deviation_of_steps,
    waits_by_step,
)
from lightrig.harness.systems.opus.runtime import Script, TrainingJob, fitting_job
from lightrig.testbeds import load
from tests.campaigns.records import Log, log, reported

ROOT = Path(__file__).parents[2]
STAGES = (2, 4)
REPLICAS = 2
BASE_MS = 20
SWITCHING_MS = (50, 200)
STEPS = 10
MS = 1_000_000
SHARE, WIDTH = 0.25, 30 * MS
AT_LEAST = 0.9

SCRIPT = """\
import sys
import torch
import torch.distributed as dist

WIDTH, ROWS = 64, 32
dist.init_process_group("gloo")
stages, rank = dist.get_world_size() // 2, dist.get_rank()
stage = rank // 2
groups = [dist.new_group([first, first + 1]) for first in range(0, 2 * stages, 2)]
torch.manual_seed(rank)
model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
given = torch.randn(ROWS, WIDTH)
for step in range(int(sys.argv[1])):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 2 * stage, group=groups[stage])
    if stage:
        given = torch.empty(ROWS, WIDTH)
        dist.recv(given, rank - 2)
        given.requires_grad_()
    out = model(given)
    if stage < stages - 1:
        dist.send(out.detach(), rank + 2)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 2 * stage, group=groups[stage])
    if stage < stages - 1:
        gradient = torch.empty(ROWS, WIDTH)
        dist.recv(gradient, rank + 2)
        out.backward(gradient)
    else:
        loss = out.pow(2).mean()
        print(f"loss {loss.item()!r}")
        loss.backward()
    if stage:
        dist.send(given.grad, rank - 2)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=groups[stage])
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


def testbed_of(servers: int) -> str:
    """Return the file of the four servers of rails4, for so many."""
    ports = 3 * servers
    text = (ROOT / "testbeds" / "rails4.yaml").read_text()
    before, _, after = text.partition("plans:\n")
    simulation = after[after.index("simulation:") :]
    return (
        (before + simulation)
        .replace("server[0-3]", f"server[0-{servers - 1}]")
        .replace("size: 12x12", f"size: {ports}x{ports}")
    )


def one_run(folder: Path, stages: int, run: int, lines: Log) -> None:
    """Predict, store, measure, store."""
    file = folder / f"rails{stages}.yaml"
    file.write_text(testbed_of(stages * REPLICAS))
    bench = bind(load(file), "simulated", run)
    fabric = Fabric(bench)
    job = TrainingJob(fabric, fitting_job(bench.testbed, "predicted", stages, [REPLICAS]))
    script = Script(SCRIPT, "predicted.py", (str(STEPS),))
    assert bench.world is not None
    (switch,) = bench.switches
    try:
        bench.world.set_switching_time(switch, BASE_MS * MS)
        tables, _ = job.profile(script)
        base = job.train(script, tables, "provisioning")
        alike = deviation_of_steps(base, tables)
        predicted = {
            switching: predicted_mean([wait for wait, _ in computed], alike)
            for switching in SWITCHING_MS
            for computed in [computed_by_step(base, tables, (switching - BASE_MS) * MS)]
        }
        stated: dict[str, Any] = {"stages": stages, "run": run}
        before = mean_of(waits_by_step(base, tables))
        stated |= {"base": round(before.value), "change": round(mean_of(changes(base)).value)}
        for switching, wait in predicted.items():
            interval = [round(wait.value), round(wait.lower), round(wait.upper)]
            lines.add({**stated, "switching_ms": switching, "predicted": interval})
        for switching in SWITCHING_MS:
            bench.world.set_switching_time(switch, switching * MS)
            trained = job.train(script, tables, "provisioning")
            found = round(mean_of(waits_by_step(trained, tables)).value)
            change = round(mean_of(changes(trained)).value)
            load_now = round(os.getloadavg()[0], 1)
            measured = {"switching_ms": switching, "measured": found, "took": change}
            lines.add({"stages": stages, "run": run, **measured, "load": load_now})
    finally:
        job.close()
        fabric.restore()
        bench.close()


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return the predictions beside what was measured, and whether enough were right."""
    predicted = {
        (each["stages"], each["switching_ms"], each["run"]): each["predicted"]
        for each in done
        if "predicted" in each
    }
    printed = [f"{'stages':>6}{'switching':>11}{'run':>5}{'predicted':>29}{'measured':>11}  inside"]
    right = checked = 0
    for each in done:
        if "measured" not in each:
            continue
        value, lower, upper = predicted[each["stages"], each["switching_ms"], each["run"]]
        narrow = (upper - lower) / 2 <= max(SHARE * value, WIDTH)
        inside = lower <= each["measured"] <= upper
        checked, right = checked + 1, right + (narrow and inside)
        interval = f"{value / MS:.1f} ({lower / MS:.1f} to {upper / MS:.1f}) ms"
        printed.append(
            f"{each['stages']:>6}{each['switching_ms']:>8} ms{each['run']:>5}{interval:>29}"
            f"{each['measured'] / MS:>8.1f} ms  {'yes' if inside else 'NO'}"
            f"{'' if narrow else ', TOO WIDE'}"
        )
    printed.append(f"{right} of {checked} inside narrow intervals")
    return printed, bool(checked) and right >= AT_LEAST * checked


def main(report: Callable[[str], object] = print) -> bool:
    """Predict and check; returns whether enough were right."""
    runs = int(os.environ.get("PREDICTIONS", "5"))
    with log("predictions") as lines, tempfile.TemporaryDirectory() as folder:
        for run in range(runs):
            for stages in STAGES:
                whole = [
                    each
                    for each in lines.done
                    if (each["stages"], each["run"]) == (stages, run) and "measured" in each
                ]
                if len(whole) < len(SWITCHING_MS):
                    one_run(Path(folder), stages, run, lines)
        return reported(*table(lines.done), report)


if __name__ == "__main__":
    sys.exit(not main())
