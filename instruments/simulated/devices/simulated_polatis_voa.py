"""A simulated Polatis that is used as an attenuator.

Light at channel n enters a circuit that exists from the start and leaves at the channel's egress
port.
"""

import math
from collections.abc import Mapping
from functools import partial

from lightrig.instruments.simulated.devices.dialects import forms
from lightrig.instruments.simulated.devices.polatis_box import PolatisBox
from lightrig.instruments.simulated.devices.polatis_tl1 import PolatisTl1
from lightrig.instruments.simulated.devices.simulated_polatis import wires
from lightrig.instruments.simulated.protocols.device_server import SessionFactory
from lightrig.instruments.simulated.registry import DeviceContext, NoSimulatedDeviceError
from lightrig.instruments.simulated.world.optics import Matrix
from lightrig.testbeds import Circuit, InstrumentSpec, SimulatedSwitch


class SimulatedPolatisVoa:
    """One simulated switch with a circuit for each channel.

    Its option `ports` names the channels' egress ports (`33-48`), and with them the size of the
    switch; without it the switch is square. Monitors are on both sides unless the option
    `monitors` states otherwise; losses are those of any simulated switch.
    """

    def __init__(self, context: DeviceContext) -> None:
        spec = context.spec
        assert isinstance(spec, InstrumentSpec)
        egress = _egress_ports(spec)
        ingress_count = max(spec.channels, min(egress) - 1)
        if min(egress) <= ingress_count:
            raise NoSimulatedDeviceError(
                f"{spec.name}: {spec.channels} channels cannot end at egress port {min(egress)}: "
                "a switch numbers its ingress ports first"
            )
        self._channel_of = {port: channel for channel, port in enumerate(egress, 1)}
        self._light = context.light
        self._matrix = Matrix(
            spec.name,
            SimulatedSwitch(),
            context.clock,
            context.chance,
            context.truth,
            partial(self._launch, spec.channels),
            self._pass_on,
            lambda ingress, start, end: (
                context.light.arriving(ingress, start, end) if ingress <= spec.channels else 0.0
            ),
        )
        self._box = PolatisBox(
            spec.name,
            (ingress_count, max(egress) - ingress_count),
            {"monitors": "both", **spec.options},
            self._matrix,
            context.clock,
            context.truth,
            context.serial,
        )
        self._wires = wires(
            PolatisTl1(self._box, context.login, forms("polatis", spec.options)),
            self._box,
            context.login,
            spec.options,
        )
        for channel in range(1, spec.channels + 1):
            context.light.on_arrival(channel, partial(self._relight, channel))
        self._matrix.connect([Circuit(n, port) for port, n in self._channel_of.items()])

    def wires(self) -> Mapping[str, SessionFactory]:
        """Return the factories of the wires on which the driver uses an attenuator."""
        return {name: made for name, made in self._wires.items() if name not in {"scpi", "serial"}}

    def _launch(self, channels: int, ingress: int) -> float | None:
        milliwatt = self._light.level(ingress) if ingress <= channels else 0.0
        return 10 * math.log10(milliwatt) if milliwatt else None

    def _relight(self, ingress: int, _: int) -> None:
        self._matrix.relight(ingress)

    def _pass_on(self, egress: int, ingress: int | None, at: int) -> None:
        channel = self._channel_of.get(egress)
        if channel is not None:
            self._light.pass_on(channel, 0.0 if ingress is None else self._matrix.level(egress), at)


def _egress_ports(spec: InstrumentSpec) -> list[int]:
    """Return the egress port of each channel."""
    ports: list[int] = []
    for item in filter(None, str(spec.options.get("ports", "")).replace(" ", "").split(",")):
        first, dash, last = item.partition("-")
        ports.extend(range(int(first), int(last if dash else first) + 1))
    if not ports:
        return list(range(spec.channels + 1, 2 * spec.channels + 1))
    if len(ports) < spec.channels:
        raise NoSimulatedDeviceError(f"{spec.name}: {spec.channels} channels need as many `ports`")
    return ports[: spec.channels]
