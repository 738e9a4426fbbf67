"""A run while it goes on, as a page that loads itself again: a file, no server."""

from __future__ import annotations

import os
from pathlib import Path

from lightrig.harness.record.progress import Progress
from lightrig.harness.report.escaping import text
from lightrig.harness.report.markup import row, table
from lightrig.harness.report.style import page_style, style

_KINDS = {"passed": "pass", "failed": "fail", "error": "fail", "xpassed": "fail"}


def live_page(progress: Progress, refresh_s: int) -> str:
    """Return the page; it is loaded again every `refresh_s` seconds while the run goes on."""
    again = f'<meta http-equiv="refresh" content="{refresh_s}">' if progress.goes_on else ""
    state = "is running" if progress.goes_on else "has ended"
    report = (
        "" if progress.goes_on else f' <a href="runs/{text(progress.run)}/report.html">report</a>'
    )
    counts = " ".join(
        f'<span class="lr-verdict lr-{_KINDS.get(outcome, "not")}">{count:,} {text(outcome)}</span>'
        for outcome, count in sorted(progress.outcomes.items())
    )
    problems = [
        row(
            (
                f'<span class="lr-verdict lr-{_KINDS.get(each.outcome, "not")}">'
                f"{text(each.outcome)}</span>",
                text(each.nodeid),
                text(str(each.details.get("why", "")).partition("\n")[0]),
            )
        )
        for each in reversed(progress.problems)
    ]
    listed = table(("outcome", "test", "why"), problems, "Problems") if problems else ""
    latest = f"<p>last ended: {text(progress.latest.nodeid)}</p>" if progress.latest else ""
    measured = [row((text(name), f"{rows:,}")) for name, rows in progress.rows.items()]
    rows = table(("testbed", "rows"), measured, "Rows") if measured else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">{again}'
        f"<title>{text(progress.run)} {state}</title>{style(0)}{page_style()}</head>"
        f'<body class="lr-page"><header class="lr-title"><h1>Run {text(progress.run)}</h1>'
        f'<p>{state}{report}</p></header><main class="lr-report"><section class="lr-card">'
        f"<p>{counts or 'No test has ended.'}</p>{latest}{listed}{rows}</section></main>"
        "</body></html>\n"
    )


def write_live_page(progress: Progress, path: Path, refresh_s: int) -> None:
    """Write the page to `path`, whole or not at all; raises `OSError`."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.write_text(live_page(progress, refresh_s), encoding="utf-8")
    draft.replace(path)
