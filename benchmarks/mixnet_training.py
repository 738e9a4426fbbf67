"""A mixture of experts trained over circuits that follow its gates, gate by gate.

    python -m benchmarks.mixnet_training [--gates 1 2 ...] [--steps 7] [--first predict]

On testbeds/mixnet6.yaml, six namespaces: real packets, a simulated switch, examples/train_moe.py.
Of each gate (a seed of the script) the times of a step and of its all-to-alls over uniform circuits
and over as many Ethernet ports, by those over circuits that follow; medians with the interval from
both 95 % intervals. Ratios below 1 are losses of the circuits that follow. All networks must print
the same losses, to the last bit. Then, of each gate, the wait of a step over circuits that follow
by its causes (harness/systems/mixnet/measurements/circuit_waits.py): means over steps.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import get_args

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.jobs.statistics.means import mean_of
from lightrig.harness.statistics.quantiles import NotEnough
from lightrig.harness.systems.mixnet.planning.calendar import FirstExchange
from lightrig.harness.systems.mixnet.runtime.trained import TrainedExperts
from lightrig.harness.systems.mixnet.runtime.training import ExpertTraining
from lightrig.instruments.jobs.traffic.training import Script
from lightrig.suites.claims.mixnet.expert_training import (
    StepFigures,
    median_ratio,
    step_figures,
)
from lightrig.testbeds import load

ROOT = Path(__file__).parents[1]
LAYERS = 2
HEAD = (
    ("gate", 4),
    ("uniform/chosen", 22),
    ("model", 6),
    ("packet/chosen", 22),
    ("model", 6),
    ("step: uniform/chosen", 22),
    ("step: packet/chosen", 22),
    ("step", 7),
    ("waits", 7),
    ("on circuits", 11),
    ("changes", 7),
    ("losses", 6),
)


@dataclass(frozen=True)
class Gate:
    """A gate's figures over the three networks."""

    number: int
    uniform: StepFigures
    packet: StepFigures
    chosen: StepFigures
    equal: bool


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.mixnet_training")
    parser.add_argument("--gates", type=int, nargs="+", default=list(range(1, 9)))
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--first", choices=get_args(FirstExchange), default="predict")
    options = parser.parse_args(arguments)
    bench = bind(load(ROOT / "testbeds" / "mixnet6.yaml"), "simulated", seed=1)
    fabric = Fabric(bench)
    training = ExpertTraining(fabric)
    try:
        print(f"{training.pytorch}, first all-to-all of a layer: {options.first}")
        print("  ".join(name.rjust(width) for name, width in HEAD), flush=True)
        gates = []
        for number in options.gates:
            gates.append(_gate(training, fabric, number, options.steps, options.first))
            print(_line(gates[-1]), flush=True)
        _summary(gates)
        for gate in gates:
            _waits(gate)
    finally:
        training.close()
        fabric.restore()
        bench.close()


def _gate(
    training: ExpertTraining, fabric: Fabric, number: int, steps: int, first: FirstExchange
) -> Gate:
    source = (ROOT / "examples" / "train_moe.py").read_text("utf-8")
    arguments = ("--steps", str(steps), "--layers", str(LAYERS), "--seed", str(number))
    script = Script(source, "train_moe.py", arguments)
    plans = fabric.plans
    found: list[TrainedExperts] = [
        training.train(script, LAYERS, plans["packet"]),
        training.train(script, LAYERS, plans["uniform"]),
        training.train(script, LAYERS, plans["uniform"], first),
    ]
    packet, uniform, chosen = map(step_figures, found)
    losses = [each.losses() for each in found]
    equal = bool(losses[0]) and losses[0] == losses[1] == losses[2]
    return Gate(number, uniform, packet, chosen, equal)


def _line(gate: Gate) -> str:
    chosen = gate.chosen
    cells = (
        str(gate.number),
        _ratio(gate.uniform.exchanges, chosen.exchanges),
        f"{mean(gate.uniform.predicted) / mean(chosen.predicted):.2f}",
        _ratio(gate.packet.exchanges, chosen.exchanges),
        f"{mean(gate.packet.predicted) / mean(chosen.predicted):.2f}",
        _ratio(gate.uniform.steps, chosen.steps),
        _ratio(gate.packet.steps, chosen.steps),
        f"{median(chosen.steps) / 1e9:.2f} s",
        f"{median(chosen.waited) / 1e9:.2f} s",
        f"{mean(chosen.optical):.0%}",
        f"{mean(chosen.changes):.1f}",
        "equal" if gate.equal else "DIFFER",
    )
    return "  ".join(cell.rjust(width) for cell, (_, width) in zip(cells, HEAD, strict=True))


def _ratio(over: Sequence[float], under: Sequence[float]) -> str:
    found = median_ratio(over, under)
    if isinstance(found, NotEnough):
        return f"{median(over) / median(under):.2f} (n = {found.n})"
    return f"{found.value:.2f} ({found.lower:.2f} to {found.upper:.2f})"


def _summary(gates: Sequence[Gate]) -> None:
    def against(which: str, what: str) -> str:
        ratios = [
            median(getattr(getattr(gate, which), what)) / median(getattr(gate.chosen, what))
            for gate in gates
        ]
        lost = sum(one < 1 for one in ratios)
        return (
            f"median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}, {lost} below 1"
        )

    for what, name in (("exchanges", "all-to-alls"), ("steps", "steps")):
        print(f"{name}, {len(gates)} gates: uniform/chosen {against('uniform', what)}")
        print(f"{name}, {len(gates)} gates: packet/chosen {against('packet', what)}")
    print(f"losses equal over all networks in {sum(g.equal for g in gates)} of {len(gates)} gates")


def _waits(gate: Gate) -> None:
    chosen = gate.chosen
    print(f"gate {gate.number}, wait of a step: {mean_of(chosen.waited)}")
    for cause, waits in chosen.causes.items():
        print(f"    {cause:<21}{mean_of(waits)}")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
