"""Figures of Opus' paper, from its arithmetic and its archived recordings."""

import csv
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lightrig.harness.claims.computed import Computed, Registry, exactly
from lightrig.harness.systems.opus.planning.costs import GB200, H200, Parts, advantage
from lightrig.harness.systems.opus.planning.operations import OpusError, RailJob
from lightrig.harness.systems.opus.planning.topology import TopologyId
from lightrig.suites.claims.opus.further_claims import FURTHER
from lightrig.suites.claims.opus.phases import parse_phase_table, steady
from lightrig.suites.claims.opus.simulated_overheads import SIMULATED
from lightrig.suites.claims.opus.window_count import window_count

RECORDINGS = Path(__file__).parents[3] / "testbeds" / "opus" / "recordings"
"""Parts of the released artifact; its SOURCES.md says what they are."""


def step_seconds(table: str) -> dict[str, float]:
    """Average step time in s of each experiment in an archived latency table.

    The keys are what the rows' names say: "native", or the milliseconds of switching. Raises
    `OpusError` for a row that says neither.
    """
    found = {}
    with (RECORDINGS / table).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name, seconds = row["Experiment"], float(row["Average Latency (s)"])
            switching = re.search(r"-l_(\d+)-", name)
            if "no-c" in name:  # "no-controller", "no-ctl"
                found["native"] = seconds
            elif switching is not None:
                found[switching[1]] = seconds
            else:
                raise OpusError(f"{table}: {name!r} does not say how long switching took")
    if "native" not in found:
        raise OpusError(f"{table}: no step without control among {', '.join(found)}")
    return found


def _against_native(table: str, milliseconds: str, *, more: bool = False) -> Computed:
    seconds = step_seconds(table)
    ratio = seconds[milliseconds] / seconds["native"]
    return exactly(
        ratio - 1 if more else ratio,
        f"From the archived table: {seconds[milliseconds]:.3f} s over {seconds['native']:.3f} s.",
    )


def _shifts() -> Computed:
    tables = sorted(RECORDINGS.glob("comm_pattern_*.txt"))
    found = {steady(parse_phase_table(table.read_text("utf-8"))).shifts for table in tables}
    if len(found) != 1:
        raise OpusError(f"the archived ranks shift {sorted(found)} times a step")
    return exactly(found.pop(), f"Phases that repeat in the tables of {len(tables)} ranks.")


def _windows() -> Computed:
    count = window_count(stages=8, layers=128, microbatches=16, two_symmetric=False)
    return exactly(
        count,
        "The paper gives no inputs. 8 stages, 128 layers and 16 microbatches without the CP and "
        "EP term give it exactly, as six other jobs of 126 or 128 layers do; none with it does.",
    )


def _bill(parts: Parts, gpus: int, which: Callable[[tuple[float, float]], float]) -> Computed:
    note = f"{gpus} GPUs; sizes whose fat tree has no whole radix give other ratios."
    return exactly(which(advantage(parts, gpus)), note)


def _dollars(bill: tuple[float, float]) -> float:
    return bill[0]


def _watts(bill: tuple[float, float]) -> float:
    return bill[1]


def _least_power_advantage() -> Computed:
    sizes = {"H200": (H200, (128, 256, 512)), "GB200": (GB200, (512, 1024, 2048))}
    least = min(
        advantage(parts, gpus).watts for parts, all_sizes in sizes.values() for gpus in all_sizes
    )
    return exactly(least, "The least of 128 to 512 H200 and 512 to 2,048 GB200.")


def _gained_more() -> Computed:
    """By how much more provisioning gains at 50 ms in configuration 2 than in 1, in ns."""
    gains = []
    for config in (CONFIG_1, CONFIG_2):
        default, ahead = (
            step_seconds(f"{config}_{mode}.csv") for mode in ("baseline", "provision")
        )
        gains.append(default["50"] - ahead["50"])
    note = f"From the archived tables: {gains[1]:.2f} s gained against {gains[0]:.2f} s."
    return exactly((gains[1] - gains[0]) * 1e9, note)


def _flat() -> Computed:
    seconds = step_seconds(CONFIG_3)
    note = (
        f"From the archived table: {seconds['100']:.3f} s at 100 ms, {seconds['0']:.3f} s at none."
    )
    return exactly(seconds["100"] / seconds["0"], note)


def _estimate() -> Computed:
    """T_native + N T_reconfig over the archived step time of configuration 1, up to 1 s."""
    seconds = step_seconds(f"{CONFIG_1}_baseline.csv")
    sweep = {int(each): took for each, took in seconds.items() if each != "native"}
    ratios = {
        each: (seconds["native"] + 6 * each / 1000) / took
        for each, took in sweep.items()
        if each <= 1000
    }
    worst = max(ratios, key=lambda each: abs(ratios[each] - 1))
    note = f"From the archived table, the farthest of {len(ratios)} switching times: {worst} ms."
    return exactly(ratios[worst], note)


def _degree(*, at_once: bool) -> Computed:
    """Ring neighbours of a rank in a job of three dimensions: of all rings, or of the largest."""
    job = RailJob.grid("three dimensions", 3, [3, 3])
    near: dict[int, set[int]] = {}
    for group in job.groups.values():
        if 0 in group.ranks:
            place, count = group.ranks.index(0), len(group.ranks)
            ring = {group.ranks[(place + step) % count] for step in (-1, 1)} - {0}
            near.setdefault(group.dimension, set()).update(ring)
    degrees = [len(each) for each in near.values()]
    note = "Rank 0 of PP 3 x DP 3 x CP 3, by the groups of the planner."
    return exactly(sum(degrees) if at_once else max(degrees), note)


def _dimensions() -> Computed:
    """Greatest number of parallelisms of a job that the planner takes."""
    count = 0
    for count in range(1, 12):
        try:
            RailJob.grid("most", 1, [1] * count)
        except OpusError:
            break
    return exactly(count, "Symmetric dimensions that the planner takes, and the pipeline.")


def _moved() -> Computed:
    moved = TopologyId("111").rewired(TopologyId("001"))
    return exactly(len(moved), f"Sub-mappings {sorted(moved)} of three stages.")


def _parameters(width: int, hidden: int, layers: int, key_share: float, tokens: int) -> float:
    """Parameters of a Llama: attention, a gated feed-forward network, embedding and head."""
    attention = 2 * width**2 * (1 + key_share)
    return layers * (attention + 3 * width * hidden) + 2 * width * tokens


def _model_size() -> Computed:
    note = "With a gated feed-forward network and an embedding apart from the head."
    return exactly(_parameters(8192, 28_672, 96, 8 / 64, 32_000), note)


_MIB = 1 << 20
_8B = _parameters(4096, 14_336, 32, 8 / 32, 128_256) / 8
"""Parameters of a pipeline stage of Llama 3 8B on a tensor-parallel rank, with TP 4 and PP 2."""


def _volume(size: float, note: str) -> Computed:
    return exactly(size / _MIB, note)


CONFIG_1 = "llama3_8b_16gpu_config1"
CONFIG_2 = "llama3_8b_64gpu_config2"
CONFIG_3 = "deepseek_v3_16b_16gpu_config3_baseline.csv"

COMPUTED: Registry = {
    **FURTHER,
    **SIMULATED,
    "estimate": _estimate,
    "windows": _windows,
    "shifts": _shifts,
    "step-time-config-1": partial(_against_native, f"{CONFIG_1}_baseline.csv", "50"),
    "step-time-config-1-provisioned": partial(_against_native, f"{CONFIG_1}_provision.csv", "50"),
    "step-time-config-2": partial(_against_native, f"{CONFIG_2}_baseline.csv", "50"),
    "step-time-config-2-provisioned": partial(_against_native, f"{CONFIG_2}_provision.csv", "50"),
    "control": partial(_against_native, f"{CONFIG_2}_baseline.csv", "0", more=True),
    "control-provisioned": partial(_against_native, f"{CONFIG_2}_provision.csv", "0", more=True),
    "suppressed": partial(_against_native, CONFIG_3, "0", more=True),
    "cost-h200": partial(_bill, H200, 128, _dollars),
    "power-h200": partial(_bill, H200, 128, _watts),
    "cost-gb200": partial(_bill, GB200, 512, _dollars),
    "power-gb200": partial(_bill, GB200, 512, _watts),
    "cost-h200-512": partial(_bill, H200, 512, _dollars),
    "cost-h200-256": partial(_bill, H200, 256, _dollars),
    "power-h200-512": partial(_bill, H200, 512, _watts),
    "cost-gb200-2048": partial(_bill, GB200, 2048, _dollars),
    "power-gb200-2048": partial(_bill, GB200, 2048, _watts),
    "least-power-advantage": _least_power_advantage,
    "provisioning-gains-more": _gained_more,
    "flat": _flat,
    "degree": partial(_degree, at_once=True),
    "degree-in-time": partial(_degree, at_once=False),
    "dimensions": _dimensions,
    "moved-sub-mappings": _moved,
    "windows-a-second": lambda: exactly(127 / 20, "127 windows in a step of 20 s."),
    "gpus-a-rail": lambda: exactly(512 // 2 * 72, "512 ports, two a GPU, one GPU of each NVL72."),
    "model-size": _model_size,
    "volume-pipeline": lambda: _volume(8192 * 4096 * 2, "8,192 tokens of 4,096 values, bfloat16."),
    "volume-all-gather": lambda: _volume(_8B * 2 / 2, "Half of 2 bytes a parameter, FSDP 2."),
    "volume-reduce-scatter": lambda: _volume(_8B * 4, "4 bytes a parameter."),
}
