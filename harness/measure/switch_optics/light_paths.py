"""Ways of a bench laser's light through one switch to the channels of power meters."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.insertion_loss.observers import prepare_meter
from lightrig.harness.measure.insertion_loss.references import read_meter
from lightrig.instruments.core.capabilities import LightSource, PowerMeter, Restorable
from lightrig.testbeds import Circuit, LightrigError, Plan, Port


class NoMeterPathError(LightrigError):
    """No laser leads through a switch to a power meter, or not by the instruments needed."""


@dataclass(frozen=True)
class MeterPaths:
    """All circuits of one ingress whose light a bench laser sends and power meters read.

    Attributes:
        switch, ingress: where the light enters.
        source: the laser's channel.
        controller: channel of the polarization controller before the ingress, or None.
        channels: the meter's channel behind each egress.
    """

    switch: str
    ingress: int
    source: Port
    controller: Port | None
    channels: Mapping[int, Port]

    def circuits(self) -> list[Circuit]:
        """Return the circuits that can be measured."""
        return [Circuit(self.ingress, egress) for egress in self.channels]


def meter_paths(bench: Bench, switch: str | None = None) -> list[MeterPaths]:
    """Return the paths of every ingress, of one switch or all; raises `NoMeterPathError`."""
    names = sorted(bench.switches) if switch is None else [switch]
    found = [path for name in names for path in _of_switch(bench, name)]
    if not found:
        raise NoMeterPathError(
            f"on testbed {bench.testbed.name} no light source leads through an optical switch to "
            "a power meter"
        )
    return found


def _of_switch(bench: Bench, switch: str) -> Iterator[MeterPaths]:
    cabling = bench.testbed.cabling
    ingress_ports, egress_ports = bench.testbed.working_circuit_ports(switch)
    receivers = {egress: cabling.receiver(switch, egress) for egress in sorted(egress_ports)}
    channels = {
        egress: port
        for egress, port in receivers.items()
        if port is not None and kind_of(bench, port) == "power_meter"
    }
    for ingress in sorted(ingress_ports):
        source, controller = cabling.transmitter(switch, ingress), None
        if source is not None and kind_of(bench, source) == "polarization_controller":
            controller = source
            fiber = cabling.fiber_to(controller)
            source = fiber.source if fiber else None
        if channels and source is not None and kind_of(bench, source) == "light_source":
            yield MeterPaths(switch, ingress, source, controller, channels)


def kind_of(bench: Bench, port: Port) -> str | None:
    """Return the kind of the instrument that `port` belongs to; None for anything else."""
    spec = bench.testbed.instruments.get(port.owner)
    return spec.kind if spec else None


class PathLight:
    """Light on the paths of one ingress, at a wavelength, with meters that are set for it."""

    def __init__(self, fabric: Fabric, paths: MeterPaths) -> None:
        self.bench = fabric.bench
        self.paths = paths
        self._fabric = fabric
        laser: LightSource = self.bench.instruments[paths.source.owner]  # type: ignore[assignment]
        self._laser = laser

    def set_wavelength(self, nm: float) -> None:
        """Tune the laser and correct the meters for `nm`."""
        self._laser.set_wavelength(int(self.paths.source.name), nm)
        for meter, channels in self.meters().items():
            meter.prepare(channels, wavelength_nm=nm)

    def set_emission(self, *, on: bool) -> None:
        """Switch the laser on or off."""
        self._laser.set_emission(int(self.paths.source.name), on=on)

    def make(self, circuit: Circuit) -> None:
        """Make `circuit` the only one of its switch that this testbed's cabling knows."""
        plan = Plan(f"only {circuit}", {self.paths.switch: frozenset({circuit})})
        self._fabric.apply(plan, check_budget=False)

    def read(self, egress: int) -> list[float]:
        """Return readings in dBm of the meter behind `egress`, no two of one window."""
        channel = self.paths.channels[egress]
        meter: PowerMeter = self.bench.instruments[channel.owner]  # type: ignore[assignment]
        return read_meter(self.bench, meter, int(channel.name))

    def meters(self) -> dict[PowerMeter, list[int]]:
        """Return the power meters behind the switch, and their channels."""
        found: dict[PowerMeter, list[int]] = {}
        for channel in self.paths.channels.values():
            meter: PowerMeter = self.bench.instruments[channel.owner]  # type: ignore[assignment]
            found.setdefault(meter, []).append(int(channel.name))
        return found


@contextmanager
def light_on(fabric: Fabric, paths: MeterPaths, wavelength_nm: float) -> Iterator[PathLight]:
    """Light the paths at `wavelength_nm`; instruments are restored afterwards."""
    bench, light = fabric.bench, PathLight(fabric, paths)
    with ExitStack() as stack:
        for meter, channels in light.meters().items():
            stack.callback(prepare_meter(meter, channels, wavelength_nm))
        for port in filter(None, (paths.source, paths.controller)):
            instrument = bench.instruments[port.owner]
            if isinstance(instrument, Restorable):
                stack.callback(instrument.snapshot([int(port.name)]))
        light.set_wavelength(wavelength_nm)
        light.set_emission(on=True)
        yield light
