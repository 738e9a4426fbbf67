"""Figures of Opus' paper, from its arithmetic and its archived recordings."""

import csv
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lightrig.harness.claims.computed import Computed, Registry, exactly
from lightrig.harness.systems.opus.planning.costs import GB200, H200, Parts, advantage
from lightrig.harness.systems.opus.planning.operations import OpusError
from lightrig.harness.systems.opus.planning.phases import parse_phase_table, steady
from lightrig.harness.systems.opus.planning.step_time import window_count

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


_CONFIG_1 = "llama3_8b_16gpu_config1"
_CONFIG_2 = "llama3_8b_64gpu_config2"
_CONFIG_3 = "deepseek_v3_16b_16gpu_config3_baseline.csv"

COMPUTED: Registry = {
    "windows": _windows,
    "shifts": _shifts,
    "step-time-config-1": partial(_against_native, f"{_CONFIG_1}_baseline.csv", "50"),
    "step-time-config-1-provisioned": partial(_against_native, f"{_CONFIG_1}_provision.csv", "50"),
    "step-time-config-2": partial(_against_native, f"{_CONFIG_2}_baseline.csv", "50"),
    "step-time-config-2-provisioned": partial(_against_native, f"{_CONFIG_2}_provision.csv", "50"),
    "control": partial(_against_native, f"{_CONFIG_2}_baseline.csv", "0", more=True),
    "control-provisioned": partial(_against_native, f"{_CONFIG_2}_provision.csv", "0", more=True),
    "suppressed": partial(_against_native, _CONFIG_3, "0", more=True),
    "cost-h200": partial(_bill, H200, 128, _dollars),
    "power-h200": partial(_bill, H200, 128, _watts),
    "cost-gb200": partial(_bill, GB200, 512, _dollars),
    "power-gb200": partial(_bill, GB200, 512, _watts),
}
