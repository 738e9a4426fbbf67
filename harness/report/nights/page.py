"""The page of the nights: what changed above, every quantity of every lab below."""

import functools
from collections.abc import Sequence
from importlib import resources

from harness.report.markup import text
from harness.report.nights.board import Board
from harness.report.nights.card import card
from harness.report.nights.data import data
from harness.report.nights.series import History
from harness.report.nights.style import STYLE
from harness.report.nights.summary import summary
from harness.report.nights.words import count
from harness.report.style import page_style, style


def page(history: History, boards: Sequence[Board]) -> str:
    """The whole page as HTML that needs nothing from the network.

    Its links lead to `runs/<run>/report.html` beside it.
    """
    testbeds = len({board.lab.testbed for board in boards})
    about = (
        f"{count(history.nights, 'night', 'nights')} of {count(testbeds, 'testbed', 'testbeds')}, "
        f"{history.first} to {history.date(history.nights - 1)}"
    )
    cards = "".join(map(card, boards))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Nights</title>'
        f'{style(0)}{page_style(STYLE)}</head><body class="lr-page"><header class="lr-title">'
        f'<h1>Nights</h1><p>{text(about)}</p></header><main class="lr-report">'
        f"{summary(boards)}{_legend()}{_controls(boards)}{cards}</main>"
        f'<script id="ln-data" type="application/json">{data(history, boards)}</script>'
        f"<script>{_script()}</script></body></html>\n"
    )


def _controls(boards: Sequence[Board]) -> str:
    labs = "".join(
        f'<option value="{board.index}">{text(board.lab.testbed)}'
        f"{' (simulated)' if board.lab.simulated else ''}</option>"
        for board in boards
    )
    return (
        '<form class="lr-controls ln-controls" id="ln-controls" role="search" hidden>'
        '<label>find <input id="ln-find" type="search" placeholder="quantity or subject"></label>'
        f'<label>testbed <select id="ln-lab"><option value="">all</option>{labs}</select></label>'
        '<label><input id="ln-moved" type="checkbox"> only changes</label>'
        '<button type="button" id="ln-fold">unfold all in sight</button>'
        '<span id="ln-count" role="status"></span></form>'
    )


_LEGEND = (
    (
        '<path class="lr-band lr-k0" d="M0 2H30V12H0z"/><path class="lr-line lr-k0" d="M0 7H30"/>',
        "median of a night in its 95 % interval",
    ),
    ('<path class="ln-p99" d="M0 7H30"/>', "p99, from 299 samples a night on"),
    ('<path class="lr-rule" d="M0 7H30"/>', "limit"),
    (
        '<path class="ln-change" d="M15 5V14"/><path class="ln-way" d="M15 -1l-4 7h8z"/>',
        "change of level",
    ),
    ('<path class="ln-level" d="M0 7H30"/>', "level between changes"),
    ('<path class="ln-drift" d="M0 12L30 2"/>', "drift"),
    (
        '<g class="ln-event"><path d="M15 0V14"/></g>',
        "event: a firmware, a fiber, a description that is new",
    ),
    ('<path class="ln-none" d="M6 0H24V14H6z"/>', "nights without data"),
)


def _legend() -> str:
    items = "".join(
        '<li><svg class="ln-key" viewBox="0 -1 30 16" aria-hidden="true">'
        f"{drawn}</svg> {words}</li>"
        for drawn, words in _LEGEND
    )
    return f'<ul class="lr-legend ln-legend">{items}</ul>'


@functools.cache
def _script() -> str:
    found = resources.files("harness.report.nights").joinpath("nights.js")
    return found.read_text(encoding="utf-8")
