"""Steps that the authors simulated, simulated again: their released results beside our model's.

`results()` reads the released step times of 55 examples; `simulated` computes one of them by the
rules of `planning/archived_simulation.py`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from lightrig.harness.systems.opus.planning.archived_simulation import (
    GIB,
    Marks,
    on_demand,
    one_shot,
    packet,
    provisioned,
)
from lightrig.harness.systems.opus.planning.simulated_control import controlled, profiled
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.graph import Device, Workload
from lightrig.harness.workloads.transformer import workload
from lightrig.harness.workloads.transformer_sizes import Model, Parallelism

RESULTS = Path(__file__).parents[3] / "testbeds" / "opus" / "recordings" / "simulated_steps.csv"
UNUSABLE = {
    ("gb200_llama_405B_dp4_pp4_tp32_100BW", "provisioned", "0", "795ee5b3"): "it did not end: its "
    "first rank has no time",
    (
        "gb200_stg_dp2_pp4_tp32_batch_256_mb-1_96stack_seq4096_100BW",
        "provisioned",
        "10",
        "2475",
    ): "the same as on demand to the nanosecond, unlike an earlier version",
}
"""Released results that are none, by example, mode, delay and how the commit begins, and why."""
SLOW_SERVERS = "gb200_stg_dp2_pp2_tp32"
"""GB200 that were run with the links within a server of H200, as the log of their budget says."""

MODELS = {
    "gpt": Model(96, 8192, 28672, 32000, 64, 64),
    "llama": Model(96, 8192, 28672, 32000, 64, 8, gated=True),
    "llama_405B": Model(128, 16384, 53248, 32000, 128, 8, gated=True),
}
TOKENS = {"gpt": 256 * 4096, "llama": 256 * 4096, "llama_405B": 2_097_152}
DEVICES = {"H200": Device(989e3, 4800.0), "GB200": Device(1250e3, 8000.0)}
"""Multiplications with their additions, and bytes, a nanosecond."""
WITHIN_SERVERS = {"H200": 450.0, "GB200": 1800.0}
LATENCY_NS, ENDPOINT_NS = 936.25, 12.0


@dataclass(frozen=True, slots=True)
class Example:
    """What was simulated. `gibps`: 2^30 bytes a second of a link out of a server."""

    name: str
    gpu: str
    model: str
    data: int
    pipeline: int
    tensor: int
    gibps: float

    @property
    def within(self) -> float:
        """Bandwidth of a link within a server, in the same unit."""
        return 450.0 if self.name.startswith(SLOW_SERVERS) else WITHIN_SERVERS[self.gpu]

    @property
    def bandwidths(self) -> Mapping[str, float]:
        """Bytes a nanosecond by kind of link."""
        out = self.gibps * GIB
        return {"dp": out, "pp": out, "tp": self.within * GIB}

    @property
    def timing(self) -> Timing:
        """What messages cost beyond their bytes."""
        return Timing(LATENCY_NS, ENDPOINT_NS, DEVICES[self.gpu].memory, splits=4, holding=2)

    def workload(self, *, fold_data: bool) -> Workload:
        """Return the step."""
        return _workload(self.model, self.gpu, self.data, self.tensor, self.pipeline, fold_data)


class Result(NamedTuple):
    """A released step time; `delay` in ms, empty where circuits do not change."""

    example: Example
    mode: str
    delay: str
    nanoseconds: int
    commit: str

    @property
    def unusable(self) -> str:
        """Why it is no result, empty where it is one."""
        for (*run, commit), why in UNUSABLE.items():
            if [self.example.name, self.mode, self.delay] == run and self.commit.startswith(commit):
                return why
        return ""


def results() -> Iterator[Result]:
    """Yield what the authors have released, those of a later version (`eps_zero_delay`) too."""
    with RESULTS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            example = Example(
                row["example"],
                row["gpu"],
                row["model"],
                int(row["dp"]),
                int(row["pp"]),
                int(row["tp"]),
                float(row["bandwidth_GBps"]),
            )
            yield Result(example, row["mode"], row["delay_ms"], int(row["step_ns"]), row["commit"])


def simulated(example: Example, mode: str, delay: str) -> int:
    """Return the nanoseconds of a step; `mode` and `delay` as the released table has them."""
    match mode:
        case "eps":
            step = example.workload(fold_data=True)
            return packet(step, example.bandwidths, example.timing).step
        case "one_shot":
            step = example.workload(fold_data=True)
            split = one_shot(step, example.gibps, example.within)
            bandwidths = {kind: value * GIB for kind, value in split.items()}
            return packet(step, bandwidths, example.timing).step
        case "provisioned":
            step, switching = example.workload(fold_data=False), int(delay) * 1_000_000
            ahead = _on_demand(example, switching)[1]
            return provisioned(step, example.bandwidths, example.timing, switching, ahead).step
    return _on_demand(example, int(delay or 0) * 1_000_000)[0]


def with_training_control(example: Example, mode: str, delay: str) -> int:
    """Return the same where the control plane of `lightrig train` changes the circuits."""
    return controlled(
        example.workload(fold_data=False),
        example.bandwidths,
        example.timing,
        int(delay) * 1_000_000,
        "provisioning" if mode == "provisioned" else "default",
        order=_order(example),
    ).step


@lru_cache(maxsize=4)
def _order(example: Example) -> list[list[int]]:
    return profiled(example.workload(fold_data=False), example.bandwidths, example.timing)


@lru_cache(maxsize=4)
def _workload(
    model: str, gpu: str, data: int, tensor: int, pipeline: int, fold_data: bool
) -> Workload:
    degrees = Parallelism(data, tensor, pipeline)
    return workload(MODELS[model], degrees, TOKENS[model], DEVICES[gpu], fold_data=fold_data)


@lru_cache(maxsize=32)
def _on_demand(example: Example, switching: int) -> tuple[int, Marks]:
    step = example.workload(fold_data=False)
    times, ahead = on_demand(step, example.bandwidths, example.timing, switching)
    return times.step, ahead
