"""Answers like a Calient S-series switch over TL1; knows nothing of any driver.

A cross-connect is entered, then activated; it is deactivated, then deleted. Answers are those
that a public driver's tests have recorded. Guessed: the codes of refusals, the states of a
cross-connect that is entered only, how many lines a page has.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from instruments.clock import Span
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings
from instruments.simulated.tl1_peer import Answer, Refusal, Request, Tl1Dialogue
from testbeds import Circuit, SwitchSpec

PAGE = 20
"""Lines a page."""
ENTERING = 2_000_000
"""How long entering, deactivating and deleting take, in ns (a guess)."""

_SLOTS, _PORTS = 8, 8
_DARK_DBM = -60.0


@dataclass
class _Connection:
    source: int
    target: int
    group: str
    name: str
    both: bool
    active: bool = False

    def circuits(self, count: int) -> list[Circuit]:
        there = Circuit(self.source, count + self.target)
        return [there, Circuit(self.target, count + self.source)] if self.both else [there]


class CalientPeer:
    """Port k has a fiber in, ingress k, and a fiber out, egress N + k."""

    def __init__(self, around: Surroundings) -> None:
        assert isinstance(around.spec, SwitchSpec)
        assert around.matrix is not None
        self._around = around
        self._clock = around.clock
        self._count = around.spec.ingress_count
        self._matrix = around.matrix
        self._connections: dict[str, _Connection] = {}
        self._commands: dict[str, Callable[[Request], Answer]] = {
            "RTRV-NE": self._element,
            "RTRV-CRS": self._retrieve,
            "RTRV-PORT-SUM": self._port,
            "ENT-CRS": self._enter,
            "ACT-CRS": self._activate,
            "CANC-CRS": self._cancel,
            "DLT-CRS": self._delete,
        }

    def wires(self) -> Mapping[str, SessionFactory]:
        """TL1 on a raw socket."""
        return {"tl1": self._session}

    def _session(self, connection: PeerConnection, index: int) -> Tl1Dialogue:
        name = self._around.spec.name
        return Tl1Dialogue(connection, self._clock, f"{name}#{index:04d}", name, self._execute)

    def _execute(self, session: Tl1Dialogue, request: Request) -> Answer:
        if request.verb == "ACT-USER":
            if (request.aid, request.blocks[-1] if request.blocks else "") != self._around.login:
                raise Refusal("PIUI", "Invalid username or password")
            session.user = request.aid
            return Answer([f"{request.aid}:{request.aid},2"])
        if session.user is None:
            raise Refusal("PLNA", "Login Not Active")
        if request.verb == "CANC-USER":
            session.user = None
            return Answer()
        if request.verb in {"INH-MSG", "ALW-MSG"}:
            session.reports = request.verb == "ALW-MSG"
            return Answer()
        command = self._commands.get(request.verb)
        if command is None:
            raise Refusal("IICC", "Invalid command")
        return command(request)

    # ----------------------------------------------------------------------- retrieving

    def _element(self, _: Request) -> Answer:
        return Answer(
            [
                f"{self._around.spec.name}:SERIALNUMBER={self._around.serial},SWPACKAGE=6.0-3,"
                "STATUS=OK,CHASSISTYPE=S320,PLATFORM=VERSION2"
            ]
        )

    def _retrieve(self, _: Request) -> Answer:
        return Answer([self._worded(one) for one in self._connections.values()], page=PAGE)

    def _worded(self, one: _Connection) -> str:
        source, target = _named(one.source), _named(one.target)
        name = f"{source}{'-' if one.both else '>'}{target}"
        states = "AS=OOS-MA,OS=OOS"
        if one.active:
            lit = all(self._matrix.level(c.egress) > 0 for c in one.circuits(self._count))
            states = f"AS=UMA,OS=RDY,OC={'OK' if lit else 'FAIL'},PS=UPR,AL=CL"
        return (
            f"{name}:SRCPORT={source},DSTPORT={target},GRPNAME={one.group},CONNNAME={one.name},"
            f"CONNTYPE={'2WAY' if one.both else '1WAY'},{states}"
        )

    def _port(self, request: Request) -> Answer:
        port = self._known(request.aid)
        out, into = self._matrix.readings([self._count + port], [port])
        names = [
            (one.name, "ACT" if one.active else "INA")
            for one in self._connections.values()
            if port in {one.source, one.target}
        ]
        names += [("NONE", "NONE")] * 2
        stated = ",".join(
            f"CONNNAME{n}={name},CONNSTATE{n}={state}"
            for n, (name, state) in enumerate(names[:2], start=1)
        )
        return Answer(
            [f"{_named(port)}:ALIAS=NONE,INPWR={_power(into)},OUTPWR={_power(out)},{stated}"]
        )

    # ------------------------------------------------------------------------- changing

    def _ends(self, request: Request) -> tuple[int, int]:
        ends = request.aid.split(",")
        if len(ends) != 2:
            raise Refusal("IIAC", "Invalid number of ports")
        return self._known(ends[0]), self._known(ends[1])

    def _known(self, name: str) -> int:
        parts = name.split(".")
        if len(parts) == 3 and all(part.isdigit() for part in parts):
            shelf, slot, port = map(int, parts)
            number = ((shelf - 1) * _SLOTS + slot - 1) * _PORTS + port
            if 1 <= slot <= _SLOTS and 1 <= port <= _PORTS and 1 <= number <= self._count:
                return number
        raise Refusal("IIAC", f"Invalid port {name}")

    def _settings(self, request: Request) -> list[str]:
        return (request.blocks[-1] if request.blocks else "").split(",")

    def _enter(self, request: Request) -> Answer:
        source, target = self._ends(request)
        group, kind, *_ = [*self._settings(request), "", ""]
        if not group or kind not in {"1WAY", "2WAY"}:
            raise Refusal("IDNV", "Invalid group or connection type")
        both = kind == "2WAY"
        name = f"{_named(source)}{'-' if both else '>'}{_named(target)}"
        new = _Connection(source, target, group, name, both)
        taken = {
            port
            for one in self._connections.values()
            for c in one.circuits(self._count)
            for port in c
        }
        if any(port in taken for c in new.circuits(self._count) for port in c):
            raise Refusal("SRCN", "Port Not Idle; it is part of another connection")
        self._connections[name] = new
        return Answer(after=ENTERING)

    def _find(self, request: Request, name: str) -> _Connection:
        source, target = self._ends(request)
        one = self._connections.get(name)
        if one is None or (one.source, one.target) != (source, target):
            raise Refusal("RRNE", f"Failed, connection {name} does not exist")
        return one

    def _activate(self, request: Request) -> Answer:
        name, group, *_ = [*self._settings(request), ""]
        one = self._find(request, name)
        if group != one.group:
            raise Refusal("IDNV", "Invalid group")
        one.active = True
        return self._acknowledged(self._matrix.connect(one.circuits(self._count)))

    def _cancel(self, request: Request) -> Answer:
        one = self._named_last(request)
        if one.active:
            one.active = False
            self._matrix.disconnect([c.ingress for c in one.circuits(self._count)])
        return self._acknowledged(ENTERING)

    def _delete(self, request: Request) -> Answer:
        one = self._named_last(request)
        if one.active:
            raise Refusal("SAIS", "Failed, the connection is active")
        del self._connections[one.name]
        return Answer(after=ENTERING)

    def _named_last(self, request: Request) -> _Connection:
        settings = self._settings(request)
        if len(settings) != 3 or settings[0]:
            raise Refusal("IDNV", "Invalid group or connection name")
        one = self._find(request, settings[2])
        if settings[1] != one.group:
            raise Refusal("IDNV", "Invalid group")
        return one

    def _acknowledged(self, after: int) -> Answer:
        def then() -> None:
            now = self._clock.now()
            name = self._around.spec.name
            self._around.truth.note(name, "acknowledged", up=True, at=Span(now, now))

        return Answer((), after, then)


def _named(port: int) -> str:
    rest, number = divmod(port - 1, _PORTS)
    shelf, slot = divmod(rest, _SLOTS)
    return f"{shelf + 1}.{slot + 1}.{number + 1}"


def _power(dbm: float) -> str:
    return "NONE" if dbm <= _DARK_DBM or not math.isfinite(dbm) else f"{dbm:.2f}"
