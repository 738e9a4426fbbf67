"""A run while it goes on, as a page that loads itself again: a file, no server."""

from __future__ import annotations

import os
from pathlib import Path

from lightrig.harness.record.progress import Progress
from lightrig.harness.report.style import page_style, style
from lightrig.harness.report.templates import render_page

_KINDS = {"passed": "pass", "failed": "fail", "error": "fail", "xpassed": "fail"}


def live_page(progress: Progress, refresh_s: int) -> str:
    """Return the page; it is loaded again every `refresh_s` seconds while the run goes on."""
    state = "is running" if progress.goes_on else "has ended"
    return render_page(
        "live_page",
        title=f"{progress.run} {state}",
        state=state,
        style=style(0) + page_style(),
        progress=progress,
        kinds=_KINDS,
        refresh_s=refresh_s,
    )


def write_live_page(progress: Progress, path: Path, refresh_s: int) -> None:
    """Write the page to `path`, whole or not at all; raises `OSError`."""
    write_whole(live_page(progress, refresh_s), path)


def write_whole(page: str, path: Path) -> None:
    """Write a page that is loaded while it is written, whole or not at all; raises `OSError`."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.write_text(page, encoding="utf-8")
    draft.replace(path)
