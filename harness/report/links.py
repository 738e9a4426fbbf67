"""A plan as a small picture: servers as dots, links as lines, parallel ones apart."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from harness.report.markup import text
from testbeds import Link, Testbed

_WIDTH, _HEIGHT, _APART = 190.0, 150.0, 9.0


def link_diagram(testbed: Testbed, plan: str, kind: str) -> str:
    """The links that `plan` closes between the servers of `testbed`, as SVG.

    kind: the classes of its lines.
    """
    links = testbed.links(plan)
    places = _places(list(testbed.servers))
    between: defaultdict[tuple[str, str], list[Link]] = defaultdict(list)
    for link in links:
        between[link.a.owner, link.b.owner].append(link)
    lines = "".join(
        _lines(places, ends, parallel, kind)
        for ends, parallel in between.items()
        if set(ends) <= set(places)
    )
    label = f"Links of plan {plan}: {len(links)}"
    return (
        f'<svg class="lr-svg lr-links" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" '
        f'aria-label="{text(label)}">{lines}{"".join(_dots(places))}</svg>'
    )


def _places(servers: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Servers around an ellipse, clockwise, the first at the upper left; two stand side by side."""
    middle_x, middle_y = _WIDTH / 2, _HEIGHT / 2
    # Four stand in the corners, where there is more room.
    wide, high = (88.0, 84.0) if len(servers) == 4 else (66.0, 64.0)
    first = math.pi if len(servers) == 2 else -0.75 * math.pi
    places = {}
    for index, server in enumerate(servers):
        angle = 2 * math.pi * index / max(len(servers), 1) + first
        places[server] = (
            middle_x + math.cos(angle) * wide,
            middle_y + math.sin(angle) * high,
        )
    return places


def _lines(
    places: dict[str, tuple[float, float]],
    ends: tuple[str, str],
    parallel: Sequence[Link],
    kind: str,
) -> str:
    (ax, ay), (bx, by) = places[ends[0]], places[ends[1]]
    length = math.hypot(bx - ax, by - ay)
    drawn = []
    for index, link in enumerate(parallel):
        if length == 0:
            far = 16 + 7 * index
            path = f"M{ax:.1f} {ay:.1f}c{-far} {-far} {far} {-far} 0 0"
        else:
            # A quadratic curve reaches half as far as its control point.
            aside = 2 * _APART * (index - (len(parallel) - 1) / 2) / length
            x = (ax + bx) / 2 - (by - ay) * aside
            y = (ay + by) / 2 + (bx - ax) * aside
            path = f"M{ax:.1f} {ay:.1f}Q{x:.1f} {y:.1f} {bx:.1f} {by:.1f}"
        drawn.append(f'<path class="{kind}" d="{path}"><title>{text(link)}</title></path>')
    return "".join(drawn)


def _dots(places: dict[str, tuple[float, float]]) -> list[str]:
    many = len(places) > 10
    dots = []
    for server, (x, y) in places.items():
        name = server if len(server) <= 9 else f"{server[:4]}…{server[-4:]}"
        if many:
            name = server[-3:]
        half = 4 + 2.9 * len(name)
        dots.append(
            f'<g><rect class="lr-node" x="{x - half:.1f}" y="{y - 8:.1f}" '
            f'width="{2 * half:.1f}" height="16" rx="4"/><text class="lr-name" '
            f'x="{x:.1f}" y="{y + 3:.1f}">{text(name)}</text><title>{text(server)}</title></g>'
        )
    return dots
