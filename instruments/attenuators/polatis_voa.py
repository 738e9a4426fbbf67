"""The variable attenuators at the egress ports of a HUBER+SUHNER Polatis."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import Identity
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import DeniedError, InstrumentError, NotDoneError
from lightrig.instruments.core.instrument import Instrument, Option, from_milliseconds
from lightrig.instruments.switches.polatis import Polatis

_SAME_DB = 0.05
"""Difference between two attenuations that count as the same; the switch shows 0.1 dB or less."""


def _parse_ports(stated: Any) -> tuple[int, ...]:
    """Return the ports in `33-48,60`; raises ValueError."""
    ports: list[int] = []
    for item in filter(None, str(stated).replace(" ", "").split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", item)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise ValueError(f"found {item!r}, expected ports such as 33-48 or 33,40")
        ports.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    if len(set(ports)) < len(ports):
        raise ValueError("found a port twice")
    return tuple(ports)


class PolatisVoa(Instrument):
    """Egress ports of a Polatis as an attenuator; each has a shutter.

    Attenuated is the light of the circuit that ends at the egress, and 0 dB is what enters that
    circuit: its insertion loss is part of the attenuation, and less than that is not reached.
    The circuits themselves are not changed. The switch holds the ratio of two of its power
    monitors, so it needs them on both sides (its relative mode).

    Options that concern the wire are those of `Polatis`.

    Source: as `Polatis`; the meaning of the modes by its YANG module.
    """

    shares_address = True
    schemes = ("tl1", "netconf", "restconf")
    shared_options = Polatis.shared_options
    wire_facts = Polatis.wire_facts
    rerouting, monitors = Polatis.rerouting, Polatis.monitors
    averaging, collection = Polatis.averaging, Polatis.collection
    tls, certificates = Polatis.tls, Polatis.certificates
    ports: Option[tuple[int, ...]] = Option(
        _parse_ports,
        (),
        "egress ports of channels 1, 2, ..., such as `33-48` or `33,40`; without it channel 1 is "
        "the switch's first egress port, and so on",
    )
    settling = Option(
        from_milliseconds,
        500_000_000,
        "how long the control loop is given to settle, in ns (a guess)",
        key="settling_ms",
    )

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        names = {option.name for option in Polatis.declared_options()}
        of_switch = {key: value for key, value in options.items() if key in names}
        self._switch = Polatis(name, endpoint, clock, **of_switch)
        self.sessions = self._switch.sessions
        self._ports = self.ports

    def identity(self) -> Identity:
        """Return the identity of the switch."""
        return self._switch.identity()

    def set_attenuation(self, channel: int, decibel: float) -> None:
        """Attenuate by `decibel` from ingress to egress, and wait until the loop has settled.

        0 ends the attenuation: the insertion loss of the circuit remains. Raises
        `DeniedError` for a negative value, and for what the switch refuses, `NotDoneError` where
        it reports another one.
        """
        egress = self._egress(channel)
        if not decibel >= 0:
            raise self._refused(f"{decibel:g} dB is no attenuation", channel)
        if self.on_setting is not None:
            self.on_setting(f"attenuation {channel}", decibel)
        self._switch.set_attenuation(egress, decibel)
        if abs((found := self._switch.attenuation(egress)) - decibel) > _SAME_DB:
            raise self._not_taken(f"{decibel:g} dB", f"{found:g} dB", channel)
        self.clock.sleep(self.settling)

    def attenuation(self, channel: int) -> float:
        """Return the attenuation that is set, in dB; 0 where none is."""
        return self._switch.attenuation(self._egress(channel))

    def set_shutter(self, channel: int, *, is_open: bool) -> None:
        """Open or close the shutter."""
        if self.on_setting is not None:
            self.on_setting(f"shutter {channel}", is_open)
        egress = self._egress(channel)
        self._switch.set_shutters([egress], is_open=is_open)
        if self._switch.shutters([egress])[egress] != is_open:
            states = ("open", "closed") if is_open else ("closed", "open")
            raise self._not_taken(*states, channel)

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Read attenuation and shutter of `channels`; calling the result restores them."""
        return partial(self.restore_settings, self.read_settings(channels))

    def read_settings(self, channels: Sequence[int]) -> Mapping[str, float]:
        """Return attenuation and shutter of `channels`, such as `shutter 2`."""
        egresses = {channel: self._egress(channel) for channel in channels}
        shutters = self._switch.shutters(list(egresses.values()))
        found: dict[str, float] = {}
        for channel, egress in egresses.items():
            found[f"attenuation {channel}"] = self.attenuation(channel)
            found[f"shutter {channel}"] = shutters[egress]
        return found

    @property
    def setting_units(self) -> Mapping[str, str]:
        """The unit of each setting that has one."""
        return {"attenuation": "dB"}

    def restore_settings(self, settings: Mapping[str, float]) -> None:
        """Set what differs: shutters are closed first and opened last."""
        shutters = {name: bool(v) for name, v in settings.items() if name.startswith("shutter")}
        self._restore_shutters({name: v for name, v in shutters.items() if not v})
        for name, decibel in settings.items():
            kind, _, number = name.partition(" ")
            if kind == "attenuation" and self.attenuation(int(number)) != decibel:
                self.set_attenuation(int(number), decibel)
        self._restore_shutters({name: v for name, v in shutters.items() if v})

    def same_setting(self, name: str, first: float, second: float) -> bool:
        """Whether two values of a setting are equal: the switch reports what it was told."""
        return first == second

    def raises_light(
        self, present: Mapping[str, float], wanted: Mapping[str, float]
    ) -> frozenset[str]:
        """Return the settings that raise light: shutters opened, attenuations lowered."""
        opened = {name for name, v in wanted.items() if name.startswith("shutter") and v}
        lowered = {
            name
            for name, decibel in wanted.items()
            if name.startswith("attenuation") and decibel < present.get(name, math.inf)
        }
        closed = {
            name.partition(" ")[2]
            for name, v in wanted.items()
            if name.startswith("shutter") and not v
        }
        raised = {name for name in opened if not present.get(name)} | lowered
        return frozenset(name for name in raised if name.partition(" ")[2] not in closed)

    def light_level(self, settings: Mapping[str, float], channel: int) -> float | None:
        """Return by how many dB `channel` raises light with `settings`; -inf where it is shut."""
        if not settings[f"shutter {channel}"]:
            return -math.inf
        return -settings[f"attenuation {channel}"]

    def _restore_shutters(self, wanted: Mapping[str, bool]) -> None:
        for name, is_open in wanted.items():
            channel = int(name.partition(" ")[2])
            egress = self._egress(channel)
            if self._switch.shutters([egress])[egress] != is_open:
                self.set_shutter(channel, is_open=is_open)

    def _egress(self, channel: int) -> int:
        if not self._ports:
            ingress_count, egress_count = self._switch.size()
            self._ports = tuple(range(ingress_count + 1, ingress_count + egress_count + 1))
        if not 1 <= channel <= len(self._ports):
            raise self._refused(f"channels are 1 to {len(self._ports)}", channel)
        return self._ports[channel - 1]

    def _not_taken(self, stated: str, found: str, channel: int) -> InstrumentError:
        return self._switch.failed(
            NotDoneError, f"accepted {stated}, but reports {found}", f"channel {channel}"
        )

    def _refused(self, text: str, channel: int) -> DeniedError:
        return self.refused(text, command=f"channel {channel}")
