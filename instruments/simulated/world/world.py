"""The light of a simulated testbed: transmitters, fibers, switches' mirrors and links.

Knows no device, no protocol and no server: `simulated.lab` puts them around it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.world.ambient import Ambient
from lightrig.instruments.simulated.world.carriers import reads
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.light import LightField
from lightrig.instruments.simulated.world.links import NicLinks
from lightrig.instruments.simulated.world.optics import Matrix, PortFaults
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.instruments.simulated.world.reference_book import ReferenceBook
from lightrig.testbeds import Circuit, Fiber, Port, SwitchSpec, Testbed

_FADING_NS = 20_000_000
"""Interval at which the power of a drifting laser is updated."""

Follow = Callable[[Port, Port | None, int], None]
"""Lets the link of a port follow its light: the port, the far end or None, the time in ns."""


class Interruption(NamedTuple):
    """A fiber that is dark `after` ns, `lasting` so long, again `every` so often unless None."""

    source: Port
    after: int
    lasting: int
    every: int | None


class LightFaults(Protocol):
    """Faults of a testbed's light that are there from the beginning."""

    def fibers(self) -> Iterable[Fiber]:
        """Return the fibers as they are plugged, with what they truly lose."""

    def at_ports(self, switch: str) -> PortFaults:
        """Return what is wrong at a switch's ports."""

    def dark(self) -> frozenset[Port]:
        """Return the transmitters that are always dark."""

    def interruptions(self) -> Iterable[Interruption]:
        """Return when the fibers of transmitters are interrupted."""

    def slowdown(self, switch: str) -> float:
        """Return how many times as long a switch takes to settle and to acknowledge."""

    def fading(self) -> Mapping[Port, float]:
        """Return the transmitters that fade, and by how many dB a minute."""

    def lost_in_fibers(self) -> Mapping[Port, float]:
        """Return what faults add to the loss of a fiber in dB, by its source."""


class World:
    """Light and links of a testbed, from its ground truth.

    Args:
        testbed: the testbed.
        clock: the world's clock.
        chance: draws of what differs between worlds.
        truth: takes every moment at which something changed.
        faults: what is wrong with the light.
        follow: lets a port's link follow its light; by default the simulated NICs' links.

    Attributes:
        truth: every moment at which something changed.
        matrices: light of each optical switch, by its name.
        links: of the simulated NIC ports.
    """

    def __init__(
        self,
        testbed: Testbed,
        clock: Clock,
        chance: Chance,
        truth: GroundTruth,
        faults: LightFaults,
        follow: Follow | None = None,
    ) -> None:
        self.truth = truth
        self.testbed = testbed
        self.clock = clock
        self.chance = chance
        self._faults = faults
        self._packet_switches = testbed.switches.keys() - testbed.optical_switches.keys()
        self._readable: dict[tuple[Port, Port], bool] = {}
        self.links = NicLinks(testbed.simulation.nic, clock, chance, truth)
        self._follow = follow or self.links.hears
        self._launched: dict[Port, float] = {}
        self._lasers_off: set[Port] = set()
        self.light = LightField(map(self._connected, faults.fibers()))
        self._ambient = Ambient()
        self.matrices: dict[str, Matrix] = {}
        for switch in testbed.optical_switches.values():
            self.matrices[switch.name] = self._matrix(switch)
        self._fade()
        self._light_up()
        self.references = ReferenceBook(
            self.matrices,
            self.light,
            chance,
            testbed.simulation.references.uncertainty_db,
            faults.lost_in_fibers(),
        )

    def loss(self, switch: str, circuit: Circuit) -> float:
        """Return the true insertion loss of a circuit in dB; for closure only."""
        return self.matrices[switch].loss(circuit)

    def lost_in_fiber(self, end: Port) -> float:
        """Return the excess loss in dB of the fiber that ends at `end`, due to lab faults."""
        return self._faults.lost_in_fibers().get(end, 0.0)

    def fading(self) -> frozenset[Port]:
        """Return the transmitters whose power drifts; for closure only."""
        return frozenset(self._faults.fading())

    def losses(self, switch: str, circuits: Sequence[Circuit]) -> list[float]:
        """Return the true insertion loss of each of many circuits in dB; for closure only."""
        return self.matrices[switch].losses(circuits)

    def polarization_dependence(self, switch: str) -> float:
        """Return the true polarization dependent loss of a switch's circuits; for closure only."""
        return self.testbed.simulation.switches[switch].loss.polarization_db

    def crosstalk(self, switch: str, circuit: Circuit, egress: int) -> float:
        """Return the true crosstalk of a circuit at a dark egress, in dB; for closure only."""
        return self.matrices[switch].crosstalk(circuit, egress)

    def set_switching_time(self, switch: str, duration: int) -> None:
        """Let every change of a switch take `duration` ns from now on."""
        self.matrices[switch].set_switching_time(duration)

    def replug(self, source: Port, sink: Port, loss_db: float) -> Callable[[], None]:
        """Plug the fiber at `source` into `sink`, as a person would; return the undoing."""
        return self.light.replug(source, sink, loss_db, self.clock)

    def power_off(self, server: str) -> Callable[[], None]:
        """Switch a server's transmitters off, as without power; return the undoing.

        Transceivers that switch keep their paths meanwhile (a guess).
        """
        return self.darken(port for port in self._launched if port.owner == server)

    def darken(self, ports: Iterable[Port]) -> Callable[[], None]:
        """Switch these transmitters off; return the undoing."""
        dark = [port for port in ports if port not in self._lasers_off]

        def switch(on: bool) -> None:
            for port in dark:
                self._set_laser(port, on)

        switch(False)
        return partial(switch, True)

    def cut(self, port: Port, lasting: int) -> int:
        """Interrupt both fibers of a NIC port for `lasting` ns; return when that begins: now."""
        began = self.clock.now()
        for fiber in self.testbed.fibers:
            if port in (fiber.source, fiber.sink):
                self._interrupt(Interruption(fiber.source, 0, lasting, None), began)
        return began

    def forget_circuits(self, switch: str) -> None:
        """Let a switch lose its circuits, as one that restarts."""
        if switch in self.matrices:
            matrix = self.matrices[switch]
            matrix.disconnect(list(matrix.egress_of))

    def _connected(self, fiber: Fiber) -> Fiber:
        """Return `fiber` with the true loss of itself and of its connectors, drawn once."""
        if fiber.uncertainty_db:
            draw = self.chance.stream(f"{fiber.source}/fiber").normal()
            true_db = max(fiber.loss_db + fiber.uncertainty_db * draw, 0.0)
            fiber = replace(fiber, loss_db=true_db)
        kind = self.testbed.simulation.connectors
        if not kind.mean and not kind.sd:
            return fiber
        draw = self.chance.stream(f"{fiber.source}/connectors").normal()
        return replace(fiber, loss_db=fiber.loss_db + max(kind.mean + kind.sd * draw, 0.0))

    def _matrix(self, spec: SwitchSpec) -> Matrix:
        """Make the mirrors of a switch, in this world's light."""
        light, name = self.light, spec.name
        ingress_ports = {port: Port(name, str(port)) for port in spec.ingress_ports}
        egress_ports = {port: Port(name, str(port)) for port in spec.egress_ports}

        def launch(ingress: int) -> float | None:
            milliwatt = light.level(ingress_ports[ingress])
            return 10 * math.log10(milliwatt) if milliwatt else None

        def on_light(egress: int, ingress: int | None, at: int) -> None:
            if ingress is None:
                light.emit(egress_ports[egress], 0.0, None, at)
            else:
                origin = light.origin(ingress_ports[ingress])
                light.emit(egress_ports[egress], matrix.level(egress), origin, at)

        truth_of = self.testbed.simulation.switches[name]
        if (factor := self._faults.slowdown(name)) != 1:
            settle, reply = truth_of.settle.times(factor), truth_of.acknowledge.times(factor)
            truth_of = replace(truth_of, settle=settle, acknowledge=reply)
        matrix = Matrix(
            name,
            truth_of,
            self.clock,
            self.chance,
            self.truth,
            launch,
            on_light,
            lambda ingress, start, end: light.arriving(ingress_ports[ingress], start, end),
            self._faults.at_ports(name),
            self._ambient,
            lambda ingress: light.detuning(ingress_ports[ingress]),
            lambda ingress: light.polarization(ingress_ports[ingress]),
            # Without an origin: no receiver takes crosstalk for a link.
            lambda egress, milliwatt, at: light.emit(egress_ports[egress], milliwatt, None, at),
            spec.egress_ports,
        )
        for ingress, port in ingress_ports.items():
            light.on_arrival(port, partial(_relight, matrix, ingress))
        return matrix

    def _launching(self, port: Port) -> float:
        return 0.0 if port in self._lasers_off else self._launched.get(port, 0.0)

    def _set_laser(self, port: Port, on: bool) -> None:
        if on and port not in self._faults.dark():
            self._lasers_off.discard(port)
        else:
            self._lasers_off.add(port)
        self.light.emit(port, self._launching(port), port, self.clock.now())

    def _light_up(self) -> None:
        """Switch every transmitter on, and connect every receiver to the light at its port."""
        nodes = self.testbed.servers.keys() | self._packet_switches
        listeners = [spec.port for spec in self.testbed.nic_ports]
        listeners += [f.sink for f in self.testbed.fibers if f.sink.owner in self._packet_switches]
        for port in listeners:
            self.light.on_arrival(port, partial(self._nic_hears, port))
        for fiber in self.testbed.fibers:
            if fiber.source.owner not in nodes:
                continue
            kind = self.testbed.transceiver_of(fiber.source)
            if kind is None:
                continue
            middle = (kind.launch.min + kind.launch.max) / 2
            quarter = (kind.launch.max - kind.launch.min) / 4
            draw = self.chance.stream(f"{fiber.source}/launch").normal()
            lane = middle + quarter / 2 * max(-2.0, min(draw, 2.0))
            self._launched[fiber.source] = 10 ** (lane / 10) * (kind.wavelengths or 1)
        self._lasers_off |= self._faults.dark()
        for port in self._launched:
            self.light.emit(port, self._launching(port), port, 0)

    def _fade(self) -> None:
        """Start the lab faults that dim lasers and interrupt fibers."""
        begun = self.clock.now()
        for one in self._faults.interruptions():
            self.light.fade(one.source, 1.0, begun)
            self._interrupt(one, begun + one.after)
        for source, db_per_minute in self._faults.fading().items():
            self._fade_on(source, db_per_minute)

    def _interrupt(self, one: Interruption, at: int) -> None:
        """Schedule an interruption, and with its end the next."""
        name, end = f"{one.source}!interrupted", at + one.lasting
        self.clock.schedule(at, name, partial(self.light.fade, one.source, 0.0, at))

        def recover() -> None:
            self.light.fade(one.source, 1.0, end)
            if one.every is not None:
                self._interrupt(one, max(at + one.every, end))

        self.clock.schedule(end, name, recover)

    def _fade_on(self, source: Port, db_per_minute: float) -> None:
        now = self.clock.now()
        self.light.fade(source, 10 ** (-db_per_minute * now / 60e9 / 10), now)
        self.clock.schedule(
            now + _FADING_NS, f"{source}!fading", partial(self._fade_on, source, db_per_minute)
        )

    def _nic_hears(self, port: Port, at: int) -> None:
        if self._sends_pattern(port):
            return  # it brings no link up until that ends
        origin = self.light.origin(port)
        source = origin
        if origin is not None and origin.owner not in self.testbed.servers:
            source = origin if origin.owner in self._packet_switches else None
        if source is not None and not self._reads(port, source):
            source = None  # light, and none that its receiver can read
        far = source if source is None else self._answering(port, source)
        self._follow(port, far, at)
        if far is not None and far != source:
            self._follow(far, port, at)

    def _reads(self, port: Port, source: Port) -> bool:
        """Whether a port's receiver can read a transmitter; modules stay as they are."""
        pair = port, source
        if pair not in self._readable:
            self._readable[pair] = reads(*map(self.testbed.transceiver_of, pair))
        return self._readable[pair]

    def _answering(self, port: Port, source: Port) -> Port:
        """Return the port at the other end: the receiver beside `source` that `port` reaches."""
        transmitter = self.testbed.cabling.speaker(port)
        for detector in self.testbed.cabling.detectors(source):
            if detector != port and self.light.origin(detector) == transmitter:
                return detector
        return source

    def _sends_pattern(self, port: Port) -> bool:
        """Whether a NIC port sends a test pattern instead of frames."""
        return False


def _relight(matrix: Matrix, ingress: int, _: int) -> None:
    matrix.relight(ingress)
