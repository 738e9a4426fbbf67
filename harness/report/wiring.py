"""The wiring of a testbed as a picture, read from left to right as the light goes.

Left the transmitters, right the receivers, between them the switches; each port is on both
sides, since light leaves it by one fiber and arrives by another. Switch ports stand where
their fibers lead, not by number, so that fibers run straight and circuits show what a plan
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.report.drawing import tone
from harness.report.markup import text
from testbeds import Plan, Port, Testbed

_ROW, _GAP, _HEAD = 14.0, 8.0, 18.0
_BOX, _SWITCH_LEFT, _SWITCH_RIGHT, _WIDTH = 128.0, 236.0, 524.0, 760.0
_LABEL = 30.0


@dataclass
class _Layout:
    """Where everything stands: heights by port, and the boxes from top to bottom."""

    left: dict[Port, float] = field(default_factory=dict)
    right: dict[Port, float] = field(default_factory=dict)
    ends: dict[str, tuple[float, float]] = field(default_factory=dict)
    switches: dict[str, tuple[float, float]] = field(default_factory=dict)
    height: float = 0.0


def wiring(testbed: Testbed) -> str:
    """Fibers and switches of `testbed` as SVG; the circuits of plan i are in class `lr-p<i>`."""
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
    alone = len(testbed.switches) == 1
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
                straight = alone and far is not None
                side[getattr(fiber, here)] = far if straight and far else top + _ROW * (place + 0.5)
        y = bottom - _GAP if alone else top + _ROW * max(len(into), len(out), 1)
        layout.switches[name] = (top, y)
        y += _HEAD + _GAP
    layout.height = max(bottom, y - _HEAD)
    return layout


def _ends(testbed: Testbed) -> Mapping[str, list[Port]]:
    """Ports that are no switch's, by what they are on: servers first, then instruments."""
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
        _word(_BOX / 2, "transmit", "middle"),
        _word(_WIDTH - _BOX / 2, "receive", "middle"),
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
                parts.append(_word(x, port.name, anchor or "start", y + 3))
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
                _word(x, port.name, anchor, y + 3)
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


def _word(x: float, word: str, anchor: str, y: float = 12.0) -> str:
    return (
        f'<text class="lr-word" style="text-anchor:{anchor}" x="{x:g}" y="{y:g}">'
        f"{text(word)}</text>"
    )
