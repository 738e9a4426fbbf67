"""Figures in a page, grouped by the sections of the paper."""

from collections.abc import Iterable, Mapping

from markupsafe import Markup

from lightrig.harness.claims.figures.drawing import PRINTED, legend_text, notes, plot_of
from lightrig.harness.claims.figures.drawn import DrawnFigure
from lightrig.harness.claims.figures.table import csv_of
from lightrig.harness.claims.published import Published
from lightrig.harness.report.style import page_style, style
from lightrig.harness.report.templates import render_macro, render_page

STYLE = """
.lf-panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(340px,100%),1fr));
 gap:14px 22px;align-items:start}
.lf-panels figure{margin:0;min-width:0}.lf-panels .lr-svg{max-width:520px}
.lf-figure{border-top:1px solid var(--lr-grid);padding:8px 0 12px}.lf-title{margin:.3em 0}
.lf-notes{font-size:12.5px;color:var(--lr-muted);padding-left:1.2em;overflow-wrap:anywhere}
"""
_MOST_TEXT = 200_000
"""Characters of CSV that a page shows of one figure; the file beside it has all."""


def figures_section(figures: Iterable[DrawnFigure]) -> Markup:
    """Return figures as sections, for a page that has the report's style and `STYLE`."""
    groups: dict[str, list[Mapping[str, object]]] = {}
    for one in figures:
        groups.setdefault(one.figure.part.section, []).append(_shown(one))
    return render_macro("figures", "figures", groups.items())


def figures_page(published: Published, figures: Iterable[DrawnFigure]) -> str:
    """Return a page of figures that needs nothing from the network."""
    return render_page(
        "page",
        title=f"Figures of {published.system}",
        about=published.paper,
        style=style(0) + page_style(STYLE),
        main=figures_section(figures),
    )


def _shown(one: DrawnFigure) -> Mapping[str, object]:
    """Return what the template shows of a figure, by its names there."""
    names = one.names()
    panels = [
        {
            "title": panel.panel.part.title,
            "drawing": Markup(plot_of(panel, names).svg(_label(one, panel.panel.part.title)))  # noqa: S704 - drawn here
            if panel.series
            else "",
            "legend": [(names.index(each.curve.name), legend_text(each)) for each in panel.series],
            "printed": PRINTED if panel.compared else "",
        }
        for panel in one.shown_panels
    ]
    csv = csv_of([one]) if one.is_drawn else ""
    return {
        "number": one.figure.number,
        "title": one.figure.part.title,
        "states": one.figure.part.states,
        "simulated": one.simulated,
        "panels": panels,
        "notes": list(notes(one)),
        "csv": csv if len(csv) < _MOST_TEXT else "",
    }


def _label(one: DrawnFigure, panel: str) -> str:
    return f"Figure {one.figure.number}, {panel}: {one.figure.part.title}"
