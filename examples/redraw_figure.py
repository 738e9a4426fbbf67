"""Redraw the time line of a reconfiguration (Opus, Fig. 9b and c) from a run of one's own.

    python examples/redraw_figure.py last --results results --output timeline.svg

Ours is one port of each event, in turn, since the paper traces one: the median with its 95 %
interval, on a bar from the earliest to the latest that any event was seen. The paper prints no
samples, so what it says is drawn as the range that its figures stand for.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lightrig.api import NotEnough, Results, quantile
from lightrig.systems import PUBLISHED, Claim, load_published

STAGES = {
    "acknowledged": "control plane",
    "signal_recovered": "light at the receiver",
    "firmware_up": "NIC firmware",
    "carrier_up": "carrier",
    "first_datagram": "first datagram",
}
MS = 1e6
EARLIEST_MS = 10.0
OURS, THEIRS = "#1f6f8b", "#8a5a44"

mpl.rcParams["svg.fonttype"] = "none"  # text stays text


def one_port_an_event(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of event n's port n, counted round: the ports of one event move together."""
    ordered = rows.sort_values("subject")
    events = ordered.groupby(["test", "event"])
    turn = ordered["event"] % events["subject"].transform("size")
    return ordered[events.cumcount() == turn]


def draw(frame: pd.DataFrame, published: Mapping[str, Claim]) -> Figure:
    """The stages that `frame` has, above what was published of them by quantity."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    stages = [stage for stage in STAGES if (frame["quantity"] == stage).any()]
    for place, stage in enumerate(stages):
        draw_ours(axes, place, one_port_an_event(frame[frame["quantity"] == stage]))
        if stage in published:
            draw_published(axes, place, published[stage])
    simulated = "simulated" if frame["simulated"].any() else "measured"
    axes.set_title(f"A reconfiguration of {frame['testbed'].iloc[0]}, ours {simulated}", loc="left")
    axes.set_yticks(range(len(stages)), [STAGES[stage] for stage in stages])
    axes.set_ylim(len(stages) + 0.4, -0.6)
    axes.set_xscale("log")
    axes.set_xlim(left=EARLIEST_MS)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("ms after the command")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.plot(
        [], [], color=OURS, linewidth=5, label=f"ours ({simulated}), run {frame['run'].iloc[0]}"
    )
    axes.plot([], [], color=THEIRS, linewidth=5, alpha=0.5, label="published: Opus §5.1, Fig. 9")
    axes.legend(frameon=False, loc="lower left")
    return figure


def draw_ours(axes: Axes, place: int, rows: pd.DataFrame) -> None:
    """All that was seen as a thin bar, the median's interval as a thick one."""
    lower, upper = rows["lower"] / MS, rows["upper"].fillna(np.inf) / MS
    least = max(lower.min(), EARLIEST_MS)
    axes.plot([least, upper.max()], [place, place], color=OURS, linewidth=1)
    median = quantile(lower, upper, 0.5)
    if isinstance(median, NotEnough):
        axes.annotate(str(median), (least, place - 0.12), color=OURS, fontsize=8)
        return
    axes.plot([median.lower or least, median.upper], [place, place], color=OURS, linewidth=7)
    label = f"{median.value:,.4g} ms (n = {median.n:,})"
    axes.annotate(label, (upper.max() * 1.06, place), color=OURS, fontsize=8, va="center")


def draw_published(axes: Axes, place: int, claim: Claim) -> None:
    """The range that a printed figure stands for, open where it is a bound."""
    low, high = max(claim.figure.low / MS, EARLIEST_MS), claim.figure.high / MS
    axes.plot([low, high], [place + 0.25] * 2, color=THEIRS, linewidth=5, alpha=0.5)
    axes.annotate(
        f"published: {claim.figure.printed}",
        (high * 1.06, place + 0.25),
        color=THEIRS,
        fontsize=8,
        va="center",
    )


def main() -> None:
    """Draw what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", nargs="?", default="last", help="its name, or 'last'")
    parser.add_argument("--results", default="results", help="folder or URL")
    parser.add_argument("--output", type=Path, default=Path("timeline.svg"))
    asked = parser.parse_args()

    results = Results(asked.results)
    frame = results.frame(run=results.find(asked.run).run, testbed="opus")
    published: dict[str, Claim] = {}
    for claim in load_published(PUBLISHED / "opus.yaml").claims:
        if claim.ours and claim.ours.statistic == "median" and claim.ours.since is None:
            # The figure's own row comes first; others state the same quantity in other words.
            published.setdefault(claim.ours.quantity.removeprefix("reconfiguration."), claim)
    draw(frame, published).savefig(asked.output)
    print(asked.output)


if __name__ == "__main__":
    main()
