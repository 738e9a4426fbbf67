"""Ready-made matplotlib plots of tidy frames (`Results.frame`), for notebooks: `lightrig[plots]`.

Each function draws into `axes`, or into a new figure, and returns the axes. A frame with simulated
rows says so in the title.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lightrig.harness.report.frames import natural
from lightrig.testbeds import LightrigError
from lightrig.testbeds.plans import pair_in

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class PlotError(LightrigError, ValueError):
    """Raised for a frame without the rows that a plot needs."""


def latency(frame: pd.DataFrame, axes: Axes | None = None) -> Axes:
    """Draw the empirical distribution of each quantity in ns, such as the stages of events.

    Time in milliseconds, logarithmic; the share of samples that are at most as long.
    """
    times = _checked(frame[frame["unit"] == "ns"], "a quantity in ns")
    axes = _axes(axes)
    for quantity, each in times.groupby("quantity", sort=False):
        values = np.sort(each["value"].dropna().to_numpy()) / 1e6
        shares = np.arange(1, values.size + 1) / values.size
        axes.step(values, shares, where="post", label=f"{quantity} (n = {values.size:,})")
    axes.set(xscale="log", xlabel="time (ms)", ylabel="share of samples", ylim=(0, 1))
    axes.legend()
    return _titled(axes, times, "Latency")


def loss_matrix(frame: pd.DataFrame, axes: Axes | None = None) -> Axes:
    """Draw the median insertion loss in dB of each circuit, ingress by egress.

    Subjects are circuits such as "ocs 3>19"; of several switches give one.
    """
    losses = frame[(frame["quantity"] == "insertion_loss") & frame["subject"].str.contains(">")]
    median = _checked(losses, "insertion_loss of circuits").groupby("subject")["value"].median()
    ends = [pair[1:] for subject in median.index if (pair := pair_in(subject)) is not None]
    ingress, egress = (sorted({end[side] for end in ends}, key=natural) for side in (0, 1))
    matrix = np.full((len(ingress), len(egress)), np.nan)
    for (start, end), value in zip(ends, median, strict=True):
        matrix[ingress.index(start), egress.index(end)] = value
    axes = _axes(axes)
    image = axes.imshow(matrix, aspect="auto", cmap="viridis")
    axes.figure.colorbar(image, ax=axes, label="insertion loss (dB)")
    axes.set_xticks(range(len(egress)), egress)
    axes.set_yticks(range(len(ingress)), ingress)
    axes.set(xlabel="egress", ylabel="ingress")
    return _titled(axes, losses, "Insertion loss")


def bit_error_curve(frame: pd.DataFrame, power: str, axes: Axes | None = None) -> Axes:
    """Draw each subject's bit error ratio over the condition `power`, a power in dBm.

    Bars are the interval of each ratio; a gate without errors is drawn at its upper bound.
    """
    ratios = _checked(frame[frame["quantity"] == "bit_error_ratio"], "bit_error_ratio")
    if power not in ratios:
        raise PlotError(f"no condition {power!r}; the columns are {', '.join(map(str, ratios))}")
    axes = _axes(axes)
    for subject, each in ratios.dropna(subset=[power]).groupby("subject", sort=False):
        points = each.sort_values(power)
        middle = points["value"].where(points["value"] > 0, points["upper"]).to_numpy()
        below = np.clip(middle - points["lower"].fillna(0).to_numpy(), 0, middle * (1 - 1e-9))
        above = np.clip(points["upper"].to_numpy() - middle, 0, None)
        axes.errorbar(points[power], middle, (below, above), label=str(subject), marker="o")
    axes.set(yscale="log", xlabel=f"{power} (dBm)", ylabel="bit error ratio")
    axes.legend()
    return _titled(axes, ratios, "Bit error ratio")


def _checked(rows: pd.DataFrame, wanted: str) -> pd.DataFrame:
    if rows.empty:
        raise PlotError(f"the frame has no row of {wanted}")
    return rows


def _axes(axes: Axes | None) -> Axes:
    if axes is not None:
        return axes
    try:
        from matplotlib import pyplot  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PlotError("plots need matplotlib: pip install 'lightrig[plots]'") from error
    found: Any = pyplot.subplots(layout="constrained")[1]
    return found  # type: ignore[no-any-return]


def _titled(axes: Axes, rows: pd.DataFrame, title: str) -> Axes:
    axes.set_title(f"{title} (simulated)" if rows["simulated"].any() else title)
    return axes
