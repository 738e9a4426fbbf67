"""HUBER+SUHNER Polatis 6000 and 7000 optical circuit switches over TL1."""

import re
from collections.abc import Collection, Iterable, Sequence

from instruments.capabilities import Identity, PowerReading
from instruments.clock import Clock, Span
from instruments.errors import GarbledError
from instruments.registry import Spec
from instruments.way import Way
from instruments.wire.tl1 import Pending, Reply, Tl1Session
from testbeds import Circuit

_AVERAGING = {step: 10_000_000 << (step - 1) for step in range(1, 9)}

_MEANINGS = {
    "IDNV": (
        "a port or a value in the command does not exist on this switch",
        "compare `size:` in the testbed file with the switch: ingress 1..N, egress N+1..N+M",
    ),
    "SRCN": (
        "a port in the command is in use (unconfirmed)",
        "take its circuit down, or say `options: {rerouting: true}` if this switch moves it",
    ),
    "PICC": ("this user may not do that", "log in as a user of the admin group"),
    "PLNA": ("the session is not logged in (unconfirmed)", "does `login:` name a credential?"),
}
"""What the switch's error codes mean at the bench, and what to try."""


class Polatis:
    """A Polatis matrix switch; ingress ports are 1..N and egress ports N+1..N+M.

    Commands and monitor readings go over two sessions, so that light can be watched
    while the switch is still busy with a change.

    Source: Polatis TL1 commands as its vendor's own test suite and four independent
    drivers use them. Unconfirmed, therefore configurable: what `ENT-PATCH` does to a port
    that is in use.

    Args:
        name: the switch's name in the testbed.
        host: name or address.
        clock: the bench's clock.
        port: TCP port of TL1.
        login: user and password, None for a switch that asks for none.
        rerouting: True where `ENT-PATCH` on a port in use moves it, so that a change of
            circuits is one command; False takes the old circuits down first.
    """

    schemes = ("tl1",)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "Polatis":
        """The driver of the switch that `spec` describes."""
        rerouting = bool(spec.options.get("rerouting", False))
        port = way.port or 3082
        return cls(spec.name, way.host, clock, port=port, login=way.login, rerouting=rerouting)

    def __init__(
        self,
        name: str,
        host: str,
        clock: Clock,
        *,
        port: int = 3082,
        login: tuple[str, str] | None = None,
        rerouting: bool = False,
    ) -> None:
        self.name = name
        self._rerouting = rerouting
        self._clock = clock
        self._commands = Tl1Session(name, host, port, clock, login, meanings=_MEANINGS)
        self._monitor = Tl1Session(name, host, port, clock, login, meanings=_MEANINGS)
        self._window: dict[int, int] = {}

    def identity(self) -> Identity:
        """Ask for product code, serial number and software version."""
        kind = self._line(self._commands.command("RTRV-NETYPE")).split(",")
        inventory = " ".join(self._commands.command("RTRV-INV", "OCS").lines)
        serial = re.search(r"SN=([^,:\s\"]+)", inventory)
        if len(kind) < 4 or serial is None:
            raise self._garbled(f"{kind} and {inventory!r}", "identity")
        return Identity(kind[0], kind[1], serial[1], kind[3])

    def size(self) -> tuple[int, int]:
        """How many ingress and how many egress ports the switch has."""
        reply = self._commands.command("RTRV-EQPT", "SYSTEM", "", "", "PARAMETER=SIZE")
        size = re.search(r"SIZE=(\d+)x(\d+)", self._line(reply))
        if size is None:
            raise self._garbled(repr(reply.lines), "size")
        return int(size[1]), int(size[2])

    def circuits(self) -> frozenset[Circuit]:
        """Every circuit that the switch reports now."""
        circuits = set()
        for line in self._commands.command("RTRV-PATCH").lines:
            ingress, _, egress = line.partition(",")
            if not ingress.isdigit() or not (egress.isdigit() or not egress):
                raise self._garbled(repr(line), "circuit")
            if egress and int(egress):  # a free port may be listed with partner 0 or none
                circuits.add(Circuit(int(ingress), int(egress)))
        return frozenset(circuits)

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> "PatchOperation":
        """Start taking down `remove` and making `add`: one command where the switch allows."""
        moved = {port for circuit in add for port in circuit} if self._rerouting else set()
        dropped = sorted(circuit for circuit in remove if moved.isdisjoint(circuit))
        steps = []
        if dropped:
            steps.append(self._commands.submit("DLT-PATCH", _list(c.ingress for c in dropped)))
        if add:
            pairs = sorted(add)
            ingress = _list(circuit.ingress for circuit in pairs)
            egress = _list(circuit.egress for circuit in pairs)
            steps.append(self._commands.submit("ENT-PATCH", f"{ingress},{egress}"))
        return PatchOperation(steps, self._clock)

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Optical power at `ports` (dBm), averaged over the monitor's own window."""
        unknown = [port for port in ports if port not in self._window]
        if unknown:
            self._learn_windows(unknown)
        asked = self._clock.now()
        reply = self._monitor.command("RTRV-PORT-POWER", _list(ports))
        dbm = {}
        for line in reply.lines:
            port, _, power = line.partition(":")
            try:
                dbm[int(port)] = float(power)
            except ValueError as error:
                raise self._garbled(repr(line), "power reading") from error
        if len(dbm) < len(ports) or not dbm.keys() >= set(ports):
            missing = sorted(set(ports) - dbm.keys())
            raise self._garbled(f"no reading of ports {missing}", "power reading")
        window = max(map(self._window.__getitem__, ports))
        return PowerReading(asked, reply.received, window, dbm)

    def wire(self) -> list[str]:
        """The last lines of both sessions."""
        pieces = [*self._commands.trace.pieces(), *self._monitor.trace.pieces()]
        return [str(piece) for piece in sorted(pieces, key=lambda piece: piece.at)][-40:]

    def close(self) -> None:
        """End both sessions."""
        self._commands.close()
        self._monitor.close()

    def _learn_windows(self, ports: Sequence[int]) -> None:
        for line in self._monitor.command("RTRV-PORT-PMON", _list(ports)).lines:
            port, _, settings = line.partition(":")
            step = settings.rpartition(",")[2]
            if not port.isdigit() or not step.isdigit() or int(step) not in _AVERAGING:
                raise self._garbled(repr(line), "monitor setting")
            self._window[int(port)] = _AVERAGING[int(step)]
        if missing := set(ports) - self._window.keys():
            raise self._garbled(f"no settings of ports {sorted(missing)}", "monitor setting")

    def _line(self, reply: Reply) -> str:
        return reply.lines[0] if reply.lines else ""

    def _garbled(self, found: str, what: str) -> GarbledError:
        return GarbledError(
            self.name,
            f"answered something that is no {what}",
            details=[
                ("answered", found),
                ("try", "`lightrig check` the model in the testbed file"),
            ],
            trace=self.wire()[-6:],
        )


class PatchOperation:
    """A change of circuits under way."""

    def __init__(self, steps: Sequence[Pending], clock: Clock) -> None:
        now = clock.now()
        self._steps = steps
        self.sent = Span(steps[0].sent.earliest, steps[-1].sent.latest) if steps else Span(now, now)

    def done(self) -> Span:
        """Wait for every step's acknowledgement; when the last of them was there."""
        replies = [step.result() for step in self._steps]
        last = max((reply.received for reply in replies), default=self.sent.latest)
        return Span(last, last)


def _list(ports: Iterable[int]) -> str:
    return "&".join(map(str, ports))
