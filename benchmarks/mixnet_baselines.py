"""Steps of experts on MixNet and on four networks of the same cost, with real packets.

    python -m benchmarks.mixnet_baselines [--servers 6] [--gpus 2] [--steps 7] [--rate 4] [--at 400]
        [--keep FILE] [--networks NAME,NAME]

Servers are namespaces with two NICs on circuits and one on Ethernet; examples/train_moe.py runs
unchanged, with Gloo, on all of them. `--rate`, in Mbit/s, stands for `--at`, in Gbit/s, of the
paper's Table 4: NICs of MixNet have it. What a server costs there buys each of the others the same
NICs at another rate, which is printed (§7.1, §7.2):

- fat tree: all NICs on one packet switch.
- 3:1: the same, whose leaves have a third of the links upwards. A leaf is a server's here, so that
  a third of the rate of its NICs leaves it.
- rails: the NICs of each number on a switch of their own; its ports are a fat tree's, as in §7.2.
- TopoOpt: a patch panel in place of the circuit switch, with one set of circuits for the whole run,
  by Algorithm 1 from the mean demand of the run on MixNet. What a panel costs less goes into its
  packet NICs.

Times are medians with their 95 % intervals, without the first step: of steps, and of the
all-to-alls of a step together. All networks must print the same losses, to the last bit.

A network takes minutes. `--keep` names a file that keeps each as soon as it has run: a later call
with the same options runs what the file lacks, and prints all. `--networks` names those to run, of
"MixNet", "fat tree", "3:1", "rails" and "TopoOpt"; MixNet comes first.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.statistics.quantiles import NotEnough, quantile
from lightrig.harness.systems.mixnet.generator import render
from lightrig.harness.systems.mixnet.planning.costs import (
    OVERSUBSCRIBED_PORTS,
    PRICES,
    fat_tree_cost,
    mixnet_cost,
    prices_at,
    rate_at_cost,
    topoopt_cost,
)
from lightrig.harness.systems.mixnet.planning.cross_connects import plan_testbed
from lightrig.harness.systems.mixnet.planning.demand import Matrix, server_demand
from lightrig.harness.systems.mixnet.runtime.trained import TrainedExperts
from lightrig.harness.systems.mixnet.runtime.training import ExpertTraining
from lightrig.instruments.jobs.traffic.training import Script
from lightrig.suites.claims.mixnet.expert_training import median_ratio, step_figures
from lightrig.testbeds import load

ROOT = Path(__file__).parents[1]
LAYERS, OPTICAL, PACKET = 2, 2, 1


@dataclass(frozen=True)
class Network:
    """A network of the table: rates in Gbit/s of NICs on circuits and on packets.

    cost: of a server's share, in US dollars. plan: of its testbed; None: circuits follow the gates;
    "mean": one set from the mean demand.
    """

    name: str
    optical: float | None
    packet: float
    cost: float
    plan: str | None
    rails: bool = False
    uplinks: float = 1.0

    def text(self, options: argparse.Namespace) -> str:
        """Return its testbed."""
        return render(
            *(options.servers, options.gpus, OPTICAL, PACKET),
            baseline=self.plan == "packet",
            namespaces=True,
            rates=(
                self._rate(self.optical or self.packet, options),
                self._rate(self.packet, options),
            ),
            rails=self.rails,
        )

    def _rate(self, gbps: float, options: argparse.Namespace) -> str:
        return f"{gbps * self.uplinks / options.at * options.rate * 1000:.0f}k"


def networks(at: float) -> list[Network]:
    """Return MixNet with NICs of `at` Gbit/s, and the others at the same cost."""
    cost = mixnet_cost(PRICES[round(at)], OPTICAL, PACKET)
    nics = OPTICAL + PACKET

    def rate(of: Callable[[float], float]) -> float:
        return rate_at_cost(cost, of)

    tree = rate(lambda gbps: fat_tree_cost(prices_at(gbps), nics))
    third = rate(lambda gbps: fat_tree_cost(prices_at(gbps), nics, OVERSUBSCRIBED_PORTS))
    panel = rate(lambda gbps: topoopt_cost(PRICES[round(at)], OPTICAL, prices_at(gbps), PACKET))
    return [
        Network("MixNet", at, at, cost, None),
        Network("fat tree", None, tree, cost, "packet"),
        Network("3:1", None, third, cost, "packet", uplinks=1 / 3),
        Network("rails", None, tree, cost, "packet", rails=True),
        Network("TopoOpt", at, panel, cost, "mean"),
    ]


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.mixnet_baselines")
    for name, value in (("servers", 6), ("gpus", 2), ("steps", 7), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=4.0)
    parser.add_argument("--at", type=float, default=400.0, choices=[float(each) for each in PRICES])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--networks", default="", help="comma-separated; by default all")
    options = parser.parse_args(arguments)
    every = networks(options.at)
    wanted = [name.strip() for name in options.networks.split(",") if name.strip()]
    names = [network.name for network in every]
    if unknown := set(wanted) - set(names):
        sys.exit(f"there is no network {', '.join(sorted(unknown))}, only {', '.join(names)}")
    stored = _StoredRuns(options)
    print(
        f"{options.servers} servers of {options.gpus} GPUs, {OPTICAL} NICs on circuits and "
        f"{PACKET} on Ethernet; {options.rate:g} Mbit/s are {options.at:g} Gbit/s"
    )
    print(
        f"{'network':<10}{'$ a server':>11}{'circuits':>10}{'packets':>14}  {'step':<26}"
        f"{'by MixNet':>10}  {'all-to-alls':<26}{'by MixNet':>10}  losses",
        flush=True,
    )
    for network in every:
        if network.name not in stored.runs:
            if wanted and network.name not in wanted:
                continue
            if network.name != names[0] and names[0] not in stored.runs:
                sys.exit(f"{names[0]} has not run, and all others are compared with it")
            first = stored.runs.get(names[0])
            stored.add(network.name, _train(network, options, first))
        print(_line(network, stored.runs[network.name], stored.runs[names[0]]), flush=True)


@dataclass(frozen=True)
class Run:
    """What the table needs of a run on a network.

    Attributes:
        steps: time of each step but the first, in ns. exchanges: of its all-to-alls together.
        losses: the lines with a step's loss that each rank printed.
        demand: between servers, in bytes a layer, as a mean over all.
    """

    steps: Sequence[int]
    exchanges: Sequence[int]
    losses: Sequence[Sequence[Any]]
    demand: Sequence[Sequence[float]]


class _StoredRuns:
    """The runs of a file that was made with these options, if there is one, and further ones."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._file: Path | None = options.keep
        names = ("servers", "gpus", "steps", "seed", "rate", "at")
        self._options = {name: getattr(options, name) for name in names}
        self.runs: dict[str, Run] = {}
        if self._file is not None and self._file.exists():
            found = json.loads(self._file.read_text("utf-8"))
            if found["options"] != self._options:
                sys.exit(f"{self._file} was made with {found['options']}")
            self.runs = {name: Run(**run) for name, run in found["runs"].items()}

    def add(self, name: str, run: Run) -> None:
        self.runs[name] = run
        if self._file is not None:
            runs = {name: asdict(run) for name, run in self.runs.items()}
            self._file.write_text(json.dumps({"options": self._options, "runs": runs}), "utf-8")


def _train(network: Network, options: argparse.Namespace, first: Run | None) -> Run:
    source = (ROOT / "examples" / "train_moe.py").read_text("utf-8")
    source = source.replace("import torch\n", "import torch\ntorch.set_num_threads(1)\n", 1)
    arguments = (
        "--steps",
        str(options.steps),
        "--layers",
        str(LAYERS),
        "--seed",
        str(options.seed),
    )
    script = Script(source, "train_moe.py", arguments)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.yaml"
        file.write_text(network.text(options), "utf-8")
        bench = bind(load(file), "simulated", seed=1)
        fabric = Fabric(bench)
        try:
            training = ExpertTraining(fabric)
            try:
                plan = fabric.plans["packet" if network.plan == "packet" else "uniform"]
                if network.plan == "mean":
                    assert first is not None
                    demand = np.array(first.demand)
                    plan = plan_testbed(fabric.testbed, demand, "mean demand")
                predict = None if network.plan else "predict"
                trained = training.train(script, LAYERS, plan, predict, count=True)
                figures = step_figures(trained)
                return Run(
                    list(figures.steps),
                    list(figures.exchanges),
                    [list(each) for each in trained.losses()],
                    _mean_demand(trained, training).tolist(),
                )
            finally:
                training.close()
        finally:
            fabric.restore()
            bench.close()


def _mean_demand(trained: TrainedExperts, training: ExpertTraining) -> Matrix:
    traffic = np.mean([each.traffic for each in trained.exchanges], axis=0)
    return server_demand(traffic, training.placement)


def _line(network: Network, run: Run, first: Run) -> str:
    equal = bool(first.losses) and run.losses == first.losses
    circuits = "-" if network.optical is None else f"{network.optical:.0f} G"
    third = "" if network.uplinks == 1 else " / 3"
    cells = [f"{network.name:<10}", f"{network.cost:>11,.0f}", f"{circuits:>10}"]
    cells.append(f"{network.packet:>10.1f} G{third or '  '}  ")
    for found, base in ((run.steps, first.steps), (run.exchanges, first.exchanges)):
        ratio = median_ratio(found, base)
        by = "-" if isinstance(ratio, NotEnough) else f"{ratio.value:.2f}"
        middle = sorted(found)[len(found) // 2] / sorted(base)[len(base) // 2]
        cells.append(f"{_median(found):<26}{by if by != '-' else f'{middle:.2f}':>10}  ")
    return "".join([*cells, "equal" if equal else "DIFFER"])


def _median(found: Sequence[int]) -> str:
    value = quantile(found, found, 0.5)
    if isinstance(value, NotEnough):
        low, high = min(found) / 1e9, max(found) / 1e9
        return f"{sorted(found)[len(found) // 2] / 1e9:.2f} s ({low:.2f} to {high:.2f})"
    return f"{value.value / 1e9:.2f} s ({value.lower / 1e9:.2f} to {value.upper / 1e9:.2f})"


if __name__ == "__main__":
    main(sys.argv[1:])
