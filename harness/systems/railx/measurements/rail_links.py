"""Topologies of a RailX fabric as its switches report them, and changes of its X-rails alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.stages import Reconfiguration
from lightrig.harness.record import Row, Scalar
from lightrig.testbeds import Plan

if TYPE_CHECKING:
    import networkx as nx


def reported_plan(fabric: Fabric) -> Plan:
    """Return the circuits that all switches report now, as a plan."""
    switches = fabric.bench.switches
    return Plan("reported", {name: switch.circuits() for name, switch in switches.items()})


def reported_graph(fabric: Fabric) -> nx.MultiGraph:
    """Return the servers, and an edge for each link that the reported circuits close."""
    import networkx as nx  # suites are collected without it

    graph = nx.MultiGraph()
    graph.add_nodes_from(fabric.testbed.servers)
    graph.add_edges_from(
        (link.a.owner, link.b.owner) for link in fabric.testbed.links(reported_plan(fabric))
    )
    return graph


@dataclass(eq=False)
class PhaseChanges:
    """Changes of all X-rails from one logical dimension to another, recorded."""

    _fabric: Fabric
    _reconfigure: Callable[[Plan], Reconfiguration]
    _record: Callable[[Iterable[Row]], None]
    _events: int = field(default=0, init=False)

    def change(self, plan: Plan) -> Reconfiguration:
        """Apply `plan`, which changes X-switches only, and record how long its links take if known.

        Raises what `Measure.reconfiguration` does.
        """
        event = self._reconfigure(plan)
        number, self._events = self._events, self._events + 1
        total = event.stages().get("first_datagram")
        if total is None:  # unknown of the event as a whole
            return event
        name, time = self._fabric.testbed.name, event.sent.earliest
        conditions: dict[str, Scalar] = {"event": number, "plan": plan.name}
        middle = (total.earliest + total.latest) // 2
        rows = [
            Row(
                name,
                "phase_change.total",
                middle,
                total.earliest,
                total.latest,
                "ns",
                time,
                conditions,
            )
        ]
        outside = [
            str(spec.port)
            for spec in self._fabric.testbed.nic_ports
            if not spec.port.name.startswith("x")
        ]
        if outside:
            lost = {seen.subject for seen in event.seen if seen.stage == "carrier_down"}
            share = sum(port not in lost for port in outside) / len(outside)
            rows.append(
                Row(
                    name,
                    "phase_change.unaffected",
                    share,
                    None,
                    None,
                    "share",
                    time,
                    {**conditions, "ports": len(outside)},
                )
            )
        self._record(rows)
        return event
