"""Switch costs per GPU from a generated fabric, and from the rows that the paper prints."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from lightrig.harness.systems.acos.planning.datacentre import PP_8_4, DataCentre
from lightrig.harness.systems.acos.planning.optics import Kind, OpticalFabric

PRICES: Mapping[Kind, int] = {"1x2": 22, "1x3": 68, "1x4": 70, "2x2": 50}
"""Dollars per switch of one fiber (Table 2)."""
MATRIX_LANE, PANEL_LANE = 520, 100
"""Dollars per duplex lane of an NxN switch and of a robotic patch panel (Table 2)."""
SR8, DR8, FR8D, FR4L, PACKET_SWITCH = 650, 850, 1100, 1200, 30_000
"""Dollars (Table 1); the packet switch has 64 ports."""

Row = Mapping[Kind, Fraction]


def switch_cost(fabric: OpticalFabric, gpus: int | None = None) -> Fraction:
    """Dollars per GPU for all switches of a fabric, over its GPUs or over `gpus`."""
    total = sum(PRICES[kind] * count for (_, _, kind), count in fabric.counts().items())
    return Fraction(total, gpus or fabric.gpus)


def per_gpu(fabric: OpticalFabric) -> Mapping[tuple[str, str, Kind], Fraction]:
    """Switches per GPU by purpose, dimension and kind."""
    return {key: Fraction(count, fabric.gpus) for key, count in fabric.counts().items()}


def hall_rows(made: DataCentre) -> Mapping[tuple[str, str, Kind], Fraction]:
    """Switches per GPU of a rack in a data centre.

    Tables 5 and 6 count what a rack needs, backup racks and others alike. The 2x2 that merge
    rings of racks belong to the active racks.
    """
    hall = made.hall
    working = hall.gpus * hall.ring // hall.positions
    return {
        key: Fraction(count, working if key[0] == PP_8_4 else hall.gpus)
        for key, count in made.fabric.counts().items()
    }


def rows_cost(rows: Mapping[tuple[str, str, Kind], Fraction]) -> Fraction:
    """Dollars per GPU of rows of a table."""
    return sum((PRICES[kind] * count for (_, _, kind), count in rows.items()), Fraction(0))


def row_of(**counts: Fraction | int) -> Row:
    """Row of a printed table; keys are kinds with the x in front, such as x1x4."""
    kinds: dict[str, Kind] = {"x1x2": "1x2", "x1x3": "1x3", "x1x4": "1x4", "x2x2": "2x2"}
    return {kinds[name]: Fraction(count) for name, count in counts.items()}


_F = Fraction
TABLES: Mapping[str, Mapping[str, Row]] = {
    "T3": {
        "selection": row_of(x1x4=16),
        "TP 4-8": row_of(x2x2=3),
        "TP 8-16": row_of(x2x2=_F(1, 2)),
        "PP 4-2": row_of(x2x2=2),
        "EP 8-16": row_of(x2x2=2),
    },
    "T4-72": {
        "selection": row_of(x1x4=16),
        "TP resiliency": row_of(x1x2=_F(128, 9), x1x4=_F(16, 9)),
        "TP 4-8": row_of(x2x2=_F(8, 3) + 4),
        "TP 8-16": row_of(x2x2=_F(8, 9)),
        "PP 4-2": row_of(x2x2=2),
        "EP 8-16": row_of(x2x2=2),
    },
    "T5": {
        "selection": row_of(x1x4=16),
        "TP 4-8": row_of(x2x2=_F(3, 2)),
        "TP 8-16": row_of(x2x2=1),
        "PP 8-4": row_of(x2x2=_F(1, 2)),
        "EP": row_of(x2x2=4),
        "resiliency": row_of(x1x2=24),
    },
    "T6-node": {
        "selection": row_of(x1x4=16),
        "TP resiliency": row_of(x1x2=_F(128, 9), x1x4=_F(16, 9)),
        "TP 4-8": row_of(x2x2=_F(8, 3) + _F(1, 2)),
        "TP 8-16": row_of(x2x2=_F(8, 9) + _F(1, 2)),
        "PP 8-4": row_of(x2x2=_F(1, 2)),
        "EP": row_of(x2x2=4),
        "resiliency": row_of(x1x2=24, x2x2=_F(2, 3)),
    },
}
"""Rows of Tables 3 to 6 with the fractions that their rounded counts stand for."""
TABLES = {
    **TABLES,
    "T4-144": {**TABLES["T4-72"], "PP resiliency": row_of(x1x2=8, x2x2=_F(8, 9))},
    "T6-both": {**TABLES["T6-node"], "resiliency": row_of(x1x4=24, x2x2=_F(2, 3))},
}


def row_cost(row: Row) -> Fraction:
    """Dollars of a row."""
    return sum((PRICES[kind] * count for kind, count in row.items()), Fraction(0))


def table_cost(name: str) -> Fraction:
    """Dollars per GPU of a printed table's rows."""
    return sum(map(row_cost, TABLES[name].values()), Fraction(0))


def table_count(name: str, kind: Kind | None = None) -> Fraction:
    """Switches per GPU of a printed table's rows, of one kind or of all."""
    return sum(
        (n for row in TABLES[name].values() for k, n in row.items() if kind in {None, k}),
        Fraction(0),
    )


@dataclass(frozen=True, slots=True)
class Ethernet:
    """Packet network of 64-port switches, non-blocking (Appendix A)."""

    gpus: int

    @property
    def tiers(self) -> int:
        """Tiers: one switch to 64 GPUs, two tiers to 2,048, three to 65,536."""
        return 1 if self.gpus <= 64 else 2 if self.gpus <= 2048 else 3

    @property
    def switches_per_gpu(self) -> Fraction:
        """Switches per GPU where ports are shared out exactly; one whole switch for one tier."""
        return Fraction(1, self.gpus) if self.tiers == 1 else Fraction(2 * self.tiers - 1, 64)

    @property
    def cost(self) -> Fraction:
        """Dollars per GPU: SR8 at both ends of leaf links, DR8 above, and switches."""
        longer = 2 * DR8 * (self.tiers - 1)
        return 2 * SR8 + longer + PACKET_SWITCH * self.switches_per_gpu


@dataclass(frozen=True, slots=True)
class Baselines:
    """Optical alternatives at rack scale and below, in dollars per GPU with transceivers.

    lanes: duplex lanes of a GPU. topologies: as many robotic panels stand behind a 1xN.
    """

    lanes: int
    topologies: int

    @property
    def transceiver(self) -> int:
        """Dollars of the transceiver that the paper chooses."""
        return FR4L if self.lanes == 2 else FR8D

    @property
    def matrix(self) -> int:
        """One NxN switch."""
        return self.transceiver + self.lanes * MATRIX_LANE

    @property
    def robotic(self) -> int:
        """A 1xN at each fiber, and a robotic panel for each topology."""
        kind: Kind = "1x2" if self.topologies == 2 else "1x4"
        selection = 2 * self.lanes * PRICES[kind]
        return self.transceiver + selection + self.lanes * self.topologies * PANEL_LANE
