"""Regions for `lightrig simulate`: all-to-alls of experts on circuits, all else on packets.

A server is one simulated rank and those that are folded into it. Circuits are changed by
`CircuitControl`, as in training: before all-to-alls that the calendar names, once all servers of a
group have ended the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import cast

import numpy as np

from lightrig.harness.systems.mixnet.planning.calendar import FirstExchange, exchanges
from lightrig.harness.systems.mixnet.planning.control import CircuitControl
from lightrig.harness.systems.mixnet.planning.costs import PRICES, fat_tree_cost, mixnet_cost
from lightrig.harness.systems.mixnet.planning.course import Place
from lightrig.harness.systems.mixnet.planning.demand import (
    Matrix,
    Placement,
    dispatched,
    server_demand,
)
from lightrig.harness.systems.mixnet.planning.region import Region, RegionError
from lightrig.harness.systems.mixnet.planning.topology import LinkCounts, plan_links
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.fabrics import Bill, FabricError, Options, Rates
from lightrig.harness.workloads.graph import Group, Kind, Node, Pattern, Workload, WorkloadError
from lightrig.harness.workloads.networks import DedicatedLinks, Switching
from lightrig.harness.workloads.simulator import Simulator, StepTimes

_SEEDS_OF_A_DRAW = 1_000_000
"""More than there are simulated ranks."""


def expert_load(experts: int, skew: float, seed: int) -> Matrix:
    """Return each expert's share of the tokens: 1 for all, spread by `skew` and drawn by `seed`.

    Shares are as exp(skew x), x drawn from the standard normal distribution.
    """
    drawn = np.exp(skew * np.random.default_rng(seed).standard_normal(experts))
    shares: Matrix = drawn / drawn.sum()
    return shares


def exchange_time(traffic: Matrix, links: LinkCounts, packet: float) -> float:
    """Return how long an exchange takes, in the time of one unit of traffic over one link.

    Each direction of a pair with circuits takes its traffic over their number. What has none goes
    over the server's packet NICs, which are worth `packet` links in either direction; without any
    it takes for ever.
    """
    lit = links > 0
    optical = float(np.max(traffic / np.where(lit, links, 1), where=lit, initial=0.0))
    rest = np.where(lit, 0.0, traffic)
    left = float(max(rest.sum(axis=0).max(), rest.sum(axis=1).max()))
    if not left:
        return optical
    return max(optical, left / packet) if packet else inf


class _Region:
    """The servers of one group of experts."""

    def __init__(self, fabric: Regions, servers: int, layers: int, first: str, seed: int) -> None:
        self._fabric, self._servers, self._seed = fabric, servers, seed
        self._placement = Placement(tuple(range(servers)), servers)
        strategy = None if first == "static" else cast("FirstExchange", first)
        self.control = CircuitControl(self._placement, layers, strategy)
        self.order = list(exchanges(layers))
        self.loads = [
            np.asarray(fabric.loads) / sum(fabric.loads)
            if fabric.loads
            else expert_load(servers, fabric.skew, 1000 * seed + layer)
            for layer in range(layers)
        ]
        self.number = 0
        self.changing = False
        self.waiting: Callable[[], None] | None = None
        mean = np.mean(self.loads, axis=0)
        demand = server_demand(dispatched(1_000_000, mean, servers), self._placement)
        self.links = plan_links(demand, fabric.optical)

    def expects(self, node: Node) -> bool:
        """Whether the next all-to-all goes the way of this one, forward or backward."""
        if self.number == len(self.order):
            return False
        forward = self.order[self.number][1] in {"dispatch", "combine"}
        return forward == (node.name in {"dispatch", "combine"})

    def rows(self, amount: int) -> Matrix:
        """Return what each server sends to each in the next all-to-all, in bytes."""
        layer, phase = self.order[self.number]
        if phase == "dispatch":
            return np.rint(amount * self._shares(layer))
        return self.control.traffic(Place(0, layer, phase, layer))

    def _shares(self, layer: int) -> Matrix:
        """Return the share of each expert in what each server sends, of a layer."""
        shares = dispatched(1, self.loads[layer], self._servers)
        if self._fabric.scatter:
            random = np.random.default_rng((self._seed, layer, 1))
            shares = shares * np.exp(self._fabric.scatter * random.standard_normal(shares.shape))
            shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def planned(self, demand: Matrix) -> LinkCounts:
        """Return the circuits for a demand of pairs."""
        return plan_links(demand, self._fabric.optical)


class RegionalCircuits(DedicatedLinks):
    """A network whose all-to-alls go over circuits of their region.

    ranks: how many stand behind a simulated one. first: the strategy for a layer's first exchange,
    or "static".
    """

    def __init__(
        self,
        fabric: Regions,
        workload: Workload,
        bandwidths: Mapping[str, float],
        timing: Timing,
        switching: Switching,
        first: str,
    ) -> None:
        super().__init__(bandwidths, timing)
        self._fabric, self._switching, self._first = fabric, switching, first
        self._workload = workload
        self._ranks = workload.ranks // len(workload.graph_of)
        self._regions: dict[Group, _Region] = {}

    def begin_collective(
        self, simulator: Simulator, group: Group, node: Node, end: Callable[[], None]
    ) -> None:
        """Begin an all-to-all once its circuits are there; other collectives as ever."""
        if group.kind != "ep" or node.pattern is not Pattern.ALL_TO_ALL:
            super().begin_collective(simulator, group, node, end)
            return
        region = self._regions.get(group)
        if region is None:
            layers = self._layers(group)
            seed = group.members[0] + self._fabric.draw * _SEEDS_OF_A_DRAW
            region = _Region(self._fabric, len(group.members), layers, self._first, seed)
            self._regions[group] = region
        if not region.expects(node):
            raise WorkloadError(
                f"{node.name} is not the next all-to-all of a step whose layers have one after "
                "another: circuits and drawn loads are of steps of one micro-batch"
            )
        rows = region.rows(node.amount * self._ranks)
        for rank, sent in enumerate(rows.astype(int).tolist()):
            region.control.wants(rank, sent)
        since = simulator.now

        def begin() -> None:
            simulator.circuits_came(group.members, "ep", since)
            traffic = rows.copy()
            np.fill_diagonal(traffic, 0)
            took = exchange_time(traffic, region.links, self._fabric.packet)
            if took == inf:
                raise WorkloadError("a pair of servers has no circuit, and they have no packet NIC")
            took = took / self.bandwidths["circuit"] + self.timing.latency + self.timing.endpoint
            simulator.at(simulator.now + int(took), ended)

        def ended() -> None:
            for rank in range(len(group.members)):
                region.control.ended(rank)
            region.number += 1
            self._go_on(simulator, region, None)
            end()

        self._go_on(simulator, region, begin)

    def _layers(self, group: Group) -> int:
        nodes = self._workload.graph(group.members[0]).nodes
        count = sum(
            node.kind is Kind.COLLECTIVE
            and node.pattern is Pattern.ALL_TO_ALL
            and self._workload.groups[group.members[0]][node.group].kind == "ep"
            for node in nodes
        )
        if count % 4:
            raise WorkloadError(f"found {count} all-to-alls, expected four of each layer")
        return count // 4

    def _go_on(
        self, simulator: Simulator, region: _Region, begin: Callable[[], None] | None
    ) -> None:
        """Change circuits that are due, and begin the all-to-all that may."""
        region.control.learn()
        if region.changing:
            if begin is not None:
                region.waiting = begin
            return
        due = region.control.due()
        if due is not None:
            links = region.planned(due.demand)
            if (links == region.links).all():
                region.control.changed()
            else:
                region.changing = True
                if begin is not None:
                    region.waiting = begin
                self._change(simulator, region, links)
                return
        if begin is not None and region.control.permitted():
            begin()

    def _change(self, simulator: Simulator, region: _Region, links: LinkCounts) -> None:
        self.changes += 1
        took = self._switching if isinstance(self._switching, int) else self._switching()

        def made() -> None:
            region.links, region.changing = links, False
            region.control.changed()
            begin, region.waiting = region.waiting, None
            self._go_on(simulator, region, begin)

        simulator.at(simulator.now + took, made)


@dataclass(frozen=True, slots=True)
class Regions:
    """Servers with `optical` NICs on circuits and `packet` NICs on packet switches.

    link: bytes a nanosecond of a NIC. rates: those of a rank where all goes over packets. optical:
    of all servers, or of each of a region. packet: also a part, of NICs of another rate. draw: the
    number of the draw of loads. scatter: spread of a server's own loads about those of all.
    loads: of a region's servers in place of what is drawn, in any unit.
    """

    rates: Rates
    link: float
    optical: int | Sequence[int]
    packet: float
    skew: float
    modes: tuple[str, ...] = ("block", "predict", "reuse", "static", "packet")
    draw: int = 0
    scatter: float = 0.0
    loads: tuple[float, ...] = ()

    def folds(self, mode: str) -> bool:
        """Each server of a region has traffic of its own, unless loads are even."""
        return mode == "packet" and not (self.skew or self.scatter or self.loads)

    def changes(self, mode: str) -> bool:
        """Whether the switching time matters."""
        return mode not in {"static", "packet"}

    def assumptions(self, mode: str) -> tuple[str, ...]:
        """Return what else the answer rests on."""
        drawn = f"loads of experts are drawn, as exp({self.skew:g} x) with x normal: not measured"
        if self.loads:
            drawn = f"loads of experts are stated: {', '.join(f'{one:g}' for one in self.loads)}"
        if mode == "packet":
            return ("packet switches give each kind of link its full rate at once", drawn)
        circuits = {
            "static": "one set of circuits for all layers, planned from their mean demand",
            "block": "circuits follow each layer's gate, and its first all-to-all waits for them",
            "predict": "circuits follow predicted loads, corrected by the gate behind the experts; "
            "in a first step a layer's load is predicted to be that of the layer before",
            "reuse": "a layer's first all-to-all has the circuits of the layer before",
        }[mode]
        return (
            circuits,
            drawn,
            "a server is a tensor-parallel group, with an expert of each layer; what goes over no "
            f"circuit has its {self.packet:g} packet NICs",
        )

    def scaled(self, factor: float) -> Regions:
        """Return the same with other rates out of servers."""
        return replace(self, rates=self.rates.scaled(factor), link=self.link * factor)

    @property
    def carried(self) -> Mapping[Hashable, float]:
        """No link is shared."""
        return {}

    def bill(self, workload: Workload, mode: str) -> Bill | None:
        """Return the network's cost by the paper's prices (Table 4); it prints no power."""
        prices = PRICES.get(round(self.link * 8))
        if prices is None or not isinstance(self.optical, int) or self.packet % 1:
            return None
        servers = workload.ranks // workload.folded.get("TP", 1)
        if mode == "packet":
            each = fat_tree_cost(prices, self.optical + int(self.packet))
            return Bill(float(each * servers), None, "a fat tree of three tiers, with NICs")
        each = mixnet_cost(prices, self.optical, int(self.packet))
        return Bill(float(each * servers), None, "circuits beside a fat tree, with NICs")

    def network(self, workload: Workload, mode: str, switching: Switching) -> DedicatedLinks:
        """Return the network of a step of that workload."""
        bandwidths, timing = dict(self.rates.bandwidths), self.rates.timing
        if self.folds(mode):
            return DedicatedLinks(bandwidths, timing, switched=True)
        ranks = workload.ranks // len(workload.graph_of)
        bandwidths["circuit"] = self.link
        if mode == "packet":  # no circuits, and all that its ranks send on packets
            whole = replace(self, optical=0, packet=ranks * self.rates.scale_out / self.link)
            return RegionalCircuits(whole, workload, bandwidths, timing, switching, "static")
        bandwidths["dp"] = bandwidths["pp"] = self.link * self.packet / ranks
        return RegionalCircuits(self, workload, bandwidths, timing, switching, mode)

    def simulate(self, workload: Workload, mode: str, switching: Switching) -> StepTimes:
        """Return the step."""
        return Simulator(workload, self.network(workload, mode, switching)).run()


def regions(options: Options) -> Regions:
    """Return the fabric of `mixnet:optical=6,packet=2,skew=0.5`: NICs of a server, of each kind.

    Of a testbed file they are those of its server that has fewest on circuits.
    """
    optical, packet, link = 6, 2, ""
    if options.testbed is not None:
        try:
            servers = Region.of(options.testbed).servers
        except RegionError as error:
            raise FabricError(str(error)) from None
        least = min(servers, key=lambda server: len(server.optical))
        optical, packet = len(least.optical), len(least.packet)
        link = f"{min(nic.rate_bps for _, nic in options.testbed.nics)} bit/s"
    rates = Rates.of(options)
    found = Regions(
        rates,
        options.rate("link", link or f"{round(rates.scale_out * 8e9)} bit/s"),
        int(options.number("optical", optical)),
        int(options.number("packet", packet, 0)),
        options.number("skew", 0.5, 0.0),
    )
    options.end()
    if found.skew > 10:
        raise FabricError(f"mixnet: skew: found {found.skew:g}, expected at most 10")
    return found
