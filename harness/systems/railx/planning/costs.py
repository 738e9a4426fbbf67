"""Size, cost and power of RailX and what the paper compares it with (tables 3 and 6).

Counts are derived from the structure of each network, for chips with 36 ports of 400 Gbit/s,
64-port packet switches and 128-port circuit switches (section 6.2, appendix A.7). Links inside a
node and on a board cost nothing, as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from lightrig.harness.systems.railx.planning.physical import RailFabric, RailxError

COPPER, OPTICAL, SWITCH = 250, 1_000, 35_000
"""US dollars: a passive copper cable, an active optical transceiver, a switch of either kind."""
PORTS, PORT_BPS = 36, 400e9
PACKET_RADIX, OPTICAL_RADIX = 64, 128
OPTICAL_PJ = 5.0
"""Least energy of a bit through an off-package interface (table 1: more than 5 pJ)."""
SWITCH_W_PER_TBPS = 10.0
"""Least power of a packet switch (section 2.2.1: more than 10 W for 1 Tbit/s and hop)."""


@dataclass(frozen=True, slots=True)
class Network:
    """Parts of a network of `chips`, and its share of global over injection bandwidth."""

    chips: int
    switches: int
    copper: int
    optical: int
    global_share: Fraction
    packet_switched: bool = True

    @property
    def cost(self) -> int:
        """US dollars."""
        return self.switches * SWITCH + self.copper * COPPER + self.optical * OPTICAL

    def cost_per_injection(self, baseline: Network) -> float:
        """Cost a chip, relative to `baseline`; all chips have the same ports."""
        return self.cost / self.chips / (baseline.cost / baseline.chips)

    def cost_per_global(self, baseline: Network) -> float:
        """Cost for each unit of global bandwidth, relative to `baseline`."""
        share = float(self.global_share / baseline.global_share)
        return self.cost_per_injection(baseline) / share

    @property
    def power_w(self) -> float:
        """Least power of transceivers and packet switches by the limits the paper quotes.

        Both limits are lower bounds. Circuit switches, for which it gives no figure, and links
        inside nodes are left out.
        """
        transceivers = self.optical * PORT_BPS * OPTICAL_PJ * 1e-12
        if not self.packet_switched:
            return transceivers
        return transceivers + self.switches * PACKET_RADIX * PORT_BPS / 1e12 * SWITCH_W_PER_TBPS


def fat_tree(chips: int, tiers: int) -> Network:
    """Return a non-blocking fat tree, one for each of the 36 ports."""
    half = PACKET_RADIX // 2
    if chips > 2 * half**tiers or chips % PACKET_RADIX:
        raise RailxError(f"{tiers} tiers of {PACKET_RADIX} ports join no {chips} chips")
    switches = (tiers - 1) * chips // half + chips // PACKET_RADIX
    return Network(chips, PORTS * switches, 0, PORTS * 2 * tiers * chips, Fraction(1))


def tapered_fat_tree(chips: int, taper: int, tiers: int) -> Network:
    """Return a fat tree whose switches have `taper` times as many ports down as up."""
    up = PACKET_RADIX // (taper + 1)
    down = PACKET_RADIX - up
    links, switches, total = chips, 0, chips
    for _ in range(tiers - 1):
        count = _whole(links, down)
        switches, links = switches + count, count * up
        total += links
    switches += _whole(links, PACKET_RADIX)
    share = Fraction(1, taper ** (tiers - 1))
    return Network(chips, PORTS * switches, 0, PORTS * 2 * total, share)


def hamming_mesh(mesh: int, boards: int, tiers: int) -> Network:
    """Return HxMesh: `boards` x `boards` boards of `mesh` x `mesh` chips, nine planes.

    In each plane the 2 `boards` ports of each chip row and column have a fat tree of `tiers`.
    """
    planes, line_ports = PORTS // 4, 2 * boards
    half = PACKET_RADIX // 2
    each = 1 if tiers == 1 else line_ports // half + line_ports // PACKET_RADIX
    if line_ports > (PACKET_RADIX if tiers == 1 else 2 * half**2):
        raise RailxError(f"{line_ports} ports in a line are too many for {tiers} tiers")
    lines = planes * 2 * boards * mesh
    return Network(
        boards**2 * mesh**2,
        lines * each,
        0,
        lines * line_ports * 2 * tiers,
        Fraction(1, 2 * mesh),
    )


def rail_only() -> Network:
    """Return the 2D fat tree of one tier: 64 x 64 chips, 18 rails in each dimension."""
    side, rails = PACKET_RADIX, PORTS // 2
    chips = side**2
    return Network(chips, 2 * side * rails, 0, 2 * chips * PORTS, Fraction(1, 2))


def torus_3d(circuit_switched: bool) -> Network:
    """Return TPUv4's torus: 64 cubes of 4^3 chips on boards of 2 x 2, six ports a direction.

    Copper joins the boards of a cube. With circuit switches each optical port has a transceiver and
    the switch none; without, links lead from cube to cube. The global share is 2 B_c / N over the
    injection bandwidth, the convention of equation 2 that the table's other rows follow.
    """
    edge, cubes, ports = 4, 64, PORTS // 6
    in_cube, on_boards = 3 * edge**2 * (edge - 1), edge**3 // 4 * 4
    faces = 6 * edge**2 * ports * cubes
    side = round((edge**3 * cubes) ** (1 / 3))
    cut = 2 * side**2 * ports * 2
    share = Fraction(2 * cut, side**3 * PORTS)
    return Network(
        side**3,
        faces // OPTICAL_RADIX if circuit_switched else 0,
        (in_cube - on_boards) * ports * cubes,
        faces,
        share,
        packet_switched=False,
    )


def railx(fabric: RailFabric) -> Network:
    """Return the parts of a generated fabric: its switches and optical ports."""
    return Network(
        fabric.chips,
        fabric.switches,
        0,
        fabric.optical_ports,
        Fraction(1, 2 * fabric.mesh),
        packet_switched=False,
    )


def table_6() -> Mapping[str, Network]:
    """Return the rows of tables 3 and 6 by name, in their order."""
    nine = PORTS // 4
    return {
        "fat-tree-2": fat_tree(2048, 2),
        "tapered-3": tapered_fat_tree(3072, 3, 2),
        "hx4": hamming_mesh(4, 32, 1),
        "hx7": hamming_mesh(7, 32, 1),
        "torus-ocs": torus_3d(circuit_switched=True),
        "torus": torus_3d(circuit_switched=False),
        "rail-only": rail_only(),
        "railx4": railx(RailFabric.full(OPTICAL_RADIX, 4, nine)),
        "railx7": railx(RailFabric.full(OPTICAL_RADIX, 7, nine)),
        "fat-tree-4": fat_tree(196_608, 4),
        "tapered-49": tapered_fat_tree(200_704, 7, 3),
        "hx7-200k": hamming_mesh(7, 64, 2),
    }


def nvl72_scale_out_share() -> float:
    """Cost of an 800G three-tier fat tree for an NVL72 node over the node's (section 2.2.1).

    72 x 5 x 800 Gbit/s of switching at 40,000 dollars for 51.2 Tbit/s, 72 x 3 links at 2,000, and
    a node of 3 million.
    """
    gpus, tiers = 72, 3
    switching = gpus * (2 * tiers - 1) * 0.8 / 51.2 * 40_000
    return (switching + gpus * tiers * 2_000) / 3_000_000


def nvl72_scale_up_share() -> float:
    """Share of an NVL72 node's price, 3 million, above that of its 36 superchips, 2.16 million."""
    return (3.0 - 2.16) / 3.0


def _whole(ports: int, each: int) -> int:
    if ports % each:
        raise RailxError(f"{ports} links do not fill switches of {each} ports")
    return ports // each
