"""Simulated Calient S-series switch over TL1.

A cross-connect is entered, then activated; it is deactivated, then deleted. Replies are those
that a public driver's tests have recorded; commands are accepted in the forms of
QualiSystems/cloudshell-L1-calient before and after its commit ba2f7b1 (`CANC-CRS:::::name`, no
ctag) and of the TNRC plugin of Phosphorus (`CANC-CRS::a,b:ctag::name`). Guessed: the codes of
denials, the states of a cross-connect that is entered only, the number of lines of a page.
"""

import math
from dataclasses import dataclass

from lightrig.instruments.simulated.devices.dialects import forms
from lightrig.instruments.simulated.protocols.commands import command
from lightrig.instruments.simulated.protocols.tl1_device import (
    Tl1Denial,
    Tl1Device,
    Tl1Reply,
    Tl1Request,
)
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.testbeds import Circuit, SwitchSpec

PAGE = 20
"""Lines per page."""
ENTERING = 2_000_000
"""Time of entering, deactivating and deleting, in ns (a guess)."""

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


class SimulatedCalientS(Tl1Device):
    """A switch whose port k has a fiber in, ingress k, and a fiber out, egress N + k."""

    not_logged_in = "Login Not Active"
    tag_required = False

    def __init__(self, context: DeviceContext) -> None:
        assert isinstance(context.spec, SwitchSpec)
        assert context.matrix is not None
        super().__init__(context.spec.name, context.clock, context.login)
        stated = forms("calient-s", context.spec.options)
        self.prompt = "agent> " if stated["terminal"] == "agent" else ""
        self._context = context
        self._count = context.spec.ingress_count
        self._matrix = context.matrix
        self._connections: dict[str, _Connection] = {}

    def log_in(self, request: Tl1Request) -> Tl1Reply:
        """Log the user of a session in; raise `Tl1Denial`."""
        if (request.aid, request.blocks[-1] if request.blocks else "") != self.login:
            raise Tl1Denial("PIUI", "Invalid username or password")
        request.session.user = request.aid
        return Tl1Reply([f"{request.aid}:{request.aid},2"])

    @command("CANC-USER")
    def _log_out(self, request: Tl1Request) -> Tl1Reply:
        request.session.user = None
        return Tl1Reply()

    @command("INH-MSG", "ALW-MSG")
    def _inhibit_reports(self, request: Tl1Request) -> Tl1Reply:
        request.session.reports = request.verb == "ALW-MSG"
        return Tl1Reply()

    # ----------------------------------------------------------------------- retrieving

    @command("RTRV-NE")
    def _retrieve_element(self, _: Tl1Request) -> Tl1Reply:
        stated = self._context.stated
        return Tl1Reply(
            [
                f"{self.name}:SERIALNUMBER={self._context.serial},"
                f"SWPACKAGE={stated.firmware or '6.0-3'},"
                f"STATUS=OK,CHASSISTYPE={stated.model or 'S320'},PLATFORM=VERSION2"
            ]
        )

    @command("RTRV-CRS")
    def _retrieve_connections(self, _: Tl1Request) -> Tl1Reply:
        return Tl1Reply([self._format(one) for one in self._connections.values()], page=PAGE)

    def _format(self, one: _Connection) -> str:
        source, target = _port_name(one.source), _port_name(one.target)
        name = f"{source}{'-' if one.both else '>'}{target}"
        states = "AS=OOS-MA,OS=OOS"
        if one.active:
            lit = all(self._matrix.level(c.egress) > 0 for c in one.circuits(self._count))
            states = f"AS=UMA,OS=RDY,OC={'OK' if lit else 'FAIL'},PS=UPR,AL=CL"
        return (
            f"{name}:SRCPORT={source},DSTPORT={target},GRPNAME={one.group},CONNNAME={one.name},"
            f"CONNTYPE={'2WAY' if one.both else '1WAY'},{states}"
        )

    @command("RTRV-PORT")
    def _retrieve_ports(self, request: Tl1Request) -> Tl1Reply:
        """List one port, or all of them for the port 0."""
        ports = range(1, self._count + 1)
        listed = ports if request.aid in {"", "0", "ALL"} else [self._number(request.aid)]
        carrying = {port for one in self._connections.values() for port in (one.source, one.target)}
        return Tl1Reply([_port_states(port, port in carrying) for port in listed], page=PAGE)

    @command("RTRV-PORT-SUM")
    def _retrieve_port(self, request: Tl1Request) -> Tl1Reply:
        port = self._number(request.aid)
        out, into = self._matrix.readings([self._count + port], [port])
        names = [
            (each.name, "ACT" if each.active else "INA")
            for each in self._connections.values()
            if port in {each.source, each.target}
        ]
        names += [("NONE", "NONE")] * 2
        stated = ",".join(
            f"CONNNAME{n}={name},CONNSTATE{n}={state}"
            for n, (name, state) in enumerate(names[:2], start=1)
        )
        return Tl1Reply(
            [f"{_port_name(port)}:ALIAS=NONE,INPWR={_power(into)},OUTPWR={_power(out)},{stated}"]
        )

    # ------------------------------------------------------------------------- changing

    def _ends(self, request: Tl1Request) -> tuple[int, int]:
        ends = request.aid.split(",")
        if len(ends) != 2:
            raise Tl1Denial("IIAC", "Invalid number of ports")
        return self._number(ends[0]), self._number(ends[1])

    def _number(self, name: str) -> int:
        parts = name.split(".")
        if len(parts) == 3 and all(part.isdigit() for part in parts):
            shelf, slot, port = map(int, parts)
            number = ((shelf - 1) * _SLOTS + slot - 1) * _PORTS + port
            if 1 <= slot <= _SLOTS and 1 <= port <= _PORTS and 1 <= number <= self._count:
                return number
        raise Tl1Denial("IIAC", f"Invalid port {name}")

    def _settings(self, request: Tl1Request) -> list[str]:
        return (request.blocks[-1] if request.blocks else "").split(",")

    @command("ENT-CRS")
    def _enter(self, request: Tl1Request) -> Tl1Reply:
        source, target = self._ends(request)
        group, kind, *_ = [*self._settings(request), "", ""]
        if not group or kind not in {"1WAY", "2WAY"}:
            raise Tl1Denial("IDNV", "Invalid group or connection type")
        both = kind == "2WAY"
        name = f"{_port_name(source)}{'-' if both else '>'}{_port_name(target)}"
        new = _Connection(source, target, group, name, both)
        taken = {
            port
            for one in self._connections.values()
            for c in one.circuits(self._count)
            for port in c
        }
        if any(port in taken for c in new.circuits(self._count) for port in c):
            raise Tl1Denial("SRCN", "Port Not Idle; it is part of another connection")
        self._connections[name] = new
        return Tl1Reply(after=ENTERING)

    def _find(self, request: Tl1Request, name: str) -> _Connection:
        source, target = self._ends(request)
        one = self._connections.get(name)
        if one is None or (one.source, one.target) != (source, target):
            raise Tl1Denial("RRNE", f"Failed, connection {name} does not exist")
        return one

    @command("ACT-CRS")
    def _activate(self, request: Tl1Request) -> Tl1Reply:
        name, group, *_ = [*self._settings(request), ""]
        one = self._find(request, name)
        if group != one.group:
            raise Tl1Denial("IDNV", "Invalid group")
        one.active = True
        after = self._matrix.connect(one.circuits(self._count))
        return Tl1Reply((), after, self._context.acknowledge)

    @command("CANC-CRS")
    def _deactivate(self, request: Tl1Request) -> Tl1Reply:
        one = self._find_last(request)
        if one.active:
            one.active = False
            self._matrix.disconnect([c.ingress for c in one.circuits(self._count)])
        return Tl1Reply((), ENTERING, self._context.acknowledge)

    @command("DLT-CRS")
    def _delete(self, request: Tl1Request) -> Tl1Reply:
        one = self._find_last(request)
        if one.active:
            raise Tl1Denial("SAIS", "Failed, the connection is active")
        del self._connections[one.name]
        return Tl1Reply(after=ENTERING)

    def _find_last(self, request: Tl1Request) -> _Connection:
        settings = self._settings(request)
        if len(settings) == 1:  # by name, with or without the ports
            if request.aid:
                return self._find(request, settings[0])
            one = self._connections.get(settings[0])
            if one is None:
                raise Tl1Denial("RRNE", f"Failed, connection {settings[0]} does not exist")
            return one
        if len(settings) != 3 or settings[0]:
            raise Tl1Denial("IDNV", "Invalid group or connection name")
        one = self._find(request, settings[2])
        if settings[1] != one.group:
            raise Tl1Denial("IDNV", "Invalid group")
        return one


def _port_states(port: int, carrying: bool) -> str:
    """Return a line of `RTRV-PORT`, as recorded of a port in transit and of an idle one."""
    state, kind, summary = ("IS", "TRANSIT", "IS") if carrying else ("OOS", "NONE", "OOS-NP")
    return (
        f"{_port_name(port)}:WX,{kind},{kind}:INAS={summary},INOS={state},INOC=OK,INRS=NPR,"
        f"OUTAS={summary},OUTOS={state},OUTOC=OK,OUTRS=NPR"
    )


def _port_name(port: int) -> str:
    rest, number = divmod(port - 1, _PORTS)
    shelf, slot = divmod(rest, _SLOTS)
    return f"{shelf + 1}.{slot + 1}.{number + 1}"


def _power(dbm: float) -> str:
    return "NONE" if dbm <= _DARK_DBM or not math.isfinite(dbm) else f"{dbm:.2f}"
