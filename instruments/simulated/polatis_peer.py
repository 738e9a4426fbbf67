"""Answers like a Polatis over TL1; knows nothing of any driver.

Codes and texts are those of the vendor's test suite. Not confirmed, and therefore chosen:
the code for a port in use (SRCN), for a missing login (PLNA), and the power that a dark
port shows (-60.00 dBm).
"""

import re
from collections.abc import Callable, Mapping

from instruments.clock import Span
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings
from instruments.simulated.tl1_peer import Answer, Refusal, Request, Tl1Dialogue
from testbeds import Circuit, SwitchSpec

SHORTEST_WINDOW = 10_000_000
"""The monitors' shortest averaging window in ns; each step of ATIME doubles it."""


class PolatisPeer:
    """One simulated switch, for any number of TL1 sessions.

    The switch's option `rerouting` says whether connecting a port in use moves it or is denied.
    """

    def __init__(self, around: Surroundings) -> None:
        assert isinstance(around.spec, SwitchSpec)
        assert around.matrix is not None
        self._spec = around.spec
        self._matrix = around.matrix
        self._clock = around.clock
        self._truth = around.truth
        self._login = around.login
        self._serial = around.serial
        self._rerouting = bool(self._spec.options.get("rerouting", False))
        self._lists: dict[str, list[int]] = {}
        self._commands: dict[str, Callable[[Request], Answer]] = {
            "RTRV-HDR": lambda _: Answer(),
            "RTRV-NETYPE": self._network_element,
            "RTRV-INV": self._inventory,
            "RTRV-EQPT": self._equipment,
            "RTRV-PATCH": self._circuits,
            "ENT-PATCH": self._connect,
            "DLT-PATCH": self._disconnect,
            "RTRV-PORT-POWER": self._power,
            "RTRV-PORT-PMON": self._monitors,
        }

    def wires(self) -> Mapping[str, SessionFactory]:
        """TL1 on a raw socket."""
        return {"tl1": self.session}

    def session(self, connection: PeerConnection, index: int) -> Tl1Dialogue:
        """A new client's session."""
        return Tl1Dialogue(
            connection, self._clock, f"{self._spec.name}#{index:04d}", self._spec.name, self.execute
        )

    def execute(self, session: Tl1Dialogue, request: Request) -> Answer:
        """Carry out one command, or raise `Refusal`."""
        if request.verb == "ACT-USER":
            return self._log_in(session, request)
        if session.user is None:
            raise Refusal("PLNA", "Not logged in")
        match request.verb:
            case "CANC-USER":
                if request.aid != session.user:
                    raise Refusal("PICC", " Permission denied ")
                session.user = None
                return Answer()
            case "OPR-ARC-EQPT" | "RLS-ARC-EQPT":
                session.reports = request.verb.startswith("RLS")
                return Answer()
        command = self._commands.get(request.verb)
        if command is None:
            raise Refusal("IICC", "Invalid command")
        return command(request)

    def _log_in(self, session: Tl1Dialogue, request: Request) -> Answer:
        if session.user is not None:
            raise Refusal("PICC", "Already logged in")
        if len(request.blocks) < 2 or not request.blocks[1]:
            raise Refusal("IPMS", "Too few parameters (0/1) in block 1")
        if (request.aid, request.blocks[1]) != self._login:
            raise Refusal("PICC", "Authentication failure")
        session.user = request.aid
        return Answer()

    def _network_element(self, _: Request) -> Answer:
        size = f"{self._spec.ingress_count}x{self._spec.egress_count}"
        return Answer([f"Polatis,N-VST-{size}-LU1-DMHNV-701,OCS,6.7.3.9"])

    def _inventory(self, _: Request) -> Answer:
        return Answer([f"OCS::SN={self._serial}"])

    def _equipment(self, request: Request) -> Answer:
        asked = request.blocks[-1].upper() if request.blocks else ""
        if request.aid.upper() != "SYSTEM" or asked != "PARAMETER=SIZE":
            raise Refusal("IDNV", "Bad parameter value")
        return Answer([f"SYSTEM:SIZE={self._spec.ingress_count}x{self._spec.egress_count}"])

    def _circuits(self, request: Request) -> Answer:
        every = not request.aid or request.aid.upper() == "ALL"
        wanted = None if every else self._ports(request.aid)
        return Answer(
            [
                f"{ingress},{egress}"
                for ingress, egress in sorted(self._matrix.egress_of.items())
                if wanted is None or ingress in wanted or egress in wanted
            ]
        )

    def _connect(self, request: Request) -> Answer:
        sides = request.aid.split(",")
        if len(sides) != 2:
            raise Refusal("IIAC", f"Too few parameters ({len(sides)}/2)")
        ingress, egress = (self._ports(side) for side in sides)
        if not ingress or len(ingress) != len(egress):
            raise Refusal("IIAC", "Empty parameters" if not ingress else "Unequal lists")
        for port in ingress:
            if port not in self._spec.ingress_ports:
                raise Refusal("IDNV", f"Invalid OXC port: {port}")
        for port in egress:
            if port not in self._spec.egress_ports:
                raise Refusal("IDNV", f"Invalid OXC port: {port}")
        circuits = [Circuit(*pair) for pair in zip(ingress, egress, strict=True)]
        if len({*ingress, *egress}) != 2 * len(circuits):
            raise Refusal("IIAC", "Port given twice")
        if not self._rerouting:
            for circuit in circuits:
                made = self._matrix.egress_of.get(circuit.ingress)
                if made != circuit.egress and (
                    made is not None or circuit.egress in self._matrix.ingress_of
                ):
                    raise Refusal("SRCN", f"Port in use: {circuit}")
        return self._acknowledged(self._matrix.connect(circuits))

    def _disconnect(self, request: Request) -> Answer:
        if not request.aid or request.aid.upper() == "ALL":
            return self._acknowledged(self._matrix.disconnect(list(self._matrix.egress_of)))
        return self._acknowledged(self._matrix.disconnect(self._ports(request.aid)))

    def _acknowledged(self, after: int) -> Answer:
        def then() -> None:
            now = self._clock.now()
            self._truth.note(self._spec.name, "acknowledged", up=True, at=Span(now, now))

        return Answer((), after, then)

    def _power(self, request: Request) -> Answer:
        ports = self._monitored(request.aid)
        readings = zip(ports, self._matrix.readings(ports), strict=True)
        return Answer([f"{port}:{dbm:.2f}" for port, dbm in readings])

    def _monitors(self, request: Request) -> Answer:
        step = (self._matrix.averaging // SHORTEST_WINDOW).bit_length()
        return Answer([f"{port}:1310.0,0.00,{step}" for port in self._monitored(request.aid)])

    def _monitored(self, aid: str) -> list[int]:
        ports = self._ports(aid) if aid and aid.upper() != "ALL" else [*self._spec.egress_ports]
        monitored = self._spec.egress_ports
        for port in ports:
            if port not in monitored:
                raise Refusal("IDNV", f"Port has no power monitor: {port}")
        return ports

    def _ports(self, aid: str) -> list[int]:
        if aid not in self._lists:
            if len(self._lists) > 1000:
                self._lists.clear()
            self._lists[aid] = self._parse_ports(aid)
        return self._lists[aid]

    def _parse_ports(self, aid: str) -> list[int]:
        ports: list[int] = []
        for item in filter(None, re.split(r"(?<!&)&(?!&)", aid)):
            first, separator, last = item.partition("&&")
            for bound in (first, last) if separator else (first,):
                if not bound.isdigit() or not 1 <= int(bound) <= self._highest_port:
                    raise Refusal("IDNV", f"Invalid OXC port: {bound}")
            ports.extend(range(int(first), int(last if separator else first) + 1))
        return ports

    @property
    def _highest_port(self) -> int:
        return self._spec.ingress_count + self._spec.egress_count
