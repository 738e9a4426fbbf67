"""Observers of the light on either side of a switch: monitors, a meter, transceivers."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from lightrig.harness.bench import Bench
from lightrig.harness.measure.fiber_light import fiber_light
from lightrig.instruments.core.capabilities import HasNic, PowerMeter, PowerMonitor, Restorable
from lightrig.testbeds import Port


class SeenLight(NamedTuple):
    """Light at ports of a switch in one sample.

    Attributes:
        dbm: by the switch's port; -inf for none.
        window: over how many ns before the sample was averaged.
    """

    dbm: Mapping[int, float]
    window: int


class Observer(Protocol):
    """Something that reads the light at ports of one switch."""

    def prepare(self) -> Callable[[], None]:
        """Make it ready to read; what it returns puts its settings back."""

    def read(self) -> SeenLight:
        """Take one sample at all of its ports."""


class Monitors:
    """A switch's own power monitors, all in one sample."""

    def __init__(self, switch: PowerMonitor, ports: Iterable[int]) -> None:
        self._switch = switch
        self._ports = sorted(ports)

    def prepare(self) -> Callable[[], None]:
        """Do nothing: the observer is ready as it is set."""
        return _nothing

    def read(self) -> SeenLight:
        """Ask the switch."""
        reading = self._switch.power(self._ports)
        return SeenLight(reading.dbm, reading.window)


class Channels:
    """The channels of a bench meter that fibers lead to; `ports` has the switch's port of each."""

    def __init__(self, meter: PowerMeter, ports: Mapping[int, int], wavelength_nm: float) -> None:
        self._meter = meter
        self._ports = dict(sorted(ports.items()))
        self._wavelength_nm = wavelength_nm

    def prepare(self) -> Callable[[], None]:
        """Correct for the wavelength."""
        return prepare_meter(self._meter, list(self._ports), self._wavelength_nm)

    def read(self) -> SeenLight:
        """Ask the meter."""
        reading = self._meter.power(list(self._ports))
        dbm = {port: reading.dbm[channel] for channel, port in self._ports.items()}
        return SeenLight(dbm, reading.window)


@dataclass(eq=False)
class Modules:
    """Power readings of transceivers, averaged over the lanes of their ports.

    Both ends of a link have one lane for each other's, however many share a fiber.

    sends, receives: the transceiver at the far end of the fiber of each ingress and egress.
    """

    _REFRESH = 1_000_000_000  # modules measure a few times a second at best

    _bench: Bench
    _sends: Mapping[int, Port]
    _receives: Mapping[int, Port]

    def prepare(self) -> Callable[[], None]:
        """They always measure."""
        return _nothing

    def read(self) -> SeenLight:
        """Ask all servers, each one's modules one after the other."""
        wanted: dict[str, set[Port]] = {}
        for port in (*self._sends.values(), *self._receives.values()):
            wanted.setdefault(port.owner, set()).add(port)
        asked = [lambda s=server, p=ports: self._ask(s, p) for server, ports in wanted.items()]
        lanes = {
            port: each
            for answer in self._bench.clock.parallel(*asked)
            for port, each in answer.items()
        }
        dbm = {number: _mean(lanes[port][0]) for number, port in self._sends.items()}
        dbm |= {number: _mean(lanes[port][1]) for number, port in self._receives.items()}
        return SeenLight(dbm, self._REFRESH)

    def _ask(
        self, name: str, ports: Iterable[Port]
    ) -> dict[Port, tuple[list[float | None], list[float | None]]]:
        server = self._bench.servers[name]
        assert isinstance(server, HasNic)  # `has_module` is asked before
        found = {}
        for port in sorted(ports):
            stated = server.nic.module(self._bench.testbed.nic_port(port).netdev).value
            average = stated.rx_power_is != "oma"
            lanes = fiber_light(self._bench.testbed, port, stated).lanes
            found[port] = (
                [lane.tx_power_dbm for lane in lanes],
                [lane.rx_power_dbm if average else None for lane in lanes],
            )
        return found


def has_module(bench: Bench, port: Port) -> bool:
    """Whether `port` is a NIC port whose transceiver can be read."""
    server = bench.servers.get(port.owner)
    if server is None or not isinstance(server, HasNic):
        return False
    if bench.testbed.servers[port.owner].is_namespace:
        return False  # a namespace's port has no transceiver
    return bench.testbed.transceiver_of(port) is not None


def prepare_meter(
    meter: PowerMeter, channels: list[int], wavelength_nm: float
) -> Callable[[], None]:
    """Set what a meter's detectors are corrected for; what it returns puts its settings back."""
    put_back = meter.snapshot(channels) if isinstance(meter, Restorable) else _nothing
    meter.prepare(channels, wavelength_nm=wavelength_nm)
    return put_back


def _nothing() -> None:
    """There is nothing to put back."""


def _mean(lanes: Iterable[float | None]) -> float:
    """The mean of lanes' powers in dBm; -inf for none."""
    known = [10 ** (lane / 10) for lane in lanes if lane is not None]
    mean = sum(known) / len(known) if known else 0.0
    return 10 * math.log10(mean) if mean else -math.inf
