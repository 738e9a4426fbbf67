"""What stands around a plot: its title, whether it is simulated, and which line is which."""

from __future__ import annotations

from collections.abc import Iterable

from harness.report.drawing import tone
from harness.report.markup import mark, text


def key(index: int) -> str:
    """A short line in the colour and stroke of the series of that number."""
    return (
        '<svg class="lr-key" viewBox="0 0 26 8" aria-hidden="true">'
        f'<path class="lr-line {tone(index)}" d="M0 4H26"/></svg>'
    )


def keys(series: Iterable[tuple[int, str]]) -> str:
    """Which line is which: a legend of numbers and names."""
    items = "".join(f"<li>{key(n)} <span>{text(name)}</span></li>" for n, name in series)
    return f'<ul class="lr-legend">{items}</ul>'


def captioned(title: str, simulated: bool, about: str, drawn: str, kind: str = "lr-wide") -> str:
    """A figure with its title, whether it is simulated, and what it shows."""
    return (
        f'<figure class="{kind}">'
        f"<figcaption><b>{text(title)}</b> {mark(simulated)} {about}</figcaption>"
        f'<div class="lr-scroll" tabindex="0" role="region" aria-label="{text(title)}">{drawn}'
        "</div></figure>"
    )
