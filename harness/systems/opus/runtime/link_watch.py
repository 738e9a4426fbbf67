"""Links of a job that are lost while its ranks run: seen by the carriers of their NIC ports."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lightrig.harness.systems.opus.runtime.carriers import Carriers
from lightrig.instruments.clock import Clock, Event, Span
from lightrig.testbeds import Cabling, Circuit, LightrigError, Port

PERIOD = 200_000_000
"""Period at which the carriers are looked at, in ns."""

LEAST = 2_000_000_000
"""Shortest time without carrier that is a lost link, in ns."""


@dataclass(frozen=True, slots=True)
class LostLink:
    """A NIC port that a circuit leads light to, and which has had no carrier for long.

    Attributes:
        port: the NIC port.
        partner: the NIC port at the other end of the circuit.
        circuits: those that lead to the port and away from it, with their switch.
        since: when it lost its carrier, on the bench's clock.
        lasting: for how long, when it was taken for lost, in ns.
        longest: the longest time that a change of circuits had taken, in ns.
    """

    port: Port
    partner: Port
    circuits: tuple[str, ...]
    since: Span
    lasting: int
    longest: int


class LinkLostError(LightrigError):
    """A link in use has lost its carrier for longer than a change of circuits explains.

    Attributes:
        link: which.
    """

    def __init__(self, link: LostLink) -> None:
        self.link = link
        super().__init__(
            f"{link.port} has no carrier: its link with {link.partner} is lost\n"
            f"  circuits  {', '.join(link.circuits)}\n"
            f"  carrier   away for {link.lasting / 1e9:.3f} s; changes of circuits took at most "
            f"{link.longest / 1e9:.3f} s"
        )


class LinkWatch:
    """Looks at the carriers of ports in use.

    Args:
        clock: the bench's.
        carriers: of its NIC ports.
        cabling: of its testbed.
        circuits: returns the job's circuits on each switch that no command changes now.
        late: returns by how much a simulation is behind its own light, in ns.
    """

    def __init__(
        self,
        clock: Clock,
        carriers: Carriers,
        cabling: Cabling,
        circuits: Callable[[], Mapping[str, frozenset[Circuit]]],
        late: Callable[[], int] = lambda: 0,
    ) -> None:
        self._clock, self._carriers, self._cabling = clock, carriers, cabling
        self._circuits, self._late = circuits, late

    def run(self, over: Event) -> None:
        """Look until `over` is set; raises `LinkLostError`.

        A port is lost once it has been dark for `LEAST`, and for twice the time of the longest
        change of circuits so far, since a circuit has led to it.
        """
        dark: dict[Port, Span] = {}
        since: dict[Port, int] = {}
        while not over.wait(PERIOD):
            sources = self._sources()
            seen = self._carriers.dark(sources)
            now = self._clock.now()
            limit = max(LEAST, 2 * self._carriers.longest) + (self._late() if seen else 0)
            since = {
                port: since[port] if dark.get(port) == fell else max(now, fell.latest)
                for port, fell in seen.items()
            }
            dark = dict(seen)
            lost = [port for port in since if now - since[port] >= limit]
            if lost:
                raise LinkLostError(self._lost(min(lost, key=lambda port: dark[port]), dark, now))

    def _sources(self) -> dict[Port, Port]:
        """Return the NIC ports that circuits lead light to, and where it comes from."""
        found = {}
        for switch, circuits in self._circuits().items():
            for circuit in circuits:
                source, sink = self._cabling.light_path(switch, circuit)
                found[sink] = source
        return found

    def _lost(self, port: Port, dark: Mapping[Port, Span], now: int) -> LostLink:
        partner = self._sources().get(port, port)
        circuits = tuple(
            f"{switch} {circuit}"
            for switch, each in sorted(self._circuits().items())
            for circuit in sorted(each)
            if port in self._cabling.light_path(switch, circuit)
        )
        lasting = now - dark[port].latest
        return LostLink(port, partner, circuits, dark[port], lasting, self._carriers.longest)
