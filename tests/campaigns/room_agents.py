"""Agents of the switches in a `Switchroom`, which see carriers by its light alone."""

from collections.abc import Mapping

import httpx

from lightrig.harness.orchestration.agents import (
    AgentSwitches,
    CarrierAnswer,
    HostAgent,
    Orders,
    switches_by_host,
)
from lightrig.harness.orchestration.layout import Layout
from lightrig.testbeds import Circuit, Port
from tests.campaigns.switchroom import Switchroom, beams

_KNOWN: dict[Switchroom, tuple[dict[str, frozenset[Circuit]], set[tuple[Port, Port]]]] = {}


def _beams(room: Switchroom) -> set[tuple[Port, Port]]:
    """Return `beams` of a room, which all of its agents ask for; followed anew after a change."""
    if room not in _KNOWN or _KNOWN[room][0] != room.circuits:
        _KNOWN[room] = dict(room.circuits), beams(room.testbed, room.circuits)
    return _KNOWN[room][1]


class RoomCarriers:
    """Carriers of a server, as the light of a room's circuits has them."""

    def __init__(self, room: Switchroom, host: str) -> None:
        self._room, self._host = room, host

    def read(self) -> Mapping[str, CarrierAnswer]:
        lit = {sink for source, sink in _beams(self._room) if source.owner not in self._room.unlit}
        return {
            str(spec.port): CarrierAnswer(up=spec.port in lit, ages=None)
            for spec in self._room.testbed.nic_ports
            if spec.port.owner == self._host
        }

    def partners(self) -> None:
        """See `Carriers`: nothing is heard."""

    def close(self) -> None:
        pass


class Hosts:
    """An agent for each server of a room, reached without a wire; one without an agent refuses."""

    def __init__(self, room: Switchroom, layout: Layout) -> None:
        self.room = room
        self.names = switches_by_host(layout, room.testbed.optical_switches)
        self._agents: dict[str, HostAgent] = {}
        for host in self.names:
            self.start(host)

    def start(self, host: str, names: frozenset[str] | None = None, name: str = "") -> None:
        self._agents[host] = HostAgent(
            name or host,
            names or self.names[host],
            self.room,
            lambda: RoomCarriers(self.room, host),
        )

    def end(self, host: str) -> None:
        del self._agents[host]

    def client(self, host: str) -> httpx.Client:
        def answer(request: httpx.Request) -> httpx.Response:
            if host not in self._agents:
                raise httpx.ConnectError("Connection refused")
            agent = self._agents[host]
            if request.url.path == "/v1/probe":
                found = agent.probe()
            else:
                found = agent.order(Orders.model_validate_json(request.content))
            return httpx.Response(200, stream=httpx.ByteStream(found.model_dump_json().encode()))

        return httpx.Client(base_url="http://agent", transport=httpx.MockTransport(answer))

    def switches(self) -> AgentSwitches:
        clients = {host: self.client(host) for host in self.names}
        return AgentSwitches(self.names, clients, self.room)
