"""Calient S-series matrix switches over TL1: S320, S160, Edge640."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import Identity, Operation, PowerReading
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.instrument import Instrument, Option, within
from lightrig.instruments.core.position_switch import PendingMove
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.instruments.wire.pipelined import Pending
from lightrig.instruments.wire.tl1 import Reply, Tl1Session
from lightrig.testbeds import Circuit

_CLIENT = "QualiSystems/cloudshell-L1-calient, 1a77864"
_NONE_DBM = -60.0
_WINDOW = 100_000_000
_MEANINGS = {
    "PIUI": ("it refused the login", "the credential that `login:` names"),
    "PLNA": ("the session is not logged in", "does the testbed's `login:` name a credential?"),
    "IIAC": ("it has no such port", "the options slots_per_shelf and ports_per_slot, and `size:`"),
    "SRCN": ("a port is part of another connection", "whose? RTRV-CRS lists them all"),
}


@dataclass(frozen=True, slots=True)
class _Connection:
    """A cross-connect, as the switch lists it."""

    source: str
    target: str
    group: str
    name: str
    both: bool
    ready: bool


class CalientS(Instrument):
    """A switch whose ports are named shelf.slot.port, and have a fiber in and a fiber out.

    Port k, counted through slots and shelves, is ingress k and egress N + k. The driver makes
    one-way cross-connects in a group of its own. A two-way one counts as two circuits, of which
    one alone cannot be taken down.

    Making is two commands (enter, activate), taking down two more (cancel, delete); all those
    of a change are sent without waiting, and the switch carries them out in order.

    Source: QualiSystems/cloudshell-L1-calient, its commit ba2f7b1 for taking down by name, and
    the replies that its tests have recorded.
    """

    schemes = ("tl1",)
    shared_options = ("terminal",)
    sizes = "NxN"
    wire_facts = (
        WireFact("TCP port 3082 without a prompt", "manual of Lawo VSM"),
        WireFact("TCP port 3083 with the prompt `agent>`; state it in `address:`", _CLIENT),
        WireFact("ENT-CRS, ACT-CRS, RTRV-CRS, RTRV-PORT-SUM, RTRV-NE", f"{_CLIENT}, recorded"),
        WireFact(
            "CANC-CRS and DLT-CRS by the name of the connection",
            "QualiSystems/cloudshell-L1-calient, ba2f7b1",
        ),
        WireFact("bulk set-up within 200 ms", "Calient S320 Hardware User Guide, page 44"),
        WireFact("eight ports to a slot and eight slots to a shelf (options)"),
        WireFact("pages of a long reply that end with `>`, as in Telcordia GR-831"),
        WireFact("averaging of power readings over 100 ms"),
        WireFact("NONE as the power of a dark port"),
        WireFact("codes of denials"),
    )
    ports = Option(int, 0, "number of ports", attribute="ingress_count")
    group = Option(str, "LIGHTRIG", "group of the cross-connects that are made")
    slots = Option(within(int, 1, 64), 8, "slots in a shelf", key="slots_per_shelf")
    ports_per_slot = Option(within(int, 1, 64), 8, "ports in a slot")

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self._commands, self._monitor = (
            Tl1Session(
                name,
                endpoint.host,
                endpoint.port or 3082,
                clock,
                endpoint.login,
                meanings=_MEANINGS,
                timeouts=endpoint.timeouts,
            )
            for _ in range(2)  # light can be read while a change of circuits is under way
        )
        self.sessions = (self._commands, self._monitor)

    def ask(self, command: str) -> str:
        """See `Tl1Session.ask`."""
        return self._commands.ask(command)

    def identity(self) -> Identity:
        """Return chassis, serial number and software package."""
        lines = self._commands.command("RTRV-NE").lines
        fields = _fields(lines[0]) if lines else {}
        if not {"SERIALNUMBER", "SWPACKAGE", "CHASSISTYPE"} <= fields.keys():
            raise self.garbled("RTRV-NE", lines, "identity")
        return Identity(
            "Calient", fields["CHASSISTYPE"], fields["SERIALNUMBER"], fields["SWPACKAGE"]
        )

    def circuits(self) -> frozenset[Circuit]:
        """Return every cross-connect that is ready; one that was only entered carries no light."""
        return frozenset(
            circuit
            for one in self._connections()
            if one.ready
            for circuit in self._circuits_of(one)
        )

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to take down `remove` and make `add`.

        Raises `DeniedError` for half of a two-way cross-connect before anything is sent.
        """
        steps: list[Pending[Reply]] = []
        for one in self._to_remove(frozenset(remove)) if remove else ():
            steps.append(self._commands.submit("CANC-CRS", "", "", one.name))
            steps.append(self._commands.submit("DLT-CRS", "", "", one.name))
        for circuit in sorted(add):
            source, target = (
                self._port_name(circuit.ingress),
                self._port_name(circuit.egress - self.ports),
            )
            ends = f"{source},{target}"
            entered = f"{self.group},1WAY"
            steps.append(self._commands.submit("ENT-CRS", ends, "", entered))
            active = f"{source}>{target},{self.group}"
            steps.append(self._commands.submit("ACT-CRS", ends, "", active))
        now = self.clock.now()
        sent = Span(steps[0].sent.earliest, steps[-1].sent.latest) if steps else Span(now, now)

        def finish() -> Span:
            replies = [step.result() for step in steps]
            if not replies:
                return Span(sent.latest, sent.latest)
            return Span(
                max(reply.not_before for reply in replies),
                max(reply.received for reply in replies),
            )

        return PendingMove(sent, finish)

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Return the power at `ports` in dBm: into an ingress, out of an egress."""
        asked = self.clock.now()
        names = {p: self._port_name(p if p <= self.ports else p - self.ports) for p in ports}
        pending = {
            name: self._monitor.submit("RTRV-PORT-SUM", name) for name in set(names.values())
        }
        replies = {name: one.result() for name, one in pending.items()}
        dbm = {}
        for port, name in names.items():
            lines = replies[name].lines
            text = _fields(lines[0] if lines else "").get(
                "INPWR" if port <= self.ports else "OUTPWR", ""
            )
            try:
                dbm[port] = _NONE_DBM if text == "NONE" else float(text)
            except ValueError as error:
                raise self.garbled("RTRV-PORT-SUM", lines, "power reading") from error
        answered = max((reply.received for reply in replies.values()), default=asked)
        return PowerReading(asked, answered, _WINDOW, dbm)

    # ---------------------------------------------------------------------- connections

    def _connections(self) -> list[_Connection]:
        lines = self._commands.command("RTRV-CRS", "", "", "ALL").lines
        found = []
        for line in lines:
            fields = _fields(line)
            if not {"SRCPORT", "DSTPORT", "GRPNAME", "CONNNAME", "CONNTYPE", "OS"} <= set(fields):
                raise self.garbled("RTRV-CRS", line, "cross-connect")
            found.append(
                _Connection(
                    fields["SRCPORT"],
                    fields["DSTPORT"],
                    fields["GRPNAME"],
                    fields["CONNNAME"],
                    fields["CONNTYPE"] == "2WAY",
                    fields["OS"] == "RDY",
                )
            )
        return found

    def _to_remove(self, remove: frozenset[Circuit]) -> list[_Connection]:
        found = []
        for one in self._connections():
            circuits = set(self._circuits_of(one))
            if circuits <= remove:
                found.append(one)
            elif circuits & remove:
                raise self.refused(
                    f"{one.name} is a two-way connection of group {one.group}; one half of it"
                    " cannot be taken down alone",
                    advice="take it down by hand",
                    command="CANC-CRS",
                )
        return found

    def _circuits_of(self, one: _Connection) -> Iterable[Circuit]:
        source, target = self._port_number(one.source), self._port_number(one.target)
        yield Circuit(source, self.ports + target)
        if one.both:
            yield Circuit(target, self.ports + source)

    def _port_name(self, port: int) -> str:
        rest, number = divmod(port - 1, self.ports_per_slot)
        shelf, slot = divmod(rest, self.slots)
        return f"{shelf + 1}.{slot + 1}.{number + 1}"

    def _port_number(self, name: str) -> int:
        match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", name)
        if match is None:
            raise self.garbled("RTRV-CRS", name, "port")
        shelf, slot, port = map(int, match.groups())
        return ((shelf - 1) * self.slots + slot - 1) * self.ports_per_slot + port


def _fields(line: str) -> dict[str, str]:
    """Parse `name:KEY=value,KEY=value`."""
    _, _, rest = line.partition(":")
    return {key: value for key, _, value in (field.partition("=") for field in rest.split(","))}
