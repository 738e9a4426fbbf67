"""Every model on every wire: a testbed with one instrument, and the query it is tried with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from lightrig.harness.bench import Bench, bind
from lightrig.harness.bench import simulation as simulation_module
from lightrig.instruments.core.capabilities import (
    Attenuator,
    BitErrorTester,
    ClimateChamber,
    FastLog,
    LightSource,
    OpticalSwitch,
    PolarizationController,
    PowerMeter,
)
from lightrig.instruments.core.models import shipped_drivers
from lightrig.instruments.simulated.faults.wire_faults import FaultInjector
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import load

NAME = "it"
KINDS: dict[str, tuple[type, ...]] = {
    "switches": (OpticalSwitch,),
    "power_meter": (PowerMeter,),
    "light_source": (LightSource,),
    "attenuator": (Attenuator,),
    "bit_error_tester": (BitErrorTester,),
    "climate_chamber": (ClimateChamber,),
    "oscilloscope": (FastLog,),
    "polarization_controller": (PolarizationController,),
}
SIZES = {
    "agiltron": "1x8",
    "dicon-mems": "1x8",
    "keysight-n773x": "1x4",
    "ocstrx": "2x6",
    "osw-ascii": "1x16",
    "sercalo": "1x4",
    "thorlabs-osw": "1x2",
}
OPTIONS = {"agiltron": "standing: 1"}
ADDRESSES = {
    "serial": "serial:///dev/ttyUSB0",
    "visa": "visa://TCPIP::it.invalid::hislip0::INSTR",
}


@dataclass(frozen=True)
class Case:
    """One model on one wire."""

    model: str
    scheme: str
    kind: str

    def __str__(self) -> str:
        return f"{self.model}-{self.scheme}"

    @property
    def size(self) -> str:
        """Numbers of inputs and outputs of a switch."""
        return SIZES.get(self.model, "8x8")

    @property
    def address(self) -> str:
        """The address in the testbed file."""
        return ADDRESSES.get(self.scheme, f"{self.scheme}://it.invalid")

    @property
    def file(self) -> str:
        """A testbed file with no other instrument of the case's kind."""
        options = OPTIONS.get(self.model, "")
        stated = f'model: {self.model}, address: "{self.address}", options: {{{options}}}'
        if self.kind == "switches":
            return f"name: one\nswitches:\n  {NAME}: {{{stated}, size: {self.size}}}\n"
        switch = "  ocs: {model: polatis, address: tl1://ocs.invalid, size: 4x4}\n"
        instrument = f"  {NAME}: {{kind: {self.kind}, {stated}, channels: 4}}\n"
        return f"name: one\nswitches:\n{switch}instruments:\n{instrument}"

    def question(self, driver: Any) -> Callable[[], Any]:
        """Return a query that only the instrument can answer."""
        match self.kind:
            case "switches":
                return driver.circuits
            case "power_meter":
                return lambda: set(driver.power([1]).dbm)
            case "light_source":
                return lambda: driver.emission(1)
            case "attenuator":
                return lambda: driver.attenuation(1)
            case "climate_chamber":
                return lambda: abs(driver.temperature() - 23) < 20
            case "polarization_controller":
                return lambda: driver.half_setting.get(1)
            case "oscilloscope":
                return lambda: len(driver.log(1, samples=100, period=1_000_000).result().milliwatt)
        return lambda: driver.count(1, duration=1_000_000_000).now().clock_lost


def cases() -> list[Case]:
    """Return every shipped model on every wire, in alphabetic order."""
    found = []
    for model, entry in sorted(shipped_drivers().items()):
        driver = entry.load()
        if driver.__module__.startswith("lightrig.instruments.switches"):
            kind = "switches"
        else:
            folder = driver.__module__.split(".")[2]
            kind = folder.removesuffix("s")
        found += [Case(model, scheme, kind) for scheme in driver.schemes]
    return found


class Rig:
    """A case with its driver and its simulated device, on a wire with a fault injector.

    `begin` is called with its clock before anything is opened.
    """

    def __init__(
        self,
        case: Case,
        folder: Any,
        monkeypatch: pytest.MonkeyPatch,
        begin: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.case = case
        path = folder / "one.yaml"
        path.write_text(case.file)
        made: list[FaultInjector] = []

        def world(testbed: Any, clock: Any, *rest: Any, **more: Any) -> SimulatedLab:
            begin(clock)
            made.append(FaultInjector(clock))
            return SimulatedLab(testbed, clock, *rest, wire_faults=made[0], **more)

        monkeypatch.setattr(simulation_module, "SimulatedLab", world)
        self.bench: Bench = bind(load(path), "simulated", seed=5)
        self.faults = made[0]
        self.driver: Any = self.bench.switches.get(NAME) or self.bench.instruments[NAME]
