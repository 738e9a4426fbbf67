"""Windows between phases of parallelism in simulated steps of the paper's experiments (§3.2).

The experiments ran on A100s of a supercomputer, whose recordings are not published. Here the step
is a graph of computation and communication by the public sizes of the models, each link at its
full rate; a device computes at the stated share of its peak.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.graph import Device, Group, Kind
from lightrig.harness.workloads.networks import DedicatedLinks
from lightrig.harness.workloads.simulator import Simulator
from lightrig.harness.workloads.transformer import workload
from lightrig.harness.workloads.transformer_sizes import Model, Parallelism

PEAK, UTILIZATION, MEMORY = 312e3, 0.4, 2039.0
"""Operations and bytes a nanosecond of an A100 (BF16), and the share that is reached: a guess."""
BANDWIDTHS = {"dp": 25.0, "pp": 25.0, "tp": 25.0}
"""Bytes a nanosecond: 200 Gbit/s of the network and of NVLink, as printed."""
SEND, GRADIENTS = "PP send", "DP gradients"
_LLAMA_8B = Model(32, 4096, 14_336, 128_256, 32, 8, gated=True)
_LLAMA_70B = Model(80, 8192, 28_672, 128_256, 64, 8, gated=True)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A job of §3.2: micro-batches are as many as stages."""

    model: Model
    data: int
    pipeline: int
    batch: int
    sequence: int


EXPERIMENTS = {
    1: Experiment(_LLAMA_8B, 2, 2, 16, 8192),
    2: Experiment(_LLAMA_8B, 8, 2, 64, 8192),
    3: Experiment(_LLAMA_70B, 4, 8, 32, 1024),
}


@dataclass
class _Recorder:
    """Notes when the ranks of each communication out of servers have joined, and when it ends."""

    sent: dict[tuple[int, int], int] = field(default_factory=dict)
    began: dict[Group, int] = field(default_factory=dict)
    done: dict[int, list[tuple[int, int, str, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Of each rank: start, end, kind of parallelism, and what is communicated."""

    def may_start(self, simulator: Simulator, rank: int, number: int) -> bool:
        """Note the time; nothing is refused. A collective begins when its last rank has joined."""
        if simulator.node(rank, number).kind is Kind.SEND:
            self.sent.setdefault((rank, number), simulator.now)
        else:
            self.began[simulator.group(rank, number)] = simulator.now
        return True

    def ended(self, simulator: Simulator, rank: int, number: int) -> None:
        """Note a communication that leaves the server."""
        node = simulator.node(rank, number)
        if node.kind is Kind.SEND:
            start = self.sent[rank, number]
            for each in (rank, simulator.peer(rank, number)):
                self.done[each].append((start, simulator.now, "pp", SEND))
        elif node.kind is Kind.COLLECTIVE and simulator.group(rank, number).kind == "dp":
            start = self.began[simulator.group(rank, number)]
            self.done[rank].append((start, simulator.now, "dp", GRADIENTS))


@cache
def windows(experiment: int) -> tuple[tuple[int, str], ...]:
    """Return each window of a step in ns with what follows it, of all simulated ranks of a rail.

    From the end of the last communication of one parallelism on a rank to the start of the first
    of another on it; overlapping ones have none.
    """
    one = EXPERIMENTS[experiment]
    degrees = Parallelism(one.data, 4, one.pipeline, micro_batches=one.pipeline)
    device = Device(PEAK * UTILIZATION, MEMORY)
    step = workload(one.model, degrees, one.batch * one.sequence, device, element_bytes=2)
    recorder = _Recorder()
    network = DedicatedLinks(BANDWIDTHS, Timing(0.0, 0.0, MEMORY, splits=1, holding=1))
    Simulator(step, network, recorder).run()
    found: list[tuple[int, str]] = []
    for operations in recorder.done.values():
        ordered = sorted(operations)
        last = ordered[0][1]
        for before, after in pairwise(ordered):
            last = max(last, before[1])
            if before[2] != after[2] and after[0] > last:
                found.append((after[0] - last, after[3]))
    return tuple(found)
