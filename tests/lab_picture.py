"""A lab as SVG, drawn from its testbed file: servers, an optical switch, instruments, fibers."""

from collections.abc import Iterator

from lightrig.harness.report.escaping import text as escaped
from lightrig.testbeds import Testbed, load

_STYLE = """\
text { font: 14px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1b1f23 }
.small { font-size: 12px; fill: #57606a }
.box { fill: #ffffff; stroke: #57606a }
.host { fill: #dff3ec; stroke: #00664a }
.fiber { stroke: #d55e00; fill: none; stroke-width: 1.6 }
.control { stroke: #0072b2; fill: none; stroke-dasharray: 5 4 }
"""
_HOST = "Lightrig: pytest on one machine"


def lab_picture(file: str) -> str:
    """Return the lab of a testbed file with one optical switch: light in orange, control dashed."""
    testbed = load(file)
    (switch,) = testbed.optical_switches
    height = 130 + 92 * max(len(testbed.servers), len(testbed.instruments))
    parts = [*_parts(testbed, switch, height)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {height}" role="img" '
        f'aria-label="{escaped(testbed.about)}">\n<style>\n{_STYLE}</style>\n'
        f'<rect width="900" height="{height}" rx="8" fill="#f4f5f6"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _parts(testbed: Testbed, switch: str, height: int) -> Iterator[str]:
    spec = testbed.switches[switch]
    ends = {switch: (380, height // 2 - 85, 140, 100)}
    for number, name in enumerate(testbed.servers):
        ends[name] = (30, 24 + 92 * number, 180, 72)
    for number, name in enumerate(testbed.instruments):
        ends[name] = (690, 24 + 92 * number, 180, 72)
    host = (300, height - 56, 300, 40)
    for box in ends.values():
        yield _line("control", _middle(box), _middle(host))
    for number, fiber in enumerate(testbed.fibers):
        start, end = (_middle(ends[port.owner]) for port in (fiber.source, fiber.sink))
        shift = 7 * (number % 4) - 10
        yield _line("fiber", (start[0], start[1] + shift), (end[0], end[1] + shift))
    size = f"{spec.ingress_count} x {spec.egress_count}"
    yield from _box("box", ends[switch], f"{switch}: {spec.model}", size, "optical circuit switch")
    for name, server in testbed.servers.items():
        ports = sum(len(nic.ports) for nic in server.nics.values())
        yield from _box("box", ends[name], name, f"{ports} NIC ports", "carriers, datagrams")
    for name, instrument in testbed.instruments.items():
        yield from _box(
            "box", ends[name], name, instrument.model, instrument.kind.replace("_", " ")
        )
    yield from _box("host", host, _HOST)
    yield _text(300 + 310, height - 32, "small", "dashed: SSH, TL1, SCPI; orange: fibers")


def _middle(box: tuple[int, int, int, int]) -> tuple[int, int]:
    left, top, width, height = box
    return left + width // 2, top + height // 2


def _line(kind: str, start: tuple[int, int], end: tuple[int, int]) -> str:
    return f'<path class="{kind}" d="M{start[0]} {start[1]} L{end[0]} {end[1]}"/>'


def _box(kind: str, box: tuple[int, int, int, int], *lines: str) -> Iterator[str]:
    left, top, width, height = box
    yield (f'<rect class="{kind}" x="{left}" y="{top}" width="{width}" height="{height}" rx="6"/>')
    first = top + height // 2 - 9 * (len(lines) - 1) + 5
    for number, line in enumerate(lines):
        middle = left + width // 2
        yield _text(middle, first + 18 * number, "small" if number else "", line, "middle")


def _text(left: int, top: int, kind: str, line: str, anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{left}" y="{top}" text-anchor="{anchor}">{escaped(line)}</text>'
    )
