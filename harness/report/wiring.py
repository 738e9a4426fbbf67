"""Drawings of a testbed: the wiring with the circuits of each plan, and the links of a plan.

The wiring is read from left to right, as light travels: transmitters, switches, receivers. Each
port is on both sides, since light leaves it by one fiber and arrives by another. Switch ports
are placed by their fibers, not by number, so that fibers are level and circuits show the effect
of a plan.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from lightrig.harness.report.drawing import tone
from lightrig.harness.report.escaping import text
from lightrig.harness.report.style import page_style, style
from lightrig.harness.report.templates import render_macro, render_page
from lightrig.testbeds import Link, Plan, Port, Testbed

_ROW, _GAP, _HEAD = 14.0, 8.0, 18.0
_BOX, _SWITCH_LEFT, _SWITCH_RIGHT, _WIDTH = 128.0, 236.0, 524.0, 760.0
_LABEL = 30.0
_LINKS_WIDTH, _LINKS_HEIGHT, _LINK_DISTANCE = 190.0, 150.0, 9.0


def write_wiring(testbed: Testbed, path: Path) -> None:
    """Write the wiring and plans of `testbed` as a page; raise `OSError` if that fails."""
    page = render_page(
        "wiring_page",
        title=testbed.name,
        about=testbed.about,
        style=style(len(testbed.plans)) + page_style(),
        wiring=wiring_section(testbed, "testbed"),
    )
    path.write_text(page, encoding="utf-8")


def wiring_section(testbed: Testbed, prefix: str) -> Markup:
    """Return the wiring of `testbed` with a choice of plans; `prefix` begins all its ids."""
    plans = []
    for index, (name, plan) in enumerate(testbed.plans.items()):
        links = len(testbed.links(plan))
        # Circuits between instruments are no links, and have no picture.
        drawn = _link_diagram(testbed, name, f"lr-link {tone(index)}") if links else ""
        plans.append((name, links, len(plan), drawn))
    fibers, drawn = len(testbed.fibers), _wiring_diagram(testbed)
    return render_macro("wiring", "wiring", prefix, fibers, plans, drawn)


# ---------------------------------------------------------------------------------- wiring


@dataclass
class _Layout:
    """Heights of ports in pixels, and the boxes from top to bottom."""

    left: dict[Port, float] = field(default_factory=dict)
    right: dict[Port, float] = field(default_factory=dict)
    ends: dict[str, tuple[float, float]] = field(default_factory=dict)
    switches: dict[str, tuple[float, float]] = field(default_factory=dict)
    height: float = 0.0


def _wiring_diagram(testbed: Testbed) -> str:
    """Draw fibers and switches of `testbed` as SVG; circuits of plan i have class `lr-p<i>`."""
    layout = _layout(testbed)
    parts = [_end_boxes(layout), _switch_boxes(testbed, layout), _fibers(testbed, layout)]
    for index, plan in enumerate(testbed.plans.values()):
        parts.append(_circuits(plan, layout, index))
    label = f"Wiring of {testbed.name}: {len(testbed.fibers)} fibers"
    return (
        f'<svg class="lr-svg" style="min-width:640px" viewBox="0 0 {_WIDTH:g} '
        f'{layout.height:g}" role="img" aria-label="{text(label)}">{"".join(parts)}</svg>'
    )


def _layout(testbed: Testbed) -> _Layout:
    layout = _Layout()
    y = _HEAD
    for owner, ports in _ends(testbed).items():
        top = y
        for port in ports:
            layout.left[port] = layout.right[port] = y + _ROW / 2
            y += _ROW
        layout.ends[owner] = (top, y)
        y += _GAP
    bottom = y
    single = len(testbed.switches) == 1
    y = _HEAD
    for name in testbed.switches:
        top = y
        into = [f for f in testbed.fibers if f.sink.owner == name]
        out = [f for f in testbed.fibers if f.source.owner == name]
        for fibers, side, here in (
            (sorted(into, key=lambda f: layout.left.get(f.source, 0.0)), layout.right, "sink"),
            (sorted(out, key=lambda f: layout.right.get(f.sink, 0.0)), layout.left, "source"),
        ):
            for place, fiber in enumerate(fibers):
                far = layout.left.get(fiber.source) if here == "sink" else None
                far = layout.right.get(fiber.sink) if here == "source" else far
                straight = single and far is not None
                side[getattr(fiber, here)] = far if straight and far else top + _ROW * (place + 0.5)
        y = bottom - _GAP if single else top + _ROW * max(len(into), len(out), 1)
        layout.switches[name] = (top, y)
        y += _HEAD + _GAP
    layout.height = max(bottom, y - _HEAD)
    return layout


def _ends(testbed: Testbed) -> Mapping[str, list[Port]]:
    """Return the ports of servers, then of instruments, by owner."""
    found: dict[str, list[Port]] = {}
    for spec in testbed.nic_ports:
        found.setdefault(spec.port.owner, []).append(spec.port)
    for fiber in testbed.fibers:
        for port in (fiber.source, fiber.sink):
            if port.owner not in testbed.switches and port not in found.get(port.owner, []):
                found.setdefault(port.owner, []).append(port)
    return found


def _end_boxes(layout: _Layout) -> str:
    parts = [
        _label(_BOX / 2, "transmit", "middle"),
        _label(_WIDTH - _BOX / 2, "receive", "middle"),
    ]
    for owner, (top, bottom) in layout.ends.items():
        middle = (top + bottom) / 2 + 3
        for x, name_x, anchor in ((0.0, 7.0, "start"), (_WIDTH - _BOX, _WIDTH - 7, "end")):
            parts.append(_box(x, top, _BOX, bottom - top))
            parts.append(
                f'<text class="lr-name" style="text-anchor:{anchor}" x="{name_x:g}" '
                f'y="{middle:g}">{text(owner)}</text>'
            )
    owners = set(layout.ends)
    for ports, x, anchor in ((layout.left, _BOX - 5, "end"), (layout.right, _WIDTH - _BOX + 5, "")):
        for port, y in ports.items():
            if port.owner in owners:
                parts.append(_label(x, port.name, anchor or "start", y + 3))
    return "".join(parts)


def _switch_boxes(testbed: Testbed, layout: _Layout) -> str:
    parts = []
    for name, (top, bottom) in layout.switches.items():
        spec = testbed.switches[name]
        middle = (_SWITCH_LEFT + _SWITCH_RIGHT) / 2
        parts.append(_box(_SWITCH_LEFT, top, _SWITCH_RIGHT - _SWITCH_LEFT, bottom - top))
        size = f"{spec.ingress_count}x{spec.egress_count}"
        parts.append(
            f'<text class="lr-name" x="{middle:g}" y="{top - 5:g}">{text(name)} '
            f"({text(spec.model)}, {text(spec.kind)} {size})</text>"
        )
        for ports, x, anchor in (
            (layout.right, _SWITCH_LEFT + 5, "start"),
            (layout.left, _SWITCH_RIGHT - 5, "end"),
        ):
            parts += [
                _label(x, port.name, anchor, y + 3)
                for port, y in ports.items()
                if port.owner == name
            ]
    return "".join(parts)


def _fibers(testbed: Testbed, layout: _Layout) -> str:
    drawn = []
    for fiber in testbed.fibers:
        if fiber.source not in layout.left or fiber.sink not in layout.right:
            continue
        from_switch = fiber.source.owner in testbed.switches
        to_switch = fiber.sink.owner in testbed.switches
        start = _SWITCH_RIGHT if from_switch else _BOX
        end = _SWITCH_LEFT if to_switch else _WIDTH - _BOX
        path = _curve(start, layout.left[fiber.source], end, layout.right[fiber.sink])
        loss = f", {fiber.loss_db:g} dB" if fiber.loss_db else ""
        drawn.append(f'<path class="lr-fiber" d="{path}"><title>{text(fiber)}{loss}</title></path>')
    return "".join(drawn)


def _circuits(plan: Plan, layout: _Layout, index: int) -> str:
    drawn = []
    for switch, circuits in plan.circuits.items():
        for circuit in sorted(circuits):
            start = layout.right.get(Port(switch, str(circuit.ingress)))
            end = layout.left.get(Port(switch, str(circuit.egress)))
            if start is None or end is None:
                continue
            path = _curve(_SWITCH_LEFT + _LABEL, start, _SWITCH_RIGHT - _LABEL, end)
            name = text(f"{switch} {circuit}")
            drawn.append(f'<path class="lr-circuit" d="{path}"><title>{name}</title></path>')
    return f'<g class="lr-of lr-p{index} {tone(index)}">{"".join(drawn)}</g>'


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    if y == to_y:
        return f"M{x:g} {y:g}H{to_x:g}"
    half = (x + to_x) / 2
    return f"M{x:g} {y:g}C{half:g} {y:g} {half:g} {to_y:g} {to_x:g} {to_y:g}"


def _box(x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="lr-box" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>'
    )


def _label(x: float, label: str, anchor: str, y: float = 12.0) -> str:
    return (
        f'<text class="lr-word" style="text-anchor:{anchor}" x="{x:g}" y="{y:g}">'
        f"{text(label)}</text>"
    )


# ----------------------------------------------------------------------------------- links


def _link_diagram(testbed: Testbed, plan: str, kind: str) -> str:
    """Draw the links of `plan` between the servers of `testbed`; `kind` is the class of lines."""
    links = testbed.links(plan)
    places = _server_places(list(testbed.servers))
    between: defaultdict[tuple[str, str], list[Link]] = defaultdict(list)
    for link in links:
        between[link.a.owner, link.b.owner].append(link)
    lines = "".join(
        _link_lines(places, ends, parallel, kind)
        for ends, parallel in between.items()
        if set(ends) <= set(places)
    )
    label = f"Links of plan {plan}: {len(links)}"
    return (
        f'<svg class="lr-svg lr-links" viewBox="0 0 {_LINKS_WIDTH:g} {_LINKS_HEIGHT:g}" role="img" '
        f'aria-label="{text(label)}">{lines}{"".join(_server_labels(places))}</svg>'
    )


def _server_places(servers: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Place servers on an ellipse, clockwise from the upper left; two of them side by side."""
    middle_x, middle_y = _LINKS_WIDTH / 2, _LINKS_HEIGHT / 2
    # Four are placed in the corners, where there is more room.
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


def _link_lines(
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
            offset = 2 * _LINK_DISTANCE * (index - (len(parallel) - 1) / 2) / length
            x = (ax + bx) / 2 - (by - ay) * offset
            y = (ay + by) / 2 + (bx - ax) * offset
            path = f"M{ax:.1f} {ay:.1f}Q{x:.1f} {y:.1f} {bx:.1f} {by:.1f}"
        drawn.append(f'<path class="{kind}" d="{path}"><title>{text(link)}</title></path>')
    return "".join(drawn)


def _server_labels(places: dict[str, tuple[float, float]]) -> list[str]:
    many = len(places) > 10
    labels = []
    for server, (x, y) in places.items():
        name = server if len(server) <= 9 else f"{server[:4]}…{server[-4:]}"
        if many:
            name = server[-3:]
        half = 4 + 2.9 * len(name)
        labels.append(
            f'<g><rect class="lr-node" x="{x - half:.1f}" y="{y - 8:.1f}" '
            f'width="{2 * half:.1f}" height="16" rx="4"/><text class="lr-name" '
            f'x="{x:.1f}" y="{y + 3:.1f}">{text(name)}</text><title>{text(server)}</title></g>'
        )
    return labels
