"""A simulated Polatis that stands in the light as an attenuator; knows nothing of any driver.

Light that comes to channel n enters a circuit that is made from the start, ends at the channel's
egress port, and goes on from there.
"""

import math
from collections.abc import Mapping
from functools import partial

from instruments.simulated.optics import Matrix
from instruments.simulated.peer_server import SessionFactory
from instruments.simulated.peers import NoPeerError, Surroundings
from instruments.simulated.polatis_box import PolatisBox
from instruments.simulated.polatis_peer import wires
from instruments.simulated.polatis_tl1 import PolatisTl1
from testbeds import Circuit, InstrumentSpec, SimulatedSwitch


class PolatisVoaPeer:
    """One simulated switch with a circuit for each channel.

    Its option `ports` names the channels' egress ports (`33-48`), which makes the switch as
    large as it has to be; without it the switch is square. Monitors are on both sides unless
    the option `monitors` says otherwise; losses are those of any simulated switch.
    """

    def __init__(self, around: Surroundings) -> None:
        spec = around.spec
        assert isinstance(spec, InstrumentSpec)
        egress = _egress_ports(spec)
        ingress_count = max(spec.channels, min(egress) - 1)
        if min(egress) <= ingress_count:
            raise NoPeerError(
                f"{spec.name}: {spec.channels} channels cannot end at egress port {min(egress)}: "
                "a switch numbers its ingress ports first"
            )
        self._channel_of = {port: channel for channel, port in enumerate(egress, 1)}
        self._light = around.light
        self._matrix = Matrix(
            spec.name,
            SimulatedSwitch(),
            around.clock,
            around.chance,
            around.truth,
            partial(self._launch, spec.channels),
            self._pass_on,
            lambda ingress, start, end: (
                around.light.arriving(ingress, start, end) if ingress <= spec.channels else 0.0
            ),
        )
        self._box = PolatisBox(
            spec.name,
            (ingress_count, max(egress) - ingress_count),
            {"monitors": "both", **spec.options},
            self._matrix,
            around.clock,
            around.truth,
            around.serial,
        )
        self._wires = wires(
            PolatisTl1(self._box, around.login), self._box, around.login, spec.options
        )
        for channel in range(1, spec.channels + 1):
            around.light.on_arrival(channel, partial(self._relight, channel))
        self._matrix.connect([Circuit(n, port) for port, n in self._channel_of.items()])

    def wires(self) -> Mapping[str, SessionFactory]:
        """Those that reach an attenuator."""
        return {scheme: made for scheme, made in self._wires.items() if scheme != "scpi"}

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
    """The egress port of each channel."""
    ports: list[int] = []
    for item in filter(None, str(spec.options.get("ports", "")).replace(" ", "").split(",")):
        first, dash, last = item.partition("-")
        ports.extend(range(int(first), int(last if dash else first) + 1))
    if not ports:
        return list(range(spec.channels + 1, 2 * spec.channels + 1))
    if len(ports) < spec.channels:
        raise NoPeerError(f"{spec.name}: {spec.channels} channels need as many `ports`")
    return ports[: spec.channels]
