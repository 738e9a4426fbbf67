"""A script under `lightrig train`, where no circuit changes, beside plain Gloo on the same ring.

    python -m benchmarks.train_beside_torchrun [--steps 30] [--pairs 3]

On testbeds/rails4.yaml, four namespaces: real packets, a simulated switch. Four replicas sum their
gradients after each step. On the ring of all ranks the script runs as torchrun runs it, with
PyTorch unwrapped, its own store and Gloo; then on circuits that follow it, of which none changes.
Ratios of the time of a step and of the ranks' processor time in it, by the script's own clocks, as
means over pairs of runs and their range; at most 1.1 is the aim. Beside it the processor time of
the harness, simulated switch and fibers included.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.systems.opus.planning.topology import GIANT_RING
from lightrig.harness.systems.opus.runtime import Script, Trained, TrainingJob, fitting_job
from lightrig.testbeds import load

ROOT = Path(__file__).parents[1]
WARM = 5
SCRIPT = """
import json
import sys
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(dist.get_rank())
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)))
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clocks = time.monotonic_ns, time.process_time_ns
stamps = []
for step in range(int(sys.argv[1])):
    model(torch.randn(256, 256)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    stamps.append([clock() for clock in clocks])
print("stamps", json.dumps(stamps))
dist.destroy_process_group()
"""


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.train_beside_torchrun")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args(arguments)
    bench = bind(load(ROOT / "testbeds" / "rails4.yaml"), "simulated", seed=1)
    fabric = Fabric(bench)
    job = TrainingJob(fabric, fitting_job(bench.testbed, "replicas", 1, [4]))
    script = Script(SCRIPT, "replicas.py", (str(WARM + options.steps),))
    try:
        tables, _ = job.profile(Script(SCRIPT, "replicas.py", ("6",)))
        ring = job.circuits.plan(GIANT_RING)
        runs: Mapping[str, Callable[[], Trained]] = {
            "plain": lambda: job.on_plan(script, ring, "none"),
            "train": lambda: job.train(script, tables, "provisioning"),
        }
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in runs}
        for pair in range(options.pairs):
            for name in list(runs)[:: 1 if pair % 2 else -1]:  # neither is always the first
                job.renew()
                found[name].append(_figures(runs[name]))
    finally:
        job.close()
        fabric.restore()
        bench.close()
    print(f"PyTorch {job.pytorch}, {options.pairs} pairs of runs of {options.steps} steps")
    for place, what in enumerate(("time of a step", "processor time of all ranks in it")):
        pairs = zip(found["train"], found["plain"], strict=True)
        ratios = [train[place] / plain[place] for train, plain in pairs]
        means = {name: fmean(each[place] for each in of) / 1e6 for name, of in found.items()}
        print(
            f"{what:<34}train {means['train']:7.2f} ms  plain {means['plain']:7.2f} ms  "
            f"ratio {fmean(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        )
    harness = {name: fmean(each[2] for each in of) / 1e9 for name, of in found.items()}
    print(
        f"{'processor time of the harness':<34}train {harness['train']:7.2f} s   "
        f"plain {harness['plain']:7.2f} s  of a run"
    )


def _figures(run: Callable[[], Trained]) -> tuple[float, float, float]:
    """Return a step's time and the ranks' processor time, and the harness's of the run, in ns."""
    before = time.process_time_ns()
    printed = run().printed
    harness = time.process_time_ns() - before
    steps, processor = [], 0.0
    for lines in printed.values():
        (text,) = (line for _, line in lines if line.startswith("stamps"))
        stamps = json.loads(re.sub(r"^stamps ", "", text))
        (first, *_), last = stamps[WARM - 1 :], stamps[-1]
        count = len(stamps) - WARM
        steps.append((last[0] - first[0]) / count)
        processor += (last[1] - first[1]) / count
    return fmean(steps), processor, harness


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
