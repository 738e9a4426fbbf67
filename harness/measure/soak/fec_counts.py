"""Code words that the NIC ports of a bench corrected and lost, as their kernels count them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from lightrig.harness.bench import Bench
from lightrig.instruments.core.capabilities import HasNic
from lightrig.testbeds import LightrigError, NicPortSpec

if TYPE_CHECKING:
    from lightrig.instruments.servers.tools.ethtool_fec import FecReading


class FecGrowth(NamedTuple):
    """Code words of a port since the reading before.

    name: `fec_corrected` or `fec_uncorrectable`. least: what is certain; most: the same, or None
    where the counter is full or was set back.
    """

    port: str
    name: str
    least: int
    most: int | None


@dataclass(slots=True)
class FecCounts:
    """The last reading of each port; ports whose driver has no counters are not read again."""

    bench: Bench
    _last: dict[str, FecReading] = field(default_factory=dict)
    _without: set[str] = field(default_factory=set)

    def growth(self) -> list[FecGrowth]:
        """Read all ports, servers at once; return what has grown, from the second time on."""
        if self.bench.world is not None:  # simulated counters say nothing of a lab
            return []
        waiting: dict[str, list[NicPortSpec]] = {}
        for spec in self.bench.testbed.nic_ports:
            if str(spec.port) not in self._without:
                waiting.setdefault(spec.port.owner, []).append(spec)
        tasks = [partial(self._read, name, specs) for name, specs in waiting.items()]
        found: list[FecGrowth] = []
        for of_server in self.bench.clock.parallel(*tasks) if tasks else ():
            for port, reading in of_server.items():
                if port in self._last:
                    found += _grown(port, self._last[port], reading)
                self._last[port] = reading
        return found

    def _read(self, name: str, specs: list[NicPortSpec]) -> dict[str, FecReading]:
        found: dict[str, FecReading] = {}
        server = self.bench.servers.get(name)
        if server is None or not isinstance(server, HasNic):
            return found
        for spec in specs:
            port = str(spec.port)
            try:
                reading = server.nic.fec(spec.netdev).value
            except LightrigError:  # no such tool, or no FEC; a server that is lost has a gap
                continue
            if reading.corrected_blocks is None and reading.uncorrectable_blocks is None:
                self._without.add(port)
            else:
                found[port] = reading
        return found


def _grown(port: str, before: FecReading, after: FecReading) -> Iterator[FecGrowth]:
    for name, first, last in (
        ("fec_corrected", before.corrected_blocks, after.corrected_blocks),
        ("fec_uncorrectable", before.uncorrectable_blocks, after.uncorrectable_blocks),
    ):
        if first is None or last is None:
            continue
        grown = last.since(first)
        if isinstance(grown, int):
            if grown:
                yield FecGrowth(port, name, grown, grown)
        else:
            yield FecGrowth(port, name, grown.at_least or 0, None)
