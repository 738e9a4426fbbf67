"""A Polatis, whichever wire it is reached over."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from instruments.capabilities import Identity, PowerReading
from instruments.clock import Clock
from instruments.errors import CANNOT, DeniedError
from instruments.registry import Spec
from instruments.switches.polatis.netconf import PolatisNetconf
from instruments.switches.polatis.restconf import PolatisRestconf
from instruments.switches.polatis.scpi import PolatisScpi
from instruments.switches.polatis.session import (
    PatchOperation,
    PolatisSession,
    Voa,
    garbled,
)
from instruments.switches.polatis.tl1 import PolatisTl1
from instruments.way import Way
from testbeds import Circuit, LightrigError

Scheme: TypeAlias = Literal["tl1", "scpi", "netconf", "restconf"]
Monitors: TypeAlias = Literal["egress", "both", "none"]
Collecting: TypeAlias = Literal["patch", "put"]


class Polatis:
    """A Polatis matrix switch; ingress ports are 1..N and egress ports N+1..N+M.

    Its address chooses the wire: tl1:// (port 3082), scpi:// (5025), netconf:// (830) or
    restconf:// (8008). All say the same of circuits, power and shutters; attenuators are not
    reached over SCPI. Commands and monitor readings go over two sessions, so that light can be
    watched while the switch is still busy with a change.

    Options in a testbed file:
        rerouting: true where connecting a port in use moves it, so that a change of circuits
            is one command over TL1 too; false, the default, takes the old circuits down first.
            What a switch does is unconfirmed. NETCONF and RESTCONF do not need it: there only
            the outcome must be possible.
        monitors: `egress`, `both` or `none`: where power monitors are fitted. Without it the
            switch is asked; over SCPI its product code tells (a guess).
        averaging: over SCPI, which cannot be asked, the monitors' setting, 1 (10 ms) to 8
            (2 s); 4 by default, as the switch has it when nobody has changed it (a guess).
        collection: over RESTCONF, `patch` (default) or `put`; see `PolatisRestconf`.

    Source: named at each wire's own class.

    Args:
        name: the switch's name in the testbed.
        host: name or address.
        clock: the bench's clock.
        scheme: the wire.
        port: TCP port, None for the wire's usual one.
        login: user and password, None for a switch that asks for none.
        user: over NETCONF without a login, whose keys to use.
        known_hosts: over NETCONF, file of SSH host keys; None for the user's own.
        rerouting, monitors, averaging, collection: the options.
    """

    schemes = get_args(Scheme)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "Polatis":
        """The driver of the switch that `spec` describes; raises `LightrigError` for options."""
        options = spec.options
        monitors = options.get("monitors")
        collection = options.get("collection", "patch")
        averaging = options.get("averaging", 4)
        for key, found, allowed in (
            ("monitors", monitors, (None, *get_args(Monitors))),
            ("collection", collection, get_args(Collecting)),
            ("averaging", averaging, range(1, 9)),
        ):
            if found not in allowed:
                expected = ", ".join(str(each) for each in allowed if each is not None)
                raise LightrigError(
                    f"{spec.name}: options: {key}: found {found!r}, expected one of {expected}"
                )
        return cls(
            spec.name,
            way.host,
            clock,
            scheme=way.scheme,  # type: ignore[arg-type]
            port=way.port,
            login=way.login,
            user=way.user,
            known_hosts=way.known_hosts,
            rerouting=bool(options.get("rerouting", False)),
            monitors=monitors,  # type: ignore[arg-type]
            averaging=int(averaging),
            collection=collection,  # type: ignore[arg-type]
        )

    def __init__(
        self,
        name: str,
        host: str,
        clock: Clock,
        *,
        scheme: Scheme = "tl1",
        port: int | None = None,
        login: tuple[str, str] | None = None,
        user: str | None = None,
        known_hosts: Path | None = None,
        rerouting: bool = False,
        monitors: Monitors | None = None,
        averaging: int = 4,
        collection: Collecting = "patch",
    ) -> None:
        def session() -> PolatisSession:
            match scheme:
                case "tl1":
                    return PolatisTl1(name, host, port, clock, login, rerouting=rerouting)
                case "scpi":
                    return PolatisScpi(
                        name, host, port, clock, rerouting=rerouting, averaging=averaging
                    )
                case "netconf":
                    return PolatisNetconf(
                        name, host, port, clock, login, user=user, known_hosts=known_hosts
                    )
                case "restconf":
                    put = collection == "put"
                    return PolatisRestconf(name, host, port, clock, login, put=put)

        self.name = name
        self._clock = clock
        self._commands = session()
        self._monitor = session()
        self._monitors = monitors
        self._window: dict[int, int] = {}

    def identity(self) -> Identity:
        """Ask for product code, serial number and software version."""
        return self._commands.identity()

    def size(self) -> tuple[int, int]:
        """How many ingress and how many egress ports the switch has."""
        return self._commands.size()

    def circuits(self) -> frozenset[Circuit]:
        """Every circuit that the switch reports now."""
        return self._commands.circuits()

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> PatchOperation:
        """Start taking down `remove` and making `add`: one command where the wire allows.

        No other circuit is touched; each wire's class says how that is ensured.
        """
        return self._commands.change(remove, add)

    def monitored(self) -> frozenset[int]:
        """The ports that have a power monitor; see the option `monitors`."""
        if self._monitors is None:
            return self._commands.monitored()
        ingress, egress = self.size()
        first = {"both": 1, "egress": ingress + 1, "none": ingress + egress + 1}[self._monitors]
        return frozenset(range(first, ingress + egress + 1))

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Optical power at `ports` (dBm), averaged over the monitor's own window."""
        unknown = [port for port in ports if port not in self._window]
        if unknown:
            self._window.update(self._monitor.windows(unknown))
            self._complete(self._window, unknown, "monitor setting")
        asked = self._clock.now()
        dbm, received = self._monitor.powers(ports)
        self._complete(dbm, ports, "power reading")
        return PowerReading(asked, received, max(map(self._window.__getitem__, ports)), dbm)

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Whether the shutter of each of `ports` is open."""
        states = self._commands.shutters(ports)
        self._complete(states, ports, "state of a shutter")
        return states

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Open the shutters of `ports`, or close them, which enables or disables the ports."""
        self._commands.set_shutters(ports, is_open=is_open)

    def attenuation(self, egress: int) -> float:
        """By how many dB less leaves at `egress` than enters its circuit, as it is set.

        Raises `DeniedError` where the egress is set to something else than an attenuation.
        """
        mode, level = self._commands.voa(egress)
        if mode not in {"NONE", "RELATIVE"}:
            raise DeniedError(
                self.name,
                code=CANNOT,
                text=f"egress {egress} is in mode {mode}, which states no attenuation",
                command=f"attenuation at {egress}",
                details=[("try", "set an attenuation, or 0 dB")],
                trace=self._commands.trace.tail(),
            )
        return -level if mode == "RELATIVE" and level else 0.0

    def set_attenuation(self, egress: int, decibel: float) -> None:
        """Let `decibel` less leave at `egress` than enters its circuit; 0 ends it.

        The switch measures both sides and closes the loop, which takes it some time. The
        circuit's own insertion loss is part of it, so less than that is not reached. Needs
        monitors on both sides; a switch without them refuses. Raises `DeniedError`.
        """
        voa = Voa("RELATIVE", -decibel) if decibel else Voa("NONE", 0.0)
        self._commands.set_voa(egress, voa)

    def wire(self) -> list[str]:
        """The last lines of both sessions."""
        pieces = [*self._commands.trace.pieces(), *self._monitor.trace.pieces()]
        return [str(piece) for piece in sorted(pieces, key=lambda piece: piece.at)][-40:]

    def close(self) -> None:
        """End both sessions."""
        self._commands.close()
        self._monitor.close()

    def _complete(self, found: Mapping[int, object], ports: Sequence[int], what: str) -> None:
        """Raise `GarbledError` where an answer leaves a port out."""
        if len(found) < len(ports) or not found.keys() >= set(ports):
            missing = sorted(set(ports) - found.keys())
            raise garbled(self.name, self._monitor.trace, f"nothing of ports {missing}", what)
