"""A Polatis over TL1 (TCP 3082)."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import Identity
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import DeniedError, GarbledError
from lightrig.instruments.switches.polatis.session import (
    WINDOWS,
    PatchOperation,
    Readings,
    ReroutingSession,
    Voa,
    garbled,
    level,
    not_replaced,
)
from lightrig.instruments.wire.tl1 import Reply, Tl1Session
from lightrig.instruments.wire.trace import Trace
from lightrig.testbeds import Circuit

PORT = 3082

_MEANINGS = {
    "IDNV": (
        "a port or a value in the command does not exist on this switch",
        "compare `size:` in the testbed file with the switch: ingress 1..N, egress N+1..N+M",
    ),
    "SRCN": (
        "a port in the command is in use",
        "take its circuit down, or say `options: {rerouting: true}` if this switch moves it",
    ),
    "PICC": ("this user may not do that", "log in as a user of the admin group"),
    "PLNA": ("the session is not logged in", "does `login:` name a credential?"),
}
"""Meaning of the error codes at the bench and what to try."""

_SHORT = {"RELATIVE": "REL", "ABSOLUTE": "ABS", "CONVERGED": "CONV", "MAXIMUM": "MAX"}
_FULL = {short: full for full, short in _SHORT.items()} | {"FIX": "FIXED"}


class PolatisTl1(ReroutingSession):
    """One TL1 session.

    A change is at most one DLT-PATCH and one ENT-PATCH, which name the testbed's own ports and
    no others; both are sent before the first is answered.

    Source: commands as the vendor's own test suite, its wrapper and four independent drivers
    use them.
    """

    unrelated_codes = frozenset({"IDNV", "IIAC", "IPNV", "PICC", "PLNA"})

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        clock: Clock,
        *,
        rerouting: bool | None,
    ) -> None:
        self._name = name
        self._clock = clock
        super().__init__(rerouting)
        self._login = endpoint.login
        self._tl1 = Tl1Session(
            name,
            endpoint.host,
            endpoint.port or PORT,
            clock,
            endpoint.login,
            meanings=_MEANINGS,
            timeouts=endpoint.timeouts,
        )

    @property
    def trace(self) -> Trace:
        """Trace of what went over the wire."""
        return self._tl1.trace

    def ask(self, command: str) -> str:
        """See `Tl1Session.ask`."""
        return self._tl1.ask(command)

    def identity(self) -> Identity:
        """Return manufacturer, product code, serial number and software version."""
        kind = _first(self._command("RTRV-NETYPE")).split(",")
        inventory = " ".join(self._command("RTRV-INV", "OCS").lines)
        serial = re.search(r"SN=([^,:\s\"]+)", inventory)
        if len(kind) < 4 or serial is None:
            raise self._garbled(f"{kind} and {inventory!r}", "identity")
        return Identity(kind[0], kind[1], serial[1], kind[3])

    def size(self) -> tuple[int, int]:
        """Return the numbers of ingress and of egress ports."""
        reply = self._command("RTRV-EQPT", "SYSTEM", "", "", "PARAMETER=SIZE")
        size = re.search(r"SIZE=(\d+)x(\d+)", _first(reply))
        if size is None:
            raise self._garbled(repr(reply.lines), "size")
        return int(size[1]), int(size[2])

    def circuits(self) -> frozenset[Circuit]:
        """Return every circuit that the switch reports now."""
        circuits = set()
        for line in self._command("RTRV-PATCH").lines:
            ingress, _, egress = line.partition(",")
            if not ingress.isdigit() or not (egress.isdigit() or not egress):
                raise self._garbled(repr(line), "circuit")
            if egress and int(egress):  # a free port may be listed with partner 0 or none
                circuits.add(Circuit(int(ingress), int(egress)))
        return frozenset(circuits)

    def _change(
        self, remove: Collection[Circuit], add: Collection[Circuit], *, rerouting: bool
    ) -> PatchOperation:
        dropped = not_replaced(remove, add) if rerouting else sorted(remove)
        steps = []
        if dropped:
            steps.append(self._tl1.submit("DLT-PATCH", _list(c.ingress for c in dropped)))
        if add:
            pairs = sorted(add)
            ingress = _list(circuit.ingress for circuit in pairs)
            egress = _list(circuit.egress for circuit in pairs)
            steps.append(self._tl1.submit("ENT-PATCH", f"{ingress},{egress}"))
        return PatchOperation(steps, self._clock)

    def monitored(self) -> frozenset[int]:
        """Return the ports that the switch lists as having a power monitor.

        None where it knows no monitors: PyPolatis reads IICM as "not supported on this switch".
        """
        try:
            lines = self._command("RTRV-EQPT", "PMON", "", "", "PARAMETER=CONFIG").lines
        except DeniedError as error:
            if error.code == "IICM":
                return frozenset()
            raise
        ports = [re.search(r"PORT=(\d+)", line) for line in lines]
        if None in ports:
            raise self._garbled(repr(lines), "list of monitors")
        return frozenset(int(port[1]) for port in ports if port is not None)

    def powers(self, ports: Sequence[int]) -> Readings:
        """Return the power at `ports`."""
        reply = self._tl1.command("RTRV-PORT-POWER", _list(ports))
        dbm = {}
        for line in reply.lines:
            port, _, power = line.partition(":")
            try:
                dbm[int(port)] = level(power)
            except ValueError as error:
                raise self._garbled(repr(line), "power reading") from error
        return Readings(dbm, reply.received)

    def windows(self, ports: Sequence[int]) -> Mapping[int, int]:
        """Return the averaging window of each monitor, in ns."""
        windows = {}
        for port, settings in self._by_port("RTRV-PORT-PMON", ports, "monitor setting"):
            step = settings.rpartition(",")[2]
            if not step.isdigit() or int(step) not in WINDOWS:
                raise self._garbled(f"{port}:{settings}", "monitor setting")
            windows[port] = WINDOWS[int(step)]
        return windows

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Return whether each shutter is open."""
        states = {}
        for port, state in self._by_port("RTRV-PORT-SHUTTER", ports, "state of a shutter"):
            if state not in {"OPEN", "CLOSED"}:
                raise self._garbled(f"{port}:{state}", "state of a shutter")
            states[port] = state == "OPEN"
        return states

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Open or close shutters: operating one closes it, releasing it opens it."""
        self._command("RLS-PORT-SHUTTER" if is_open else "OPR-PORT-SHUTTER", _list(ports))

    def labels(self) -> Mapping[int, str]:
        """Return the label of each port."""
        return dict(self._by_port("RTRV-PORT-LABEL", (), "label"))

    def set_label(self, port: int, text: str) -> None:
        """Label a port, or remove its label; the text is quoted as Telcordia GR-831 has it."""
        if text:
            quoted = text.replace("\\", "\\\\").replace('"', '\\"')
            self._command("ED-PORT-LABEL", str(port), "", "", f'LABEL="{quoted}"')
        else:
            self._command("DLT-PORT-LABEL", str(port))

    def reset_configuration(self) -> None:
        """Reset the switch (`INIT-SYS` 1, which the vendor's tests use to enable all ports)."""
        self._command("INIT-SYS", "SYSTEM", "", "1")

    def attenuation_kind(self) -> str | None:
        """Return the kind of attenuation that the switch states, such as `RELATIVE`."""
        reply = self._command("RTRV-EQPT", "ATTEN", "", "", "PARAMETER=CONFIG")
        kind = _first(reply).rpartition("=")[2].strip().upper()
        if not kind:
            raise self._garbled(repr(reply.lines), "kind of attenuation")
        return _FULL.get(kind, kind)

    def voa(self, egress: int) -> Voa:
        """Return mode and level; a reply is `port:mode,level,reference`."""
        for port, settings in self._by_port("RTRV-PORT-ATTEN", [egress], "attenuation"):
            mode, _, rest = settings.partition(",")
            level = rest.partition(",")[0].strip("()") or "0"
            if port == egress and re.fullmatch(r"-?\d+(\.\d+)?", level):
                return Voa(_FULL.get(mode.upper(), mode.upper()), float(level))
        raise self._garbled(f"no setting of port {egress}", "attenuation")

    def set_voa(self, egress: int, voa: Voa) -> None:
        """Set mode and level; a number stands in parentheses, since it may be negative."""
        level = f",LEVEL=({voa.level:.2f})" if voa.mode in _SHORT and voa.mode != "MAXIMUM" else ""
        mode = _SHORT.get(voa.mode, voa.mode)
        self._command("SET-PORT-ATTEN", str(egress), "", "", f"MODE={mode}{level}")

    def close(self) -> None:
        """End the session."""
        self._tl1.close()

    def _command(self, verb: str, aid: str = "", *blocks: str) -> Reply:
        """Send one command; where the switch has ended an idle login, log in and repeat it."""
        try:
            return self._tl1.command(verb, aid, *blocks)
        except DeniedError as error:
            if self._login is None or "not logged in" not in error.text.lower():
                raise
        self._tl1.close()
        return self._tl1.command(verb, aid, *blocks)

    def _by_port(self, verb: str, ports: Sequence[int], what: str) -> Iterator[tuple[int, str]]:
        for line in self._command(verb, _list(ports)).lines:
            port, _, rest = line.partition(":")
            if not port.isdigit():
                raise self._garbled(repr(line), what)
            yield int(port), rest

    def _garbled(self, answered: str, what: str) -> GarbledError:
        return garbled(self._name, self.trace, answered, what)


def _first(reply: Reply) -> str:
    return reply.lines[0] if reply.lines else ""


def _list(ports: Iterable[int]) -> str:
    return "&".join(map(str, ports))
