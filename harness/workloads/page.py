"""An answer of `lightrig simulate` as a page that needs nothing from the network."""

from __future__ import annotations

from math import log10
from pathlib import Path

from markupsafe import Markup

from lightrig.harness.report.figures import Line, curve
from lightrig.harness.report.style import page_style, style
from lightrig.harness.report.templates import render_page
from lightrig.harness.workloads.answer import Answer

_STYLE = ".lw td:first-child{color:var(--lr-muted);padding-right:1.5em;white-space:nowrap}"


def write_page(path: Path, answer: Answer) -> Path:
    """Write the lines of an answer as a table, and its curve as a figure; raises `OSError`."""
    title, *lines = answer.lines()
    rows = Markup("").join(
        Markup("<tr><td>{}</td><td>{}</td></tr>").format(line[2:12].strip(), line[12:])
        for line in lines
    )
    main = Markup('<section><table class="lr-table lw"><tbody>{}</tbody></table></section>').format(
        rows
    )
    page = render_page(
        "page",
        title=title,
        about="Computed by lightrig simulate; nothing outside was contacted.",
        style=style(0) + page_style(_STYLE),
        main=main + _figure(answer),
    )
    path.write_text(page, encoding="utf-8")
    return path


def _figure(answer: Answer) -> Markup:
    """Return the step by decades of the switching time; nothing for fewer than two of them."""
    points = [(time, step) for time, step in answer.curve if time]
    if len(points) < 2:
        return Markup("")
    nothing = [float("nan")] * len(points)
    times, steps = [log10(time / 1e9) for time, _ in points], [step for _, step in points]
    drawn = curve(
        [Line("step", times, steps, nothing, nothing)],
        x="switching time, 10^x s",
        x_unit="",
        y_unit="ns",
        label="Time of a step by the switching time",
    )
    return Markup("<section><h2>Step by switching time</h2>{}</section>").format(
        Markup(drawn)  # noqa: S704 - of numbers alone
    )
