"""Positions in the drawings of a testbed: rows of 14 pixels, 8 between servers, 18 above."""

import math
import re

import pytest
from drawings import boxes, elements, marks, size, words

from lightrig import testbeds
from lightrig.harness.report.wiring import wiring_section

UNEVEN = """\
name: uneven
about: One server with two ports, one with three, on one switch of 5 x 6 ports
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 5x6}
servers:
  server0:
    address: ssh://bench@server0.invalid
    nics: {nic0: {ports: 2, netdev: "ens{p}", rate: 100G, transceiver: lr4}}
  server1:
    address: ssh://bench@server1.invalid
    nics: {nic0: {ports: 3, netdev: "ens{p}", rate: 100G, transceiver: lr4}}
fibers:
  - server0.nic0.p0 -> ocs.4
  - server0.nic0.p1 -> ocs.2
  - server1.nic0.p0 -> ocs.1
  - server1.nic0.p1 -> ocs.3
  - server1.nic0.p2 -> ocs.5
  - ocs.7 -> server0.nic0.p0
  - ocs.11 -> server0.nic0.p1
  - ocs.6 -> server1.nic0.p0
  - ocs.10 -> server1.nic0.p1
  - ocs.8 -> server1.nic0.p2
plans:
  one: [server0.nic0.p0 <-> server1.nic0.p2]
  two: [server0.nic0.p0 <-> server1.nic0.p0, server0.nic0.p1 <-> server1.nic0.p1]
"""


TRANSCEIVERS = """\
transceivers:
  lr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -10 dBm, max: 4 dBm}}
"""


def load(path, text):
    (path / "testbed.yaml").write_text(text + TRANSCEIVERS)
    return testbeds.load(path / "testbed.yaml")


def drawings(testbed):
    """Return the drawings of a testbed: its wiring, then one of the links of each plan."""
    found = re.findall(r"<svg.*?</svg>", str(wiring_section(testbed, "w")), re.S)
    return sorted(found, key=lambda one: "lr-links" in one)


@pytest.fixture
def wiring(tmp_path):
    return drawings(load(tmp_path, UNEVEN))[0]


def test_boxes_of_servers_and_switch(wiring):
    # server0 from 18 to 46, server1 from 54 to 96: transmitters left, receivers right.
    assert boxes(wiring, "lr-box") == [
        *((0, 18, 128, 28), (632, 18, 128, 28), (0, 54, 128, 42), (632, 54, 128, 42)),
        (236, 18, 288, 78),
    ]
    assert size(wiring) == (760, 104)
    names = {each for each in words(wiring) if "server" in each[0] or each[0].startswith("ocs")}
    assert names == {
        *(("server0", 7, 35, "start"), ("server0", 753, 35, "end")),
        *(("server1", 7, 78, "start"), ("server1", 753, 78, "end")),
        ("ocs (polatis, optical 5x6)", 380, 13, "start"),
    }
    assert {("transmit", 64, 12, "middle"), ("receive", 696, 12, "middle")} <= set(words(wiring))


def test_ports_are_beside_their_fibers(wiring):
    found = [each for each in words(wiring) if re.search(r"\d$", each[0]) and each[3] != "middle"]
    ends = [each for each in found if each[0].startswith("nic")]
    heights = {("server0", 0): 25, ("server0", 1): 39} | {
        ("server1", n): 61 + 14 * n for n in range(3)
    }
    assert [(x, y, anchor) for _, x, y, anchor in ends] == [
        *((123, y + 3, "end") for y in heights.values()),
        *((637, y + 3, "start") for y in heights.values()),
    ]
    # Each port of the switch is level with the server's port that it is connected to.
    ports = [each for each in found if each[0].isdigit()]
    assert {(label, y) for label, x, y, anchor in ports if (x, anchor) == (241, "start")} == {
        *(("4", 28), ("2", 42), ("1", 64), ("3", 78), ("5", 92))
    }
    assert {(label, y) for label, x, y, anchor in ports if (x, anchor) == (519, "end")} == {
        *(("7", 28), ("11", 42), ("6", 64), ("10", 78), ("8", 92))
    }


def test_fibers_are_level_and_circuits_cross(wiring):
    assert sorted(marks(wiring, "lr-fiber")) == sorted(
        [(x, y), (to_x, y)] for y in (25, 39, 61, 75, 89) for x, to_x in ((128, 236), (524, 632))
    )
    first, second = (wiring.split('class="lr-of')[n].split("</g>")[0] for n in (1, 2))
    assert (first.count("<path"), second.count("<path")) == (2, 4)
    # Circuits begin 30 pixels inside the switch; p0 of server0 to p2 of server1 and back.
    assert set(re.findall(r' d="([^"]+)"', first)) == {
        "M266 25C380 25 380 89 494 89",
        "M266 89C380 89 380 25 494 25",
    }
    assert "lr-p0 lr-k0 lr-d0" in wiring
    assert "lr-p1 lr-k1 lr-d0" in wiring


TWO_SWITCHES = """\
name: chain
switches:
  a: {model: polatis, address: tl1://a.invalid, size: 4x4}
  b: {model: polatis, address: tl1://b.invalid, size: 6x6}
servers:
  server0:
    address: ssh://bench@server0.invalid
    nics: {nic0: {ports: 3, netdev: "ens{p}", rate: 100G, transceiver: lr4}}
fibers:
  - server0.nic0.p2 -> a.1
  - server0.nic0.p0 -> a.2
  - server0.nic0.p1 -> b.3
  - b.9 -> a.4
  - b.7 -> server0.nic0.p1
"""


def test_two_switches_are_below_each_other_with_their_ports_in_rows(tmp_path):
    svg = drawings(load(tmp_path, TWO_SWITCHES))[0]
    # Three ports on a: rows at 25, 39, 53, until 60; b begins 18 + 8 below and has two.
    assert boxes(svg, "lr-box")[2:] == [(236, 18, 288, 42), (236, 86, 288, 28)]
    assert [each[1:3] for each in words(svg) if "polatis" in each[0]] == [(380, 13), (380, 81)]
    assert size(svg) == (760, 122)
    ingress = {label: y for label, x, y, anchor in words(svg) if x == 241}
    # By the height of their transmitters; one that is no server's comes first.
    assert ingress == {"4": 28, "2": 42, "1": 56, "3": 96}
    egress = {label: y for label, x, y, anchor in words(svg) if x == 519}
    assert egress == {"9": 96, "7": 110}
    paths = {one.get("d") for one in elements(svg, "lr-fiber")}
    # p0 at 25 to port 2 at 39; from b, port 5, at 93 to a, port 4, at 25.
    assert "M128 25C182 25 182 39 236 39" in paths
    assert "M524 93C380 93 380 25 236 25" in paths


# --------------------------------------------------------------------------------- links


def star(servers, ports=2):
    """Return a testbed of `servers` whose ports can all be connected by one switch."""
    size = servers * ports
    return f"""\
name: star
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, size: {size}x{size}}}
servers:
  server[0-{servers - 1}]:
    address: ssh://bench@{{name}}.invalid
    nics: {{nic0: {{ports: {ports}, netdev: "ens{{p}}", rate: 100G, transceiver: lr4}}}}
fibers:
  - server[0-{servers - 1}].nic0.p[0-{ports - 1}] <-> ocs
plans:
  pair: [{", ".join(f"server0.nic0.p{p} <-> server1.nic0.p{p}" for p in range(ports))}]
"""


def centres(svg):
    """Return the middle of each server's node by its name."""
    names = re.findall(r"<title>(server\d+)</title></g>", svg)
    return {
        name: (round(x + width / 2, 1), round(y + height / 2, 1))
        for name, (x, y, width, height) in zip(names, boxes(svg, "lr-node"), strict=True)
    }


@pytest.mark.parametrize(
    ("servers", "wide", "high", "first"),
    [
        (2, 66, 64, math.pi),
        (3, 66, 64, -0.75 * math.pi),
        (4, 88, 84, -0.75 * math.pi),
        (12, 66, 64, -0.75 * math.pi),
    ],
)
def test_servers_are_on_an_ellipse_clockwise(tmp_path, servers, wide, high, first):
    svg = drawings(load(tmp_path, star(servers)))[1]
    assert size(svg) == (190, 150)
    for place, centre in enumerate(centres(svg).values()):
        angle = first + 2 * math.pi * place / servers
        expected = 95 + wide * math.cos(angle), 75 + high * math.sin(angle)
        assert centre == pytest.approx(expected, abs=0.11)
    labels = [label for label, *_ in words(svg)]
    assert labels[1] == ("server1" if servers <= 10 else "er1")
    # 2.9 pixels a letter on each side, and 4 more.
    width = 2 * (4 + 2.9 * len(labels[0]))
    assert boxes(svg, "lr-node")[0][2:] == (pytest.approx(width, abs=0.06), 16)
    x, y = words(svg)[0][1:3]
    assert (x, y - 3) == pytest.approx(centres(svg)["server0"], abs=0.11)


def test_three_parallel_links_are_nine_pixels_apart(tmp_path):
    svg = drawings(load(tmp_path, star(3, ports=3)))[1]
    lines = marks(svg, "lr-link")
    start, end = centres(svg)["server0"], centres(svg)["server1"]
    length = math.dist(start, end)
    normal = -(end[1] - start[1]) / length, (end[0] - start[0]) / length
    middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    for place, line in enumerate(lines):
        assert (line[0], line[2]) == (start, end)
        # A quadratic curve reaches half as far as its control point.
        for axis in (0, 1):
            far = middle[axis] + 2 * 9 * (place - 1) * normal[axis]
            assert line[1][axis] == pytest.approx(far, abs=0.2)
