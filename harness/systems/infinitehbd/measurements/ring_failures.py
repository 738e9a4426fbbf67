"""Servers of a ring that fail and rejoin, as a test makes and records it."""

from collections.abc import Callable, Iterable
from pathlib import Path

from lightrig.harness.bench import Fabric
from lightrig.harness.jobs.planning.rings import ring_order
from lightrig.harness.measure.links import LINK_TIMEOUT, LinkObservation
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import FabricSwitches
from lightrig.harness.record import Row
from lightrig.harness.systems.infinitehbd.measurements.bypass import (
    Collective,
    NodeFailure,
    bypass_failed_node,
    failure_rows,
    rejoin,
)
from lightrig.harness.systems.infinitehbd.runtime.layout import RowLayout
from lightrig.testbeds import Plan


class RingFailures:
    """All servers of a testbed in one ring, which its orchestrator closes past failed ones.

    Args:
        fabric: with the plan `whole` in place, whose links are up, before the first failure.
        links: the observation of the servers' links.
        record: takes the rows.
        state: file of the orchestrator's state.
    """

    def __init__(
        self,
        fabric: Fabric,
        links: LinkObservation,
        record: Callable[[Iterable[Row]], None],
        state: Path,
    ) -> None:
        self._fabric = fabric
        self._links = links
        self._record = record
        self.servers = list(fabric.testbed.servers)
        self._orchestrator = Orchestrator(
            fabric.testbed,
            RowLayout(fabric.testbed),
            FabricSwitches(fabric),
            state,
        )
        self._orchestrator.plan({"do": "submit", "job": "all", "shape": {"size": 0}})
        self._power_on: dict[str, Callable[[], None]] = {}
        self._events = 0

    def bypass(self, server: str, collective: Collective | None = None) -> NodeFailure:
        """Cut `server` off its power and record how the ring closes without it.

        Raises what `bypass_failed_node` does.
        """
        world = self._fabric.bench.world
        assert world is not None, "servers are namespaces, whose light is simulated"

        def power_off() -> None:
            self._power_on[server] = world.power_off(server)

        def plan_without() -> Plan:  # called once the failure is noticed; its time is measured
            return self._orchestrator.plan({"do": "failed", "nodes": [server]})

        found = bypass_failed_node(
            self._fabric,
            self._links,
            self._fabric.plans["whole"],
            server,
            power_off,
            plan_without,
            collective,
            timeout=LINK_TIMEOUT,
        )
        return self._recorded(found)

    def rejoin(self, server: str, collective: Collective | None = None) -> NodeFailure:
        """Give `server` its power back and record how the ring takes it in again.

        Raises what `rejoin` does.
        """

        def plan_with() -> Plan:
            return self._orchestrator.plan({"do": "repaired", "nodes": [server]})

        found = rejoin(
            self._fabric,
            self._links,
            server,
            self._power_on.pop(server),
            plan_with,
            collective,
            timeout=LINK_TIMEOUT,
        )
        return self._recorded(found)

    def order(self, plan: Plan) -> tuple[str, ...]:
        """Return the servers with power, in the order of the ring that `plan` closes."""
        # The orchestrator states a failed one once its circuits are set, which may be later.
        powered = [server for server in self.servers if server not in self._power_on]
        return ring_order(powered, self._fabric.testbed.links(plan))

    def power_on_all(self) -> None:
        """Give every server its power back."""
        while self._power_on:
            self._power_on.popitem()[1]()

    def _recorded(self, found: NodeFailure) -> NodeFailure:
        self._orchestrator.done()
        self._record(failure_rows(found, self._events))
        self._events += 1
        return found
