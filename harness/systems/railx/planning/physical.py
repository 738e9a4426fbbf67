"""RailX's nodes, rails and circuit switches, and which port is cabled to which.

Feng et al., RailX, section 3.2: a node is a mesh of m x m chips with n optical ports on each
outer chip edge; rail a of a dimension is the pair of ports (+ and -) on opposite node edges that
belong to chip row (or column) a // n. X-rail a of node (i, j) is cabled to X-OCS (j, a), Y-rail b
to Y-OCS (i, b). The paper fixes neither the numbering of rails nor which edge is plus; here X+ is
the right edge and Y+ the bottom one, and the rails of one chip row are neighbours in number.
Indices count from 0, ports of a switch from 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from lightrig.testbeds import LightrigError

Dimension: TypeAlias = Literal["x", "y"]


class RailxError(LightrigError, ValueError):
    """A RailX fabric, topology or job that cannot exist; the message names the reason."""


class RailPort(NamedTuple):
    """The plus or minus port of a rail of the node in column `i` and row `j`."""

    i: int
    j: int
    dimension: Dimension
    rail: int
    plus: bool


class SwitchPort(NamedTuple):
    """A duplex port of the circuit switch of `rail` in row (x) or column (y) `line`."""

    dimension: Dimension
    line: int
    rail: int
    port: int


@dataclass(frozen=True, slots=True)
class RailFabric:
    """Nodes in `columns` x `rows`, each with `mesh` x `mesh` chips and `ports` on a chip edge.

    `radix` is the number of duplex ports of a circuit switch. Raises `RailxError` where a size
    is below one or a line of nodes has more ports than a switch.
    """

    mesh: int
    ports: int
    columns: int
    rows: int
    radix: int

    def __post_init__(self) -> None:
        if min(self.mesh, self.ports, self.columns, self.rows) < 1:
            raise RailxError(f"{self}: every size is at least 1")
        longest = max(self.columns, self.rows)
        if 2 * longest > self.radix:
            raise RailxError(
                f"{longest} nodes in a line need {2 * longest} switch ports (plus and minus of "
                f"each), the switches have {self.radix}; use fewer nodes or a larger radix"
            )

    @classmethod
    def full(cls, radix: int, mesh: int, ports: int) -> RailFabric:
        """Return the fabric that uses every port of switches of `radix` (equation 1)."""
        return cls(mesh, ports, radix // 2, radix // 2, radix)

    @property
    def rails(self) -> int:
        """Number of rails of a node in each dimension, r = m n."""
        return self.mesh * self.ports

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.columns * self.rows

    @property
    def chips(self) -> int:
        """Number of chips; (R/2)^2 m^2 where every switch port is used."""
        return self.nodes * self.mesh**2

    @property
    def switches(self) -> int:
        """Number of circuit switches: one for each rail of each row and column."""
        return self.rails * (self.columns + self.rows)

    @property
    def optical_ports(self) -> int:
        """Number of optical ports of all nodes, and of used switch ports: 4 r a node."""
        return 4 * self.rails * self.nodes

    @property
    def interfaces(self) -> int:
        """Nominal off-package ports of a chip, 4 n, as the paper's tables count them.

        An inner chip has no optical port; `optical_ports / chips` is 4 n / m on average.
        """
        return 4 * self.ports

    def length(self, dimension: Dimension) -> int:
        """Number of nodes in a line along `dimension`."""
        return self.columns if dimension == "x" else self.rows

    def lines(self, dimension: Dimension) -> int:
        """Number of lines along `dimension`: rows for x, columns for y."""
        return self.rows if dimension == "x" else self.columns

    def switch_port(self, port: RailPort) -> SwitchPort:
        """Switch port that a node's port is cabled to: 2 u + 1 for plus, 2 u + 2 for minus."""
        place, line = (port.i, port.j) if port.dimension == "x" else (port.j, port.i)
        number = 2 * place + (1 if port.plus else 2)
        return SwitchPort(port.dimension, line, port.rail, number)

    def cabling(self) -> Iterator[tuple[RailPort, SwitchPort]]:
        """Yield every fiber pair between a node and a switch."""
        dimensions: tuple[Dimension, Dimension] = ("x", "y")
        for i in range(self.columns):
            for j in range(self.rows):
                for dimension in dimensions:
                    for rail in range(self.rails):
                        for plus in (True, False):
                            port = RailPort(i, j, dimension, rail, plus)
                            yield port, self.switch_port(port)
