"""Power budgets: enough light for each receiver, and less than its damage threshold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lightrig.testbeds.cabling import Fiber
from lightrig.testbeds.expansion import Parts
from lightrig.testbeds.findings import Findings
from lightrig.testbeds.model import SwitchSpec, TransceiverSpec
from lightrig.testbeds.plans import Port
from lightrig.testbeds.quantities import format_db, format_dbm
from lightrig.testbeds.wiring import Wiring

_DUST_DB = 5e-4
"""Rounding error of a budget that is met exactly."""


_MOST_STAGES = 8
"""Longest chain of switches through which light is followed."""


@dataclass(frozen=True, slots=True)
class _Light:
    """Launched power, and the loss of the path to a switch or a receiver.

    fibers_db: of all fibers. through: the switches that it has crossed, one after the other.
    """

    source: Port
    sender: TransceiverSpec | None
    launch_max_dbm: float | None
    fibers_db: float
    through: tuple[SwitchSpec, ...] = ()

    @property
    def switches_db(self) -> float:
        """The greatest loss of the switches on its path."""
        return sum(switch.loss_max_db or 0.0 for switch in self.through)

    def onward(self, switch: SwitchSpec, fiber: Fiber) -> _Light:
        """Return the light behind one more switch and fiber."""
        return replace(
            self, fibers_db=self.fibers_db + fiber.loss_db, through=(*self.through, switch)
        )


def _weakness(light: _Light) -> float:
    """Return the least received power in dBm."""
    sent = light.sender.launch.min if light.sender else 0.0
    return sent - light.fibers_db - light.switches_db


def _strength(light: _Light) -> float:
    """Return the greatest received power in dBm."""
    return (light.launch_max_dbm or 0.0) - light.fibers_db


def _wavelengths(light: _Light) -> int | None:
    return light.sender.wavelengths if light.sender else 1


def _apart_db(light: _Light, receiver: TransceiverSpec | None) -> float:
    """Return by how many dB one lane of a receiver gets less than the sum of the wavelengths.

    A meter gets the sum. A receiver of as many wavelengths has them one a lane; one of fewer
    gets several in a lane. Where one of two transceivers does not state its number, they are
    taken as alike; light whose number is not stated, as one wavelength.
    """
    if receiver is None or light.sender is None:
        return 0.0
    sent, received = light.sender.wavelengths, receiver.wavelengths
    together = math.ceil(sent / received) if sent and received else 1
    return 10 * math.log10((sent or 1) / together)


def _color(kind: TransceiverSpec) -> object:
    """Return by what transceivers are told apart that read each other's light."""
    return kind.known_pmd.name if kind.known_pmd else kind.wavelength_nm


def _reads(receiver: TransceiverSpec, sender: TransceiverSpec) -> bool:
    if receiver.known_pmd and sender.known_pmd:
        return receiver.known_pmd.deaf_to(sender.known_pmd) is None
    return sender.wavelength_nm == receiver.wavelength_nm


def check_budgets(parts: Parts, wiring: Wiring, findings: Findings, *, damage: bool = True) -> None:
    """Note each line whose receivers may be too dark in the worst circuit, or destroyed.

    Every transmitter on a switch can be switched to every receiver on it, and, where switches are
    in cascade, to every one behind the next. Too dark is judged among transceivers of one
    wavelength, destruction among all light. A switch's loss is at most `loss.max`; nothing says
    how little it may be, so it protects no receiver. damage: whether destruction is judged.
    """
    _Budgets(parts, wiring, findings).check(damage=damage)


class _Budgets:
    def __init__(self, parts: Parts, wiring: Wiring, findings: Findings) -> None:
        self._parts = parts
        self._wiring = wiring
        self._findings = findings
        self._known: dict[tuple[str, tuple[str, ...]], tuple[_Light, ...]] = {}

    def check(self, *, damage: bool) -> None:
        into: dict[str, list[Fiber]] = {}
        for fiber in self._wiring.fibers:
            into.setdefault(fiber.sink.owner, []).append(fiber)
        for fiber in self._wiring.fibers:
            if self._optical(fiber.sink.owner) is None:
                lights = list(self._lights(fiber, into, ()))
                self._check_dark(fiber, lights)
                if damage:
                    self._check_damage(fiber, lights)

    def _optical(self, name: str) -> SwitchSpec | None:
        switch = self._parts.switches.get(name)
        return switch if switch and switch.kind == "optical" else None

    def _lights(
        self, fiber: Fiber, into: Mapping[str, Sequence[Fiber]], after: tuple[str, ...]
    ) -> Iterator[_Light]:
        """Return all light that circuits can route into `fiber`, through no switch twice."""
        switch = self._optical(fiber.source.owner)
        if switch is None:
            yield self._light(fiber)
        elif switch.name not in after and len(after) < _MOST_STAGES:
            for light in self._extremes(switch.name, into, after):
                yield light.onward(switch, fiber)

    def _extremes(
        self, switch: str, into: Mapping[str, Sequence[Fiber]], after: tuple[str, ...]
    ) -> Sequence[_Light]:
        """Return the weakest light of each wavelength at a switch, and the strongest of each sum.

        Whatever way they share from here on, nothing else can be darker or destroy more.
        """
        if (switch, after) not in self._known:
            lights = [
                light
                for fiber in into.get(switch, ())
                for light in self._lights(fiber, into, (*after, switch))
            ]
            senders = dict.fromkeys(_color(light.sender) for light in lights if light.sender)
            found = [
                min((x for x in lights if x.sender and _color(x.sender) == color), key=_weakness)
                for color in senders
            ]
            launched = [light for light in lights if light.launch_max_dbm is not None]
            kinds = dict.fromkeys(_wavelengths(light) for light in launched)
            found += [
                max((x for x in launched if _wavelengths(x) == count), key=_strength)
                for count in kinds
            ]
            self._known[switch, after] = tuple(found)
        return self._known[switch, after]

    def _check_dark(self, fiber: Fiber, lights: list[_Light]) -> None:
        receiver = self._transceiver(fiber.sink)
        if receiver is None:
            return
        arrivals = [
            (_weakness(light), light, light.sender)
            for light in lights
            if light.sender and _reads(receiver, light.sender)
        ]
        if not arrivals:
            return
        arrives, light, sender = min(arrivals, key=lambda arrival: arrival[0])
        if arrives < receiver.receive.min - _DUST_DB:
            stages = "".join(
                f" - {switch.name} {format_db(switch.loss_max_db or 0.0)}"
                for switch in light.through
            )
            self._findings.add(
                self._wiring.stated[fiber],
                f"the loss budget cannot close: {format_dbm(sender.launch.min)} from "
                f"{light.source} - fibers {format_db(light.fibers_db)}{stages} = "
                f"{format_dbm(arrives)}, expected at least "
                f"{format_dbm(receiver.receive.min)} at {fiber.sink}",
                once="budget",
            )

    def _check_damage(self, fiber: Fiber, lights: list[_Light]) -> None:
        instrument = self._parts.instruments.get(fiber.sink.owner)
        receiver = self._transceiver(fiber.sink)
        damage = instrument.damage_dbm if instrument else receiver.damage_dbm if receiver else None
        arrivals = [
            (_strength(light) - _apart_db(light, receiver), light)
            for light in lights
            if light.launch_max_dbm is not None
        ]
        if damage is None or not arrivals:
            return
        arrives, light = max(arrivals, key=lambda arrival: arrival[0])
        if arrives > damage + _DUST_DB:
            self._findings.add(
                self._wiring.stated[fiber],
                f"up to {format_dbm(arrives)} from {light.source} can reach {fiber.sink}, expected "
                f"no more than its damage threshold of {format_dbm(damage)}",
                once="damage",
            )

    def _light(self, fiber: Fiber) -> _Light:
        sender = self._transceiver(fiber.source)
        instrument = self._parts.instruments.get(fiber.source.owner)
        most = instrument.launch_max_dbm if instrument else None
        if sender is not None:
            most = sender.launch.max
            if sender.wavelengths:
                most = sender.fiber_launch_max_dbm
        return _Light(fiber.source, sender, most, fiber.loss_db)

    def _transceiver(self, port: Port) -> TransceiverSpec | None:
        server = self._parts.servers.get(port.owner)
        nic = server.nics[port.name.partition(".")[0]] if server else None
        holder = nic or self._parts.switches.get(port.owner)
        return self._parts.transceivers.get(holder.transceiver or "") if holder else None
