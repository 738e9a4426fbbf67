"""Nodes as namespaces that swap data in pairs, over the circuits of each round."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.jobs.bench.overlay import Overlay
from lightrig.harness.measure.links import await_carriers
from lightrig.harness.record import Row, Scalar
from lightrig.instruments.servers.host.commands import ToolFailedError
from lightrig.testbeds import Plan, Port

PORT = 30_000


@dataclass(frozen=True)
class Swapped:
    """A round of swaps.

    Attributes:
        plan: whose circuits joined the pairs. blocks: what each node has got from its partner.
        began, ended: from the command to the switches until the last block was there, on the
            bench's clock.
    """

    plan: str
    blocks: Mapping[str, bytes]
    began: int
    ended: int

    def rows(self) -> Iterator[Row]:
        """Yield the time of the round."""
        size = max(map(len, self.blocks.values()))
        conditions: dict[str, Scalar] = {"plan": self.plan, "bytes": size}
        time = self.ended - self.began
        subject = f"swaps over {self.plan}"
        yield Row(subject, "exchange.round", time, time, time, "ns", self.ended, conditions)


class PairedNodes:
    """An address for each node, and swaps between two nodes that a circuit joins.

    Raises `NotRoutedError` where a server is simulated, and `InstrumentError` where one refused.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._overlay = Overlay(bench)
        self._netdevs = {spec.port: spec.netdev for spec in bench.testbed.nic_ports}
        programs = resources.files("lightrig.instruments.jobs.programs")
        self._program = (programs / "swap_program.py").read_text("utf-8")

    def swap(self, fabric: Fabric, plan: Plan, blocks: Mapping[str, bytes]) -> Swapped:
        """Set `plan`, and let the two nodes of each of its links swap their blocks.

        Nodes forward nothing for others here: each is led to its partner alone. Raises
        `LinksDownError` where a port gets no carrier, and `ToolFailedError` where a swap failed.
        """
        began = self._bench.clock.now()
        fabric.apply(plan)
        links = list(fabric.links(plan))
        await_carriers(self._bench, self._dark, {p for link in links for p in (link.a, link.b)})
        self._overlay.route(links)
        pairs = [(link.a.owner, link.b.owner) for link in links]
        ends = [(near, "listen", near) for near, _ in pairs]
        ends += [(far, "connect", near) for near, far in pairs]
        found = self._bench.clock.parallel(
            *(partial(self._end, name, role, at, blocks[name]) for name, role, at in ends)
        )
        got = {name: block for (name, _, _), block in zip(ends, found, strict=True)}
        return Swapped(plan.name, got, began, self._bench.clock.now())

    def close(self) -> None:
        """Remove addresses and routes."""
        self._overlay.close()

    def _end(self, name: str, role: str, at: str, block: bytes) -> bytes:
        server = self._overlay.servers[name]
        shell = server.local_shell()
        assert shell is not None  # a namespace of this machine
        where = (self._overlay.addresses[at], str(PORT))
        command = [shell.python, "-IS", "-c", self._program, role, *where, block.hex()]
        result = server.commands.run(command)
        if result.status != 0:
            raise ToolFailedError(name, result, f"swap_program {role}")
        return bytes.fromhex(result.stdout)

    def _dark(self, ports: Collection[Port]) -> Collection[Port]:
        return [
            port
            for port in ports
            if not self._overlay.servers[port.owner].lit([self._netdevs[port]])
        ]
