"""The greatest power that can be at a port, by fibers, circuits and the settings of instruments.

Losses that nothing states are taken as none: those of switches, and of attenuators at 0 dB.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import (
    HasLightLevel,
    HasSettings,
    Identified,
    LightSource,
    OpticalSwitch,
)
from lightrig.testbeds import Circuit, Port, Testbed

IN_LINE = frozenset(("attenuator", "polarization_controller"))
"""Kinds of instruments that pass light on: it enters and leaves at ports of the same name."""

UNKNOWN_DBM = math.inf
"""Power of light of which nothing states how strong it is."""


class OpenParts(Protocol):
    """The open parts of a testbed; `neighbours` are further ones, opened apart."""

    @property
    def testbed(self) -> Testbed:
        """The description."""

    @property
    def clock(self) -> Clock:
        """The source of time."""

    @property
    def switches(self) -> Mapping[str, OpticalSwitch]:
        """The open switches by name."""

    @property
    def instruments(self) -> Mapping[str, Identified]:
        """The open instruments by name."""

    @property
    def neighbours(self) -> Mapping[str, OpenParts]:
        """Other parts that this process has open."""


def damage_dbm(testbed: Testbed, sink: Port) -> float | None:
    """Return the power that damages the receiver at `sink`, None where none is stated."""
    if (instrument := testbed.instruments.get(sink.owner)) is not None:
        return instrument.damage_dbm
    if sink.owner in testbed.optical_switches:
        return None
    transceiver = testbed.transceiver_of(sink)
    return transceiver.damage_dbm if transceiver is not None else None


def is_in_line(testbed: Testbed, port: Port) -> bool:
    """Whether `port` is one of an instrument that passes light on."""
    spec = testbed.instruments.get(port.owner)
    return spec is not None and spec.kind in IN_LINE


class Exposure:
    """Parts of a testbed that light can reach and that the check of its file has not judged.

    That check follows light of stated power through switches alone. Any circuits are assumed.

    Attributes:
        instruments: those whose light may damage a receiver.
        ingress: the ports of switches where such light may enter.
    """

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        instruments: set[str] = set()
        ingress: set[Port] = set()
        sources = [fiber.source for fiber in testbed.fibers] if testbed.instruments else []
        for source in sources:
            if source.owner not in testbed.instruments:
                continue
            reached = self._behind(source)
            damages = [d for sink in reached if (d := damage_dbm(testbed, sink)) is not None]
            if damages and self._strongest(source) > min(damages):
                instruments.add(source.owner)
                ingress |= {port for port in reached if port.owner in testbed.optical_switches}
        self.instruments = frozenset(instruments)
        self.ingress = frozenset(ingress)

    def _behind(self, source: Port) -> set[Port]:
        """Return all sinks that light from `source` can reach."""
        cabling = self._testbed.cabling
        reached: set[Port] = set()
        ahead = [source]
        while ahead:
            fiber = cabling.fiber_from(ahead.pop())
            if fiber is None or fiber.sink in reached:
                continue
            reached.add(fiber.sink)
            if fiber.sink.owner in self._testbed.optical_switches:
                _, egress = cabling.cabled_ports(fiber.sink.owner)
                ahead += [Port(fiber.sink.owner, str(number)) for number in egress]
            elif is_in_line(self._testbed, fiber.sink):
                ahead.append(fiber.sink)
        return reached

    def _strongest(self, source: Port) -> float:
        """Return the greatest power of the light that can leave `source`."""
        cabling, testbed = self._testbed.cabling, self._testbed
        strongest, seen, ahead = -math.inf, set[Port](), [source]
        while ahead:
            port = ahead.pop()
            if port in seen:
                continue
            seen.add(port)
            if port.owner in testbed.optical_switches:
                numbers, _ = cabling.cabled_ports(port.owner)
                sinks = [Port(port.owner, str(number)) for number in numbers]
            elif is_in_line(testbed, port):
                sinks = [port]
            else:
                strongest = max(strongest, launched(testbed, port))
                continue
            ahead += [fiber.source for sink in sinks if (fiber := cabling.fiber_to(sink))]
        return strongest


def launched(testbed: Testbed, source: Port, *, in_lanes: bool = False) -> float:
    """Return the greatest power that the testbed file states of a transmitter, in dBm.

    in_lanes: of one lane of a transceiver, as a receiver of its kind gets it, not of the fiber.
    """
    if (instrument := testbed.instruments.get(source.owner)) is not None:
        launch = instrument.launch_max_dbm
        return UNKNOWN_DBM if launch is None else launch
    transceiver = testbed.transceiver_of(source)
    if transceiver is None:
        return -math.inf
    return transceiver.launch.max if in_lanes else transceiver.fiber_launch_max_dbm


class LightLevels:
    """The light of a bench, as its switches and instruments report to be set; each is asked once.

    A switch that is not open may join all of its ports; an instrument that is not open, or does
    not report its light, passes all, or launches what the testbed file states.

    Args:
        parts: what is open.
        circuits: of switches that are not to be asked.
    """

    def __init__(self, parts: OpenParts, circuits: Mapping[str, frozenset[Circuit]]) -> None:
        self._open = (parts, *parts.neighbours.values())
        self._testbed = parts.testbed
        self._circuits: dict[str, frozenset[Circuit] | None] = dict(circuits)
        self._levels: dict[Port, float | None] = {}

    def set_level(self, port: Port, level: float | None) -> None:
        """Let the light of an instrument at `port` be `level`, as `HasLightLevel` has it."""
        self._levels[port] = level

    def leaving(self, source: Port, *, in_lanes: bool = False) -> float:
        """Return the greatest power in dBm that leaves `source` now, -inf where it is dark."""
        return self._leaving(source, in_lanes, frozenset())

    def entering(self, sink: Port, *, in_lanes: bool = False) -> float:
        """Return the greatest power in dBm that comes to `sink` now, -inf where it is dark."""
        return self._entering(sink, in_lanes, frozenset())

    def receivers(self, source: Port) -> Iterator[tuple[Port, float]]:
        """Yield the ports that light from `source` reaches now, with the loss up to there in dB."""
        seen: set[Port] = set()
        ahead = [(source, 0.0)]
        while ahead:
            port, lost = ahead.pop()
            fiber = self._testbed.cabling.fiber_from(port)
            if fiber is None or fiber.sink in seen:
                continue
            seen.add(fiber.sink)
            sink, lost = fiber.sink, lost + fiber.loss_db
            yield sink, lost
            if sink.owner in self._testbed.optical_switches:
                ahead += [(egress, lost) for egress in self._joined(sink, 1)]
            elif is_in_line(self._testbed, sink) and (passed := self._passed(sink)) > -math.inf:
                ahead.append((sink, lost - passed))

    def _leaving(self, source: Port, in_lanes: bool, after: frozenset[Port]) -> float:
        if source.owner in self._testbed.optical_switches:
            entered = (self._entering(p, in_lanes, after) for p in self._joined(source, 0))
            return max(entered, default=-math.inf)
        if is_in_line(self._testbed, source):
            passed = self._passed(source)
            dark = passed == -math.inf
            return passed if dark else self._entering(source, in_lanes, after) + passed
        level = self._level(source)
        return launched(self._testbed, source, in_lanes=in_lanes) if level is None else level

    def _entering(self, sink: Port, in_lanes: bool, after: frozenset[Port]) -> float:
        fiber = self._testbed.cabling.fiber_to(sink)
        if fiber is None or sink in after:
            return -math.inf
        return self._leaving(fiber.source, in_lanes, after | {sink}) - fiber.loss_db

    def _joined(self, port: Port, side: int) -> Iterable[Port]:
        """Return what a switch joins with `port`: its ingress ports (side 0) or egress (1)."""
        name = port.owner
        if name not in self._circuits:
            switch = next((b.switches[name] for b in self._open if name in b.switches), None)
            self._circuits[name] = None if switch is None else switch.circuits()
        circuits = self._circuits[name]
        if circuits is None:
            numbers = self._testbed.cabling.cabled_ports(name)[side]
        else:
            pairs = [(each.ingress, each.egress) for each in circuits]
            numbers = frozenset(pair[side] for pair in pairs if pair[1 - side] == int(port.name))
        return [Port(name, str(number)) for number in sorted(numbers)]

    def _passed(self, port: Port) -> float:
        """Return by how many dB an instrument in line raises light: never, so 0 at most."""
        return min(self._level(port) or 0.0, 0.0)

    def _level(self, port: Port) -> float | None:
        if port not in self._levels:
            self._levels[port] = self._asked(port)
        return self._levels[port]

    def _asked(self, port: Port) -> float | None:
        name = port.owner
        if name not in self._testbed.instruments:
            return None
        found = (each.instruments[name] for each in self._open if name in each.instruments)
        instrument: object = next(found, None)
        channel = int(port.name)
        if isinstance(instrument, HasLightLevel) and isinstance(instrument, HasSettings):
            return instrument.light_level(instrument.read_settings([channel]), channel)
        if isinstance(instrument, LightSource) and not instrument.emission(channel):
            return -math.inf
        return None
