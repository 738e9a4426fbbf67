"""HUBER+SUHNER Polatis switches, over any of their five wires."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import (
    Identity,
    Operation,
    PowerReading,
    TakesCommands,
)
from lightrig.instruments.core.endpoint import AddressError, Endpoint
from lightrig.instruments.core.instrument import Instrument, Option, line_speed, one_of
from lightrig.instruments.switches.polatis.facts import FACTS
from lightrig.instruments.switches.polatis.session import (
    PolatisSession,
    Voa,
    garbled,
)
from lightrig.testbeds import Circuit

if TYPE_CHECKING:  # each wire is loaded where it is used
    from lightrig.instruments.switches.polatis.tl1 import PolatisTl1


class Polatis(Instrument):
    """A Polatis matrix switch; ingress ports are 1..N and egress ports N+1..N+M.

    Its address chooses the wire: tl1:// (port 3082), scpi:// (5025), netconf:// (830),
    restconf:// (8008) or serial:// (SCPI at 38400 8N1). All report the same circuits, powers and
    shutters; attenuators are not reached over SCPI. Commands and monitor readings have a session
    each, so that power can be read while the switch is still busy with a change; a serial line
    has one session, and power is read after the change.

    Source: named at each wire's own class.
    """

    schemes = ("tl1", "scpi", "netconf", "restconf", "serial")
    shared_options = (
        "openflow_errors",
        "attenuation",
        "no_entries",
        "entry",
        "post",
        "revision",
        "port_leaves",
        "empty_container",
        "terminal",
        "reports",
        "compound",
        "line_end",
    )
    wire_facts = FACTS
    rerouting: Option[bool | None] = Option(
        bool,
        None,
        "over TL1 and SCPI, whether connecting a port in use moves it, so that a change of "
        "circuits is one command; otherwise the circuits in the way are taken down first. Without "
        "it the first change that moves a port tries, and a denial settles it",
    )
    monitors: Option[str | None] = Option(
        one_of("egress", "both", "none"),
        None,
        "where power monitors are fitted: egress, both or none. Without it the switch is "
        "asked; over SCPI its product code tells (a guess)",
    )
    averaging = Option(
        one_of(*range(1, 9)),
        4,
        "over SCPI and an older unit's NETCONF, which have no query for it, the monitors' setting, "
        "1 (10 ms) to 8 (2 s); 4 is taken for the factory setting (a guess)",
    )
    baud = line_speed(38_400)
    tls = Option(bool, False, "over RESTCONF, whether it is https; its certificate is verified")
    certificates: Option[str | None] = Option(
        str, None, "with `tls`, file of trusted certificates; without it those of the system"
    )
    collection = Option(
        one_of("patch", "put"), "patch", "over RESTCONF, patch or put; see `PolatisRestconf`"
    )

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self._commands = self._new_session()
        one_line = endpoint.scheme == "serial"
        self._monitor = self._commands if one_line else self._new_session()
        self.sessions = (self._commands,) if one_line else (self._commands, self._monitor)
        self._window: dict[int, int] = {}
        self._kind: str | None = None
        self._absolute: dict[int, tuple[float, float]] = {}

    def _new_session(self) -> PolatisSession:
        """Return a session over the address's wire; loads the libraries of that wire only."""
        # ruff: noqa: PLC0415
        name, at, clock = self.name, self.endpoint, self.clock
        match at.scheme:
            case "tl1":
                from lightrig.instruments.switches.polatis.tl1 import PolatisTl1

                return PolatisTl1(name, at, clock, rerouting=self.rerouting)
            case "scpi" | "serial":
                from lightrig.instruments.switches.polatis.scpi import PolatisScpi

                return PolatisScpi(
                    name,
                    at,
                    clock,
                    rerouting=self.rerouting,
                    averaging=self.averaging,
                    baud=self.baud,
                )
            case "netconf":
                from lightrig.instruments.switches.polatis.netconf import PolatisNetconf

                return PolatisNetconf(name, at, clock, averaging=self.averaging)
            case "restconf":
                from lightrig.instruments.switches.polatis.restconf import PolatisRestconf

                return PolatisRestconf(
                    name,
                    at,
                    clock,
                    put=self.collection == "put",
                    tls=self.tls,
                    certificates=self.certificates,
                )
        raise AddressError(f"{name}: no session over {at.scheme}://")

    def ask(self, command: str) -> str:
        """Send a command of TL1 or SCPI as a person types it; other wires have no such thing."""
        if not isinstance(self._commands, TakesCommands):
            raise self.refused(
                f"no single command can be sent over {self.endpoint.scheme}://",
                advice="a client of that protocol, such as netconf-console or curl",
                command=command,
            )
        return self._commands.ask(command)

    def identity(self) -> Identity:
        """Return manufacturer, product code, serial number and software version."""
        return self._commands.identity()

    def size(self) -> tuple[int, int]:
        """Return the numbers of ingress and of egress ports."""
        return self._commands.size()

    def circuits(self) -> frozenset[Circuit]:
        """Return every circuit that the switch reports now."""
        return self._commands.circuits()

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to take down `remove` and make `add`: one command where the wire allows.

        No other circuit is touched; the class of each wire documents how. Raises `DeniedError`
        before anything is sent for two circuits of one ingress over a wire that would merge them.
        """
        twice = len({circuit.ingress for circuit in add}) < len(set(add))
        if twice and self._commands.keyed_by_ingress:
            text = "an ingress is in two circuits, which are one entry of its list `pair`"
            raise self.refused(text, command="cross-connects")
        return self._commands.change(remove, add)

    def commands(self, remove: Collection[Circuit], add: Collection[Circuit]) -> int:
        """Return how many commands, one after another, a change is over this wire."""
        return self._commands.commands(remove, add)

    def monitored(self) -> frozenset[int]:
        """Return the ports that have a power monitor; see the option `monitors`."""
        if self.monitors is None:
            return self._commands.monitored()
        ingress, egress = self.size()
        first = {"both": 1, "egress": ingress + 1, "none": ingress + egress + 1}[self.monitors]
        return frozenset(range(first, ingress + egress + 1))

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Return the optical power at `ports` (dBm), averaged over the monitor's window."""
        unknown = [port for port in ports if port not in self._window]
        if unknown:
            self._window.update(self._monitor.windows(unknown))
            self._complete(self._window, unknown, "monitor setting")
        asked = self.clock.now()
        dbm, received = self._monitor.powers(ports)
        self._complete(dbm, ports, "power reading")
        return PowerReading(asked, received, max(map(self._window.__getitem__, ports)), dbm)

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Return whether the shutter of each of `ports` is open."""
        states = self._commands.shutters(ports)
        self._complete(states, ports, "state of a shutter")
        return states

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Open the shutters of `ports`, or close them, which enables or disables the ports."""
        self._commands.set_shutters(ports, is_open=is_open)

    def labels(self) -> Mapping[int, str]:
        """Return the label of each port; over TL1 alone."""
        return self._tl1("labels").labels()

    def set_label(self, port: int, text: str) -> None:
        """Label a port; the empty text removes its label. Over TL1 alone."""
        self._tl1("labels").set_label(port, text)

    def reset_configuration(self) -> None:
        """Remove all circuits and open all shutters; over TL1 alone."""
        self._tl1("a reset").reset_configuration()

    def _tl1(self, what: str) -> "PolatisTl1":
        if self.endpoint.scheme != "tl1":
            raise self.refused(f"{what}: this driver has no command over {self.endpoint.scheme}")
        return cast("PolatisTl1", self._commands)

    def attenuation(self, egress: int) -> float:
        """Return the attenuation set at `egress`, in dB from the input of its circuit.

        Raises `DeniedError` where the egress is set to something else than an attenuation.
        """
        mode, level = self._commands.voa(egress)
        if mode == "ABSOLUTE" and self._absolute.get(egress, (None, 0.0))[0] == level:
            return self._absolute[egress][1]  # set here, from the power that entered then
        if mode not in {"NONE", "RELATIVE"}:
            raise self.refused(
                f"egress {egress} is in mode {mode}, which states no attenuation",
                advice="set an attenuation, or 0 dB",
                command=f"attenuation at {egress}",
            )
        return -level if mode == "RELATIVE" and level else 0.0

    def set_attenuation(self, egress: int, decibel: float) -> None:
        """Attenuate by `decibel` from the input of the circuit to `egress`; 0 ends it.

        The switch measures both sides and closes the loop, which takes it some time. The
        circuit's own insertion loss is part of it, so less than that is not reached. A switch
        whose attenuators are absolute is given the power that enters now, less `decibel`: it does
        not follow a later change of that power. Needs monitors on both sides. Raises `DeniedError`.
        """
        if not decibel:
            self._commands.set_voa(egress, Voa("NONE", 0.0))
            return
        kind = self._attenuation_kind()
        if kind == "NONE":
            raise self.refused(
                "it has no attenuators",
                "the switch states ATTEN:CONFIG=NONE",
                command=f"attenuation at {egress}",
            )
        if kind in {None, "RELATIVE"}:
            self._commands.set_voa(egress, Voa("RELATIVE", -decibel))
            return
        level = round(self._entering(egress) - decibel, 2)
        self._commands.set_voa(egress, Voa("ABSOLUTE", level))
        self._absolute[egress] = (level, decibel)

    def _attenuation_kind(self) -> str | None:
        if self._kind is None:
            self._kind = self._commands.attenuation_kind()
        return self._kind

    def _entering(self, egress: int) -> float:
        """Return the power that enters the circuit to `egress`, in dBm; raises `DeniedError`."""
        ingress = next((c.ingress for c in self.circuits() if c.egress == egress), None)
        if ingress is None or ingress not in self.monitored():
            missing = "no circuit leads there" if ingress is None else f"ingress {ingress} has none"
            raise self.refused(
                f"an attenuation at egress {egress} cannot be set: {missing}",
                "the attenuators of this switch are absolute: what enters must be measured",
                "a switch with monitors at its ingress ports, or relative attenuation",
                command=f"attenuation at {egress}",
            )
        return self.power([ingress]).dbm[ingress]

    def _complete(self, found: Mapping[int, object], ports: Sequence[int], what: str) -> None:
        """Raise `GarbledError` where an answer leaves a port out."""
        if len(found) < len(ports) or not found.keys() >= set(ports):
            missing = sorted(set(ports) - found.keys())
            raise garbled(self.name, self._monitor.trace, f"nothing of ports {missing}", what)
