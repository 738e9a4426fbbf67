"""The variable attenuators at the egress ports of a HUBER+SUHNER Polatis."""

import re
from collections.abc import Callable, Sequence

from instruments.capabilities import Identity
from instruments.clock import Clock
from instruments.errors import CANNOT, DeniedError
from instruments.registry import Spec
from instruments.switches.polatis import Polatis
from instruments.way import Way
from testbeds import LightrigError

SETTLING = 500_000_000
"""How long an attenuator's control loop is given, in ns (a guess)."""


class PolatisVoa:
    """Egress ports of a Polatis as an attenuator; each has a shutter.

    What is attenuated is the light of the circuit that ends at the egress, and 0 dB is what
    enters that circuit: its insertion loss is part of the attenuation, and less than that is
    not reached. The circuits themselves are left alone. The switch holds the ratio of two of its
    power monitors, so it needs them on both sides (its relative mode).

    Options in a testbed file:
        ports: the egress ports of channels 1, 2, ..., such as `33-48` or `33,40`; without it
            channel 1 is the switch's first egress port, and so on.
        settling_ms: how long to wait until the light is as it was set, in ms (500, a guess).

    Source: as `Polatis`; the meaning of the modes by its YANG module.

    Args:
        name: the attenuator's name in the testbed.
        switch: the Polatis, whose sessions are this attenuator's own.
        clock: the bench's clock.
        ports: egress ports in the order of the channels; empty for the switch's first.
        settling: as above, in ns.
    """

    schemes = ("tl1", "netconf", "restconf")

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "PolatisVoa":
        """The driver of the attenuator that `spec` describes; raises `LightrigError`."""
        switch = Polatis.open(spec, way, clock)
        try:
            ports = _ports(str(spec.options.get("ports", "")))
        except ValueError as error:
            raise LightrigError(f"{spec.name}: options: ports: {error}") from error
        settling = round(float(spec.options.get("settling_ms", SETTLING / 1e6)) * 1e6)
        return cls(spec.name, switch, clock, ports=ports, settling=settling)

    def __init__(
        self,
        name: str,
        switch: Polatis,
        clock: Clock,
        *,
        ports: tuple[int, ...] = (),
        settling: int = SETTLING,
    ) -> None:
        self.name = name
        self._switch = switch
        self._clock = clock
        self._ports = ports
        self._settling = settling

    def identity(self) -> Identity:
        """Ask the switch for product code, serial number and software version."""
        return self._switch.identity()

    def set_attenuation(self, channel: int, decibel: float) -> None:
        """Attenuate by `decibel` from ingress to egress, and wait until the loop has settled.

        0 ends the attenuation: what is left is the circuit's insertion loss. Raises
        `DeniedError` for a negative value, and for what the switch refuses.
        """
        egress = self._egress(channel)
        if not decibel >= 0:
            raise self._cannot(f"{decibel:g} dB is no attenuation", channel)
        self._switch.set_attenuation(egress, decibel)
        self._clock.sleep(self._settling)

    def attenuation(self, channel: int) -> float:
        """What is set, in dB; 0 where nothing is."""
        return self._switch.attenuation(self._egress(channel))

    def set_shutter(self, channel: int, *, is_open: bool) -> None:
        """Open the shutter or close it."""
        self._switch.set_shutters([self._egress(channel)], is_open=is_open)

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Note attenuation and shutter of `channels`; what it returns puts them back."""
        found = {channel: self.attenuation(channel) for channel in channels}
        shutters = dict(self._switch.shutters([self._egress(channel) for channel in channels]))

        def put_back() -> None:
            for channel, decibel in found.items():
                if self.attenuation(channel) != decibel:
                    self.set_attenuation(channel, decibel)
            for egress, is_open in self._switch.shutters(list(shutters)).items():
                if is_open != shutters[egress]:
                    self._switch.set_shutters([egress], is_open=shutters[egress])

        return put_back

    def wire(self) -> list[str]:
        """The last lines of both sessions."""
        return self._switch.wire()

    def close(self) -> None:
        """End both sessions."""
        self._switch.close()

    def _egress(self, channel: int) -> int:
        if not self._ports:
            ingress_count, egress_count = self._switch.size()
            self._ports = tuple(range(ingress_count + 1, ingress_count + egress_count + 1))
        if not 1 <= channel <= len(self._ports):
            raise self._cannot(f"channels are 1 to {len(self._ports)}", channel)
        return self._ports[channel - 1]

    def _cannot(self, why: str, channel: int) -> DeniedError:
        return DeniedError(self.name, code=CANNOT, text=why, command=f"channel {channel}")


def _ports(text: str) -> tuple[int, ...]:
    """The ports in `33-48,60`; raises ValueError."""
    ports: list[int] = []
    for item in filter(None, text.replace(" ", "").split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", item)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise ValueError(f"found {item!r}, expected ports such as 33-48 or 33,40")
        ports.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    if len(set(ports)) < len(ports):
        raise ValueError("found a port twice")
    return tuple(ports)
