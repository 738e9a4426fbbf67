"""A whole page: what was measured above, every test below, one file that needs no network.

The tests travel as pytest-html made them, compressed, and the page's own script draws those in
sight: five thousand tests with their logs open in the time of a hundred.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from harness.report.markup import test_link, text
from harness.report.style import page_style

_ORDER = ("error", "failed", "rerun", "xpassed", "xfailed", "skipped", "passed")
_LEVEL = 4


@dataclass(frozen=True, slots=True)
class Results:
    """The tests of a page.

    outcomes: how many tests ended how, by pytest-html's words: "passed", "failed", "error", ...
    data: JSON as pytest-html keeps it: `tests` by node id, `environment`.
    added: by node id, what Lightrig knows of a test: `command` repeats it, `why` says in a
        sentence why it did not pass, `wire` holds the last lines of each instrument's wire,
        `card` is the id of what it measured on this page. Each may be absent.
    """

    outcomes: Mapping[str, int]
    data: str
    added: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def document(title: str, about: str, body: str, results: Results, css: str = "") -> str:
    """The page.

    about: a line of markup below the title. body: markup, such as `sections`. css: of the
    person who asked for the page; it comes last.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{text(title)}</title>{page_style(css)}</head>"
        f'<body class="lr-page"><header class="lr-title"><h1>{text(title)}</h1>'
        f'<p>{about}</p></header><main class="lr-report">{_overview(results)}{body}'
        f"{_tests(results)}</main>"
        f'<script id="lr-data" type="text/plain">{_packed(results)}</script>'
        f"<script>{_script()}</script></body></html>\n"
    )


def added(outcome: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """What a page shows of a test beside its log, from the `details` that the journal keeps."""
    found = {name: details[name] for name in ("command", "why", "wire") if details.get(name)}
    if outcome in {"failed", "error"}:
        found["wrong"] = True
    return found


def _overview(results: Results) -> str:
    counts = "".join(
        f'<li><span class="lr-outcome lr-o-{text(outcome)}">{count:,} {text(outcome)}</span></li>'
        for outcome, count in _counted(results)
    )
    wrong = [
        f'<li><a href="{test_link(name)}">{text(name)}</a> '
        f'<span class="lr-with">{text(str(added["why"]).partition(chr(10))[0])}</span></li>'
        for name, added in results.added.items()
        if added.get("wrong")
    ]
    most = 8
    rest = f"<li>and {len(wrong) - most:,} more</li>" if len(wrong) > most else ""
    found = f'<ul class="lr-wrong">{"".join(wrong[:most])}{rest}</ul>' if wrong else ""
    return (
        '<nav class="lr-overview" aria-label="Outcomes"><ul class="lr-counts">'
        f'{counts or "<li>No test has ended.</li>"}<li><a href="#lr-tests">to the tests</a></li>'
        f"</ul>{found}</nav>"
    )


def _counted(results: Results) -> list[tuple[str, int]]:
    known = {outcome: place for place, outcome in enumerate(_ORDER)}
    found = [(outcome, count) for outcome, count in results.outcomes.items() if count]
    return sorted(found, key=lambda pair: known.get(pair[0], -1))


def _tests(results: Results) -> str:
    filters = "".join(
        f'<label class="lr-filter lr-o-{text(outcome)}"><input type="checkbox" checked '
        f'data-outcome="{text(outcome)}"> {count:,} {text(outcome)}</label>'
        for outcome, count in _counted(results)
    )
    return (
        '<section class="lr-card" id="lr-tests"><h2 class="lr-h2">Tests</h2>'
        "<noscript><p>The list of tests needs JavaScript; all above does not.</p></noscript>"
        f'<div class="lr-controls"><div class="lr-filters">{filters}</div>'
        '<label>find <input id="lr-search" type="search" placeholder="part of a name"></label>'
        '<label>order <select id="lr-order"><option value="outcome">worst first</option>'
        '<option value="run">as run</option><option value="duration">longest first</option>'
        '<option value="name">by name</option></select></label>'
        '<button type="button" id="lr-unfold">unfold or fold all in sight</button>'
        '<span id="lr-shown" role="status">unpacking</span></div>'
        '<div id="lr-list"></div><button type="button" id="lr-more" hidden>more</button>'
        "</section>"
        '<details class="lr-card"><summary>Environment</summary>'
        '<dl class="lr-facts" id="lr-environment"></dl></details>'
    )


def _packed(results: Results) -> str:
    added = json.dumps(results.added, separators=(",", ":"))
    data = f'{{"html":{results.data},"added":{added}}}'.encode()
    # Without a time, so that equal runs make equal pages.
    return base64.b64encode(gzip.compress(data, _LEVEL, mtime=0)).decode()


@functools.cache
def _script() -> str:
    return resources.files("harness.report").joinpath("page.js").read_text(encoding="utf-8")
