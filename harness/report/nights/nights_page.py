"""The page of the nights: the last night and all changes above, every quantity of every lab below.

The page's script shows the numbers of a selected night; they are embedded as JSON.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
from markupsafe import Markup

from lightrig.harness.report.causes import Cause, render_causes
from lightrig.harness.report.markup import number_of
from lightrig.harness.report.nights.cells import Numbers
from lightrig.harness.report.nights.changes_summary import summary
from lightrig.harness.report.nights.lab_section import lab_section
from lightrig.harness.report.nights.last_night import LastNight
from lightrig.harness.report.nights.last_night_section import section
from lightrig.harness.report.nights.overview import Board
from lightrig.harness.report.nights.series import MEDIAN_NEEDS, History
from lightrig.harness.report.nights.trend_figures import LEFT, RIGHT, WIDTH, layers, letters
from lightrig.harness.report.style import page_style, style
from lightrig.harness.report.templates import render_page
from lightrig.harness.report.units import scale
from lightrig.testbeds.intervals import ENDLESS

_STYLE = """
.ln-line,.ln-level,.ln-p99,.ln-change,.ln-at,.ln-event path{fill:none}
.ln-p99{stroke:var(--lr-s2);stroke-width:1.3;stroke-dasharray:1.5 2}
.ln-level{stroke:var(--lr-s1);stroke-width:1.2;opacity:.9}
.ln-drift{stroke:var(--lr-s3);stroke-width:1.6;stroke-dasharray:6 3;fill:none}
.ln-drifts,.ln-chip.ln-drifts{color:var(--lr-s3);border-color:var(--lr-s3);font-weight:600}
.ln-change{stroke:var(--lr-s1);stroke-width:1.4}.ln-direction{fill:var(--lr-s1)}
.lr-svg .ln-far{fill:var(--lr-fail);font-weight:700;font-size:10px}
.ln-event path{stroke:var(--lr-muted);stroke-width:1;stroke-dasharray:1 2.5}
.lr-svg .ln-event text{fill:var(--lr-ink);font-weight:600;paint-order:stroke;
 stroke:var(--lr-ground);stroke-width:3px}
.ln-none{fill:var(--lr-grid)}
.ln-at{stroke:var(--lr-ink);stroke-width:1;opacity:.7}
.ln-by{color:var(--lr-fail);font-weight:600;white-space:nowrap}
.ln-when{font-size:15px;margin:14px 0 4px;border-top:1px solid var(--lr-grid);padding-top:10px}
.ln-problems{list-style:none;padding:0}.ln-problems li{margin:6px 0;overflow-wrap:anywhere}
.ln-apart{margin:6px 0 2px}
.ln-reason{margin:2px 0 0;white-space:pre-line}
.ln-group ul{margin:.2em 0 .5em;padding-left:1.3em}
.ln-events{list-style:none;padding:0;margin:4px 0 8px}
.ln-letter{display:inline-block;min-width:1.2em}
.ln-nights{margin:2px 0 10px}.ln-nights ol{list-style:none;padding:0;columns:18em;margin:6px 0}
.ln-nights li{break-inside:avoid;overflow-wrap:anywhere}
.ln-legend{font-size:12.5px;color:var(--lr-muted);margin:0 2px 12px}
.ln-key{width:30px;height:16px;flex:none}
.ln-controls{position:sticky;top:0;z-index:2;background:var(--lr-ground);margin:0 0 14px;
 border:1px solid var(--lr-line);border-radius:8px;padding:8px 14px}
.ln-controls[hidden]{display:none}
#ln-find{width:min(20em,52vw)}#ln-count{color:var(--lr-muted)}
.ln-quantity{border-top:1px solid var(--lr-grid);scroll-margin-top:70px}
.ln-quantity>summary{display:grid;grid-template-columns:minmax(0,21em) 132px 14em minmax(0,1fr);
 gap:2px 14px;align-items:center;padding:4px 2px;cursor:pointer;list-style:none;
 overflow-wrap:anywhere}
.ln-quantity>summary::-webkit-details-marker{display:none}
.ln-quantity>summary:hover{background:var(--lr-soft)}
.ln-quantity>summary>b::before{content:"▸";display:inline-block;width:1.1em;color:var(--lr-muted)}
.ln-quantity[open]>summary>b::before{content:"▾"}
.ln-quantity>summary .lr-svg{width:132px}
.ln-chip{display:inline-block;border:1px solid var(--lr-s1);border-radius:3px;padding:0 7px;
 font-weight:600;font-size:12.5px;color:var(--lr-fail);white-space:nowrap}
.ln-figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(340px,100%),1fr));
 gap:14px 26px;padding:6px 0 18px}
.ln-figures figure{margin:0;min-width:0;scroll-margin-top:70px;display:flex;flex-direction:column}
.ln-figures figcaption{flex:1}.ln-plot,.ln-told{flex:none}
.ln-figures figure:target{outline:2px solid var(--lr-s1);outline-offset:6px;border-radius:2px}
.ln-figures figcaption{overflow-wrap:anywhere}
.ln-figures .lr-number{display:inline;min-width:0}
.ln-plot{touch-action:pan-y;cursor:crosshair;max-width:470px}
.ln-plot:focus-visible{outline:2px solid var(--lr-s0);outline-offset:2px}
.ln-told{display:block;font-size:12.5px;min-height:2.9em;overflow-wrap:anywhere}
.ln-changes{list-style:none;padding:0;margin:4px 0 8px}.ln-group .ln-changes{padding:0}
.ln-changes li{display:grid;grid-template-columns:minmax(0,17em) minmax(0,22em) minmax(0,1fr) 13em;
 gap:0 16px;padding:3px 0;border-top:1px solid var(--lr-grid);align-items:baseline;
 overflow-wrap:anywhere}
.ln-levels>span{white-space:nowrap}
@media (max-width:900px){.ln-changes li{grid-template-columns:minmax(0,1fr);padding:6px 0}}
@media (max-width:600px){.ln-by{white-space:normal}.ln-told{min-height:0}
.ln-controls{position:static}
.ln-quantity>summary{grid-template-columns:132px minmax(0,1fr)}
.ln-quantity>summary>b{grid-column:1/-1}
.ln-quantity,.ln-figures figure{scroll-margin-top:8px}}
"""


def nights_page(
    history: History,
    boards: Sequence[Board],
    last: Sequence[LastNight],
    causes: Sequence[tuple[Board, Sequence[Cause]]] = (),
) -> str:
    """Return the whole page as HTML that needs nothing from the network.

    last: the newest night of each testbed. causes: the suspected causes, which stand first.

    Its links lead to `runs/<run>/report.html` beside it.
    """
    testbeds = list(dict.fromkeys(board.lab.testbed for board in boards))
    dates = dict.fromkeys(str(history.date(night)) for night in (0, history.nights - 1))
    about = (
        f"{number_of(history.nights, 'night')} of {number_of(len(testbeds), 'testbed')}, "
        f"{' to '.join(dates)}"
    )
    return render_page(
        "nights/page",
        title=f"Nights of {', '.join(testbeds) or 'no testbed'}, until {list(dates)[-1]}",
        about=about,
        style=style(0) + page_style(_STYLE),
        boards=boards,
        causes=render_causes(
            [(board.lab.testbed, board.lab.simulated, found) for board, found in causes]
        ),
        last_night=section(last, boards),
        changes=summary(boards),
        legend=_LEGEND,
        labs=Markup().join(map(lab_section, boards)),
        data=_script_data(history, boards),
        script=_script(),
    )


_LEGEND = (
    (
        '<path class="lr-band lr-k0" d="M0 2H30V12H0z"/><path class="lr-line lr-k0" d="M0 7H30"/>',
        "median of a night in its 95 % interval",
    ),
    ('<path class="ln-p99" d="M0 7H30"/>', "p99, from 299 samples a night on"),
    ('<path class="lr-rule" d="M0 7H30"/>', "limit"),
    (
        '<path class="ln-change" d="M15 5V14"/><path class="ln-direction" d="M15 -1l-4 7h8z"/>',
        "change of level",
    ),
    ('<path class="ln-level" d="M0 7H30"/>', "level between changes"),
    ('<path class="ln-drift" d="M0 12L30 2"/>', "drift"),
    (
        '<g class="ln-event"><path d="M15 0V14"/></g>',
        "event: new firmware, fiber or description",
    ),
    ('<path class="ln-none" d="M6 0H24V14H6z"/>', "nights without data"),
)


@functools.cache
def _script() -> str:
    found = resources.files("lightrig.harness.report.nights").joinpath("nights.js")
    return found.read_text(encoding="utf-8")


# ------------------------------------------------------------------- data of the script


def _script_data(history: History, boards: Sequence[Board]) -> str:
    """Return JSON that can be the content of a script element."""
    document = {
        "dates": [str(history.date(night)) for night in range(history.nights)],
        "plot": {"left": LEFT, "right": RIGHT, "width": WIDTH},
        "needed": MEDIAN_NEEDS,
        "labs": [_lab_data(board) for board in boards],
        "figures": {name: one for board in boards for name, one in _figure_data(board).items()},
    }
    # Nothing inside may end the element.
    return json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")


def _lab_data(board: Board) -> Mapping[str, Any]:
    named = zip(letters(len(board.events)), board.events, strict=True)
    return {
        "simulated": board.lab.simulated,
        "runs": [[[run, run in board.reported] for run in runs] for runs in board.lab.runs],
        "events": [[event.night, letter, event.text] for letter, event in named],
    }


def _figure_data(board: Board) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for quantity in board.quantities:
        if len(quantity.series) > len(quantity.drawn):
            least, _, middle, _, most = layers(quantity.series)
            numbers = _column_data(quantity.series[0].unit, median=middle, lower=least, upper=most)
            found[board.fold(quantity.name)] = {**numbers, "of": len(quantity.series)}
    for number, series in board.figures.items():
        p99 = (
            {"p99": series.p99, "bound": series.p99_upper} if np.isfinite(series.p99).any() else {}
        )
        numbers = _column_data(
            series.unit, median=series.median, lower=series.lower, upper=series.upper, **p99
        )
        n = series.n.astype(int).tolist()
        found[board.anchor(number)] = {**numbers, "n": n}
    return {name: {**one, "lab": board.index} for name, one in found.items()}


def _column_data(unit: str, **columns: Numbers) -> dict[str, Any]:
    """Return each column in a common unit, four digits; None where there is no number."""
    greatest = max(_greatest(column) for column in columns.values())
    size, name = scale(unit, greatest)
    scaled: dict[str, Any] = {
        title: [
            float(f"{value / size:.4g}") if abs(value) < ENDLESS else None
            for value in column.tolist()
        ]
        for title, column in columns.items()
    }
    return {**scaled, "unit": name}


def _greatest(column: Numbers) -> float:
    return float(np.max(np.abs(column), where=np.isfinite(column), initial=0.0))
