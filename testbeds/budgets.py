"""Whether the light is enough to be received, and not enough to destroy."""

from __future__ import annotations

from dataclasses import dataclass

from testbeds.cabling import Fiber
from testbeds.expansion import Parts
from testbeds.findings import Findings
from testbeds.model import TransceiverSpec
from testbeds.plans import Port
from testbeds.quantities import format_db, format_dbm
from testbeds.wiring import Wiring

_DUST_DB = 5e-4
"""What binary fractions may leave behind where a budget closes exactly."""


@dataclass(frozen=True, slots=True)
class _Light:
    """What leaves a transmitter, and the loss of its own fiber."""

    source: Port
    sender: TransceiverSpec | None
    launch_max_dbm: float | None
    loss_db: float


def check_budgets(parts: Parts, wiring: Wiring, findings: Findings) -> None:
    """Note each line whose receivers may be too dark in the worst circuit, or destroyed.

    Every transmitter on a switch can be switched to every receiver on it. Too dark is judged
    among transceivers of one wavelength, destruction among all light. A switch's loss is at
    most `loss.max`; nothing says how little it may be, so it protects no receiver.
    """
    _Budgets(parts, wiring, findings).check()


class _Budgets:
    def __init__(self, parts: Parts, wiring: Wiring, findings: Findings) -> None:
        self._parts = parts
        self._wiring = wiring
        self._findings = findings

    def check(self) -> None:
        switches = self._parts.switches
        into: dict[str, list[_Light]] = {name: [] for name in switches}
        for fiber in self._wiring.fibers:
            if fiber.sink.owner in switches:
                into[fiber.sink.owner].append(self._light(fiber))
        for fiber in self._wiring.fibers:
            if fiber.sink.owner in switches:
                continue
            switch = switches.get(fiber.source.owner)
            if switch is None:
                self._check_dark(fiber, [self._light(fiber)], 0.0, "")
                self._check_damage(fiber, [self._light(fiber)], 0.0)
            elif switch.kind == "optical":
                lights = into[switch.name]
                loss_db = switch.loss_max_db or 0.0
                where = f" - {switch.name} {format_db(loss_db)}"
                self._check_dark(fiber, lights, fiber.loss_db + loss_db, where)
                self._check_damage(fiber, lights, fiber.loss_db)

    def _check_dark(self, fiber: Fiber, lights: list[_Light], loss_db: float, where: str) -> None:
        receiver = self._transceiver(fiber.sink)
        if receiver is None:
            return
        arrivals = [
            (light.sender.launch_min_dbm - light.loss_db - loss_db, light.source, light.sender)
            for light in lights
            if light.sender and light.sender.wavelength_nm == receiver.wavelength_nm
        ]
        if not arrivals:
            return
        arrives, source, sender = min(arrivals, key=lambda arrival: arrival[0])
        if arrives < receiver.receive_min_dbm - _DUST_DB:
            switch = self._parts.switches.get(fiber.source.owner)
            in_switch_db = (switch.loss_max_db or 0.0) if switch else 0.0
            fibers_db = sender.launch_min_dbm - arrives - in_switch_db
            self._findings.add(
                self._wiring.stated[fiber],
                f"the loss budget cannot close: {format_dbm(sender.launch_min_dbm)} from {source}"
                f" - fibers {format_db(abs(fibers_db))}{where} = {format_dbm(arrives)}, expected "
                f"at least {format_dbm(receiver.receive_min_dbm)} at {fiber.sink}",
                once="budget",
            )

    def _check_damage(self, fiber: Fiber, lights: list[_Light], loss_db: float) -> None:
        instrument = self._parts.instruments.get(fiber.sink.owner)
        receiver = self._transceiver(fiber.sink)
        damage = instrument.damage_dbm if instrument else receiver.damage_dbm if receiver else None
        arrivals = [
            (light.launch_max_dbm - light.loss_db - loss_db, light.source)
            for light in lights
            if light.launch_max_dbm is not None
        ]
        if damage is None or not arrivals:
            return
        arrives, source = max(arrivals, key=lambda arrival: arrival[0])
        if arrives > damage + _DUST_DB:
            self._findings.add(
                self._wiring.stated[fiber],
                f"up to {format_dbm(arrives)} from {source} can reach {fiber.sink}, expected "
                f"no more than its damage threshold of {format_dbm(damage)}",
                once="damage",
            )

    def _light(self, fiber: Fiber) -> _Light:
        sender = self._transceiver(fiber.source)
        instrument = self._parts.instruments.get(fiber.source.owner)
        most = instrument.launch_max_dbm if instrument else None
        return _Light(
            fiber.source, sender, sender.launch_max_dbm if sender else most, fiber.loss_db
        )

    def _transceiver(self, port: Port) -> TransceiverSpec | None:
        server = self._parts.servers.get(port.owner)
        nic = server.nics[port.name.partition(".")[0]] if server else None
        return self._parts.transceivers.get(nic.transceiver or "") if nic else None
