"""Indices of the RoCE addresses of a bench's NIC ports, which changes of links may move."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import HasNic, Server
from lightrig.instruments.servers.tools.roce_addresses import Move, RoceAddress, moves
from lightrig.testbeds import LightrigError, NicPortSpec, Port, Testbed

MOST_COST = 0.02
"""Greatest part of the time since the last reading that one takes."""

Table = Mapping[int, RoceAddress]


@dataclass(slots=True)
class RoceIndices:
    """The last reading of all ports that have an RDMA device; no reading for none."""

    testbed: Testbed
    servers: Mapping[str, Server]
    clock: Clock
    _tables: dict[Port, Table] = field(default_factory=dict)
    _at: int = 0
    _cost: int = 0

    def moved(self) -> dict[Port, list[Move]]:
        """Read the ports; return what has moved since the last reading, the first one for none.

        It is left out where it would take more than `MOST_COST` of the time since the last one.
        """
        began = self.clock.now()
        if self._tables and began - self._at < self._cost / MOST_COST:
            return {}
        by_server: dict[str, list[NicPortSpec]] = {}
        for spec in self.testbed.nic_ports:
            if spec.rdma is not None:
                by_server.setdefault(spec.port.owner, []).append(spec)
        readings = self.clock.parallel(
            *(partial(self._read, name, specs) for name, specs in by_server.items())
        )
        tables = {port: table for reading in readings for port, table in reading.items()}
        found = {
            port: moved
            for port, table in tables.items()
            if port in self._tables and (moved := moves(self._tables[port], table))
        }
        self._tables |= tables
        self._at = self.clock.now()
        self._cost = self._at - began
        return found

    def _read(self, name: str, specs: list[NicPortSpec]) -> dict[Port, Table]:
        server = self.servers.get(name)
        found: dict[Port, Table] = {}
        if server is None or not isinstance(server, HasNic):
            return found
        for spec in specs:
            # A device that is not there is said by the readers that need it.
            with contextlib.suppress(LightrigError):
                found[spec.port] = server.nic.roce_addresses(str(spec.rdma)).value
        return found
