"""Calient S-series matrix switches over TL1: S320, S160, Edge640."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from instruments.capabilities import Identity, Operation, PowerReading
from instruments.clock import Clock, Span
from instruments.errors import CANNOT, DeniedError, GarbledError
from instruments.registry import Spec
from instruments.switches.selector import Moved
from instruments.way import Way
from instruments.wire.tagged import Pending
from instruments.wire.tl1 import Reply, Tl1Session
from testbeds import Circuit

_NONE_DBM = -60.0
_WINDOW = 100_000_000
_MEANINGS = {
    "PIUI": ("it refused the login", "the credential that `login:` names"),
    "PLNA": ("nobody is logged in", "does the testbed's `login:` name a credential?"),
    "IIAC": ("it has no such port", "the options slots_per_shelf and ports_per_slot, and `size:`"),
    "SRCN": ("a port is part of another connection", "whose? RTRV-CRS lists them all"),
}


@dataclass(frozen=True, slots=True)
class _Connection:
    """One cross-connect, as the switch lists it."""

    source: str
    target: str
    group: str
    name: str
    both: bool
    ready: bool


class Calient:
    """A switch whose ports are named shelf.slot.port, and have a fiber in and a fiber out.

    Port k, counted through slots and shelves, is ingress k and egress N + k. Ours are one-way
    cross-connects in a group of our own. A two-way one counts as two circuits, of which one
    alone cannot be taken down.

    Making is two commands (enter, activate), taking down two more (cancel, delete); all those
    of a change are sent without waiting, and the switch carries them out in order.

    Source: what a public driver and its recorded answers show. Guessed: that ports are counted
    eight to a slot and eight slots to a shelf, that a long answer's pages but the last end with
    `>` (Telcordia GR-831), the averaging of power readings (100 ms), and what dark ports show.

    Args:
        name: the switch's name in the testbed.
        host: name or address.
        clock: the bench's clock.
        ports: how many ports it has.
        port: TCP port of TL1.
        login: user and password.
        group: of our cross-connects (option `group`).
        slots: in a shelf (option `slots_per_shelf`).
        in_slot: ports in a slot (option `ports_per_slot`).
    """

    schemes = ("tl1",)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "Calient":
        """The driver of the switch that `spec` describes."""
        options = spec.options
        return cls(
            spec.name,
            way.host,
            clock,
            ports=getattr(spec, "ingress_count", 0),
            port=way.port or 3082,
            login=way.login,
            group=str(options.get("group", "LIGHTRIG")),
            slots=int(options.get("slots_per_shelf", 8)),
            in_slot=int(options.get("ports_per_slot", 8)),
        )

    def __init__(
        self,
        name: str,
        host: str,
        clock: Clock,
        *,
        ports: int,
        port: int = 3082,
        login: tuple[str, str] | None = None,
        group: str = "LIGHTRIG",
        slots: int = 8,
        in_slot: int = 8,
    ) -> None:
        self.name = name
        self._clock = clock
        self._ports = ports
        self._group = group
        self._slots, self._in_slot = slots, in_slot
        self._commands = Tl1Session(name, host, port, clock, login, meanings=_MEANINGS)
        self._monitor = Tl1Session(name, host, port, clock, login, meanings=_MEANINGS)

    def identity(self) -> Identity:
        """Chassis, serial number and software package."""
        lines = self._commands.command("RTRV-NE").lines
        fields = _fields(lines[0]) if lines else {}
        if not {"SERIALNUMBER", "SWPACKAGE", "CHASSISTYPE"} <= fields.keys():
            raise self._garbled("RTRV-NE", lines)
        return Identity(
            "Calient", fields["CHASSISTYPE"], fields["SERIALNUMBER"], fields["SWPACKAGE"]
        )

    def circuits(self) -> frozenset[Circuit]:
        """Every cross-connect that is ready; one that was only entered carries no light."""
        return frozenset(
            circuit for one in self._connections() if one.ready for circuit in self._of(one)
        )

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to take down `remove` and make `add`.

        Raises `DeniedError` for half of a two-way cross-connect before anything is sent.
        """
        steps: list[Pending[Reply]] = []
        for one in self._to_remove(frozenset(remove)) if remove else ():
            ends, settings = f"{one.source},{one.target}", f",{one.group},{one.name}"
            steps.append(self._commands.submit("CANC-CRS", ends, "", settings))
            steps.append(self._commands.submit("DLT-CRS", ends, "", settings))
        for circuit in sorted(add):
            source, target = self._named(circuit.ingress), self._named(circuit.egress - self._ports)
            ends = f"{source},{target}"
            entered = f"{self._group},1WAY"
            steps.append(self._commands.submit("ENT-CRS", ends, "", entered))
            active = f"{source}>{target},{self._group}"
            steps.append(self._commands.submit("ACT-CRS", ends, "", active))
        now = self._clock.now()
        sent = Span(steps[0].sent.earliest, steps[-1].sent.latest) if steps else Span(now, now)

        def finish() -> Span:
            replies = [step.result() for step in steps]
            last = max((reply.received for reply in replies), default=sent.latest)
            return Span(last, last)

        return Moved(sent, finish)

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Power at `ports` in dBm: what comes in at an ingress, what goes out at an egress."""
        asked = self._clock.now()
        names = {p: self._named(p if p <= self._ports else p - self._ports) for p in ports}
        pending = {
            name: self._monitor.submit("RTRV-PORT-SUM", name) for name in set(names.values())
        }
        replies = {name: one.result() for name, one in pending.items()}
        dbm = {}
        for port, name in names.items():
            lines = replies[name].lines
            text = _fields(lines[0] if lines else "").get(
                "INPWR" if port <= self._ports else "OUTPWR", ""
            )
            try:
                dbm[port] = _NONE_DBM if text == "NONE" else float(text)
            except ValueError as error:
                raise self._garbled("RTRV-PORT-SUM", lines) from error
        answered = max((reply.received for reply in replies.values()), default=asked)
        return PowerReading(asked, answered, _WINDOW, dbm)

    def wire(self) -> list[str]:
        """The last lines of both sessions."""
        pieces = [*self._commands.trace.pieces(), *self._monitor.trace.pieces()]
        return [str(piece) for piece in sorted(pieces, key=lambda piece: piece.at)][-40:]

    def close(self) -> None:
        """End both sessions."""
        self._commands.close()
        self._monitor.close()

    # ---------------------------------------------------------------------- connections

    def _connections(self) -> list[_Connection]:
        lines = self._commands.command("RTRV-CRS", "", "", "ALL").lines
        found = []
        for line in lines:
            fields = _fields(line)
            if not {"SRCPORT", "DSTPORT", "GRPNAME", "CONNNAME", "CONNTYPE", "OS"} <= set(fields):
                raise self._garbled("RTRV-CRS", [line])
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
            circuits = set(self._of(one))
            if circuits <= remove:
                found.append(one)
            elif circuits & remove:
                raise DeniedError(
                    self.name,
                    code=CANNOT,
                    text=f"{one.name} is a two-way connection of group {one.group}; one half of it"
                    " cannot be taken down alone",
                    command="CANC-CRS",
                    details=[("try", "take it down by hand")],
                    trace=self.wire()[-6:],
                )
        return found

    def _of(self, one: _Connection) -> Iterable[Circuit]:
        source, target = self._number(one.source), self._number(one.target)
        yield Circuit(source, self._ports + target)
        if one.both:
            yield Circuit(target, self._ports + source)

    def _named(self, port: int) -> str:
        rest, number = divmod(port - 1, self._in_slot)
        shelf, slot = divmod(rest, self._slots)
        return f"{shelf + 1}.{slot + 1}.{number + 1}"

    def _number(self, name: str) -> int:
        match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", name)
        if match is None:
            raise self._garbled("RTRV-CRS", [name])
        shelf, slot, port = map(int, match.groups())
        return ((shelf - 1) * self._slots + slot - 1) * self._in_slot + port

    def _garbled(self, command: str, lines: Sequence[str]) -> GarbledError:
        return GarbledError(
            self.name,
            "answered something that makes no sense",
            command=command,
            details=[("answered", repr("; ".join(lines))[:200])],
            trace=self.wire()[-6:],
        )


def _fields(line: str) -> dict[str, str]:
    """`name:KEY=value,KEY=value` by key."""
    _, _, rest = line.partition(":")
    return {key: value for key, _, value in (field.partition("=") for field in rest.split(","))}
