"""Draw the figures of InfiniteHBD that can be computed, on one page.

    python examples/draw_infinitehbd.py --output infinitehbd.html
    python examples/draw_infinitehbd.py cross-tor-traffic

Lines are means over draws, bands where 95 % of the draws lie. All of it is computed, by replay
of a public fault trace or from a fault model; what the paper prints is a dashed line.
"""

import argparse
from pathlib import Path

import numpy as np

from lightrig.harness.report.drawing import Plot, even, tone
from lightrig.harness.report.escaping import text
from lightrig.harness.report.style import page_style, style
from lightrig.suites.claims.infinitehbd.figures import CHARTS, Chart

TITLE = "InfiniteHBD's figures, computed again"
ABOUT = (
    "Lines are means over draws, bands hold 95 % of the draws; where two lines are the same, the "
    "later hides the earlier. Dashed lines upright are published; nothing here was measured."
)


def draw(chart: Chart) -> str:
    """A chart with its legend and what it rests on, as markup."""
    x = np.concatenate([one.x for one in chart.series])
    y = np.concatenate([part for one in chart.series for part in (one.low, one.high)])
    across = even(x.min(), x.max(), chart.x_unit, most=8)
    plot = Plot(620, 330, across, even(min(0.0, y.min()), y.max(), chart.y_unit), left=46)
    for index, one in enumerate(chart.series):
        band = np.concatenate([one.x, one.x[::-1]])
        plot.area(band, np.concatenate([one.low, one.high[::-1]]), index, "lr-band")
        plot.line(one.x, one.y, index)
    for place, caption in chart.published:
        plot.rule(place, caption)
    keys = "".join(
        f'<li><svg class="lr-key"><path class="lr-line {tone(index)}" d="M0 4h26"/></svg>'
        f"{text(one.name)}</li>"
        for index, one in enumerate(chart.series)
    )
    axes = f"{chart.y_label} ({chart.y_unit}) over {chart.x_label}".replace(" (1)", "")
    return (
        f'<section class="lr-card"><h2 class="lr-h2">{text(chart.title)}</h2>'
        f'<p class="lr-about">{text(axes)}. Computed: {text(chart.note)}. '
        f"After {text(chart.figure)}.</p>"
        f'<ul class="lr-legend">{keys}</ul>{plot.svg(chart.title)}</section>'
    )


def main() -> None:
    """Draw what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("chart", nargs="*", help=f"of {', '.join(CHARTS)}; all without any")
    parser.add_argument("--output", type=Path, default=Path("infinitehbd.html"))
    asked = parser.parse_args()
    unknown = [name for name in asked.chart if name not in CHARTS]
    if unknown:
        parser.error(f"found {unknown[0]!r}, expected one of {', '.join(CHARTS)}")
    cards = "".join(draw(CHARTS[name]()) for name in asked.chart or CHARTS)
    asked.output.write_text(
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{text(TITLE)}</title>'
        f'{style(0)}{page_style()}</head><body class="lr-page"><header class="lr-title">'
        f"<h1>{text(TITLE)}</h1><p>{text(ABOUT)}</p></header>"
        f'<main class="lr-report">{cards}</main></body></html>\n',
        encoding="utf-8",
    )
    print(asked.output)


if __name__ == "__main__":
    main()
