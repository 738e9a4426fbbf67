"""References of a switch's own monitors: what one meter is shown of port after port."""

import math
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.insertion_loss.chains import Chain
from lightrig.harness.measure.insertion_loss.matrix import established_circuits, lit
from lightrig.harness.measure.insertion_loss.observers import prepare_meter
from lightrig.harness.measure.insertion_loss.readings import (
    DARK_DBM,
    Numbers,
    Readings,
    Setting,
    beside,
    check_circuits,
    checked_first,
    cyclic_shifts,
)
from lightrig.harness.measure.insertion_loss.references import (
    CONNECTOR_DB,
    READINGS,
    NoReferenceError,
    Plug,
    expiry,
    read_meter,
)
from lightrig.harness.statistics.uncertainty import pooled
from lightrig.instruments.clock import wall_time
from lightrig.instruments.core.capabilities import PowerMeter
from lightrig.testbeds import Circuit, Plan, Port
from lightrig.testbeds.references import METER_DB, ReferenceSet

_ATTEMPTS = 3
_CONNECTIONS = 2  # one at the meter, one at the port when its fiber is back


class Hands(NamedTuple):
    """Manual steps at the bench; each returns a function that undoes it.

    Attributes:
        plug: takes the fiber of a transmitter out of its port and plugs it into a meter's channel.
        cord: takes the fiber out of a switch's egress and leads a patch cord from there.
    """

    plug: Plug
    cord: Plug


def take_monitor_references(
    fabric: Fabric,
    chain: Chain,
    meter: Port,
    hands: Hands,
    *,
    connector_db: float = CONNECTOR_DB,
    meter_db: float = METER_DB,
) -> ReferenceSet:
    """Lead the light of each port of a switch to one meter: launches, and offsets of monitors.

    What comes out of the fiber that belongs into an ingress is its launch; what the monitor of a
    port shows more than the meter is its offset. Each egress is read while light is led to it,
    in as few settings as do. Ports without light are left out. Everything that was set is as it
    was found afterwards, but for the circuits: those `fabric` puts back when it is restored.

    chain: of the switch, which sees its egress ports by monitors.
    meter: an instrument's channel that a fiber reaches.
    connector_db: by how much a connector differs each time it is plugged (k = 1).
    meter_db: how wrong the meter is (k = 1), for all values alike.

    Raises:
        NoReferenceError: no monitor sees what leaves the switch, no light came to one or to the
            meter, or `meter` is none.
        InstrumentError: an instrument refused or failed.
        NotDoneError: the light did not become steady.
    """
    bench = fabric.bench
    spec = bench.testbed.instruments.get(meter.owner)
    if spec is None or spec.kind != "power_meter":
        raise NoReferenceError(f"{meter.owner} is no power meter of testbed {bench.testbed.name}")
    instrument: PowerMeter = bench.instruments[meter.owner]  # type: ignore[assignment]
    if chain.method != "monitors":
        raise NoReferenceError(f"{chain.switch} has no monitors at cabled egress ports")
    with ExitStack() as stack:
        stack.enter_context(lit(chain))
        stack.callback(prepare_meter(instrument, [int(meter.name)], chain.wavelength_nm))
        taking = _Taking(fabric, chain, instrument, meter)
        taking.run(hands)
    if not taking.offsets:
        raise NoReferenceError(f"no light came to the monitors of {chain.switch}")
    noise = pooled(taking.noisy, "noise").standard
    today = wall_time().date()
    took_part = [bench.identities[name] for name in (meter.owner, chain.switch)]
    return ReferenceSet(
        f"{chain.switch}-{chain.wavelength_nm:g}",
        today,
        expiry(today),
        chain.wavelength_nm,
        tuple(f"{each.model}, serial {each.serial}" for each in took_part),
        math.sqrt(_CONNECTIONS * connector_db**2 + 2 * noise**2 / READINGS),
        common_db=meter_db,
        launches=taking.launches,
        offsets=taking.offsets,
        checks=taking.checks,
    )


class _Taking:
    def __init__(self, fabric: Fabric, chain: Chain, instrument: PowerMeter, meter: Port) -> None:
        self.launches: dict[Port, float] = {}
        self.offsets: dict[Port, float] = {}
        self.checks: dict[str, float] = {}
        self.noisy: list[list[float]] = []
        self._fabric = fabric
        self._chain = chain
        self._instrument = instrument
        self._meter = meter
        self._readings = Readings(chain, fabric.bench.clock)
        self._column = {port: n for n, port in enumerate(self._readings.ports)}
        self._established = established_circuits(fabric, chain)

    def run(self, hands: Hands) -> None:
        """Every port once, in as few settings as bring light to all that can have some."""
        switch = self._fabric.testbed.switches[self._chain.switch]
        settings = cyclic_shifts(self._chain.ingress, self._chain.egress)
        settings = checked_first(settings, switch)
        for setting in settings:
            if self._egress_ports() <= self.offsets.keys():
                return
            self._apply(setting)
            samples = self._readings.read(setting, READINGS)
            for circuit in setting:
                if self._readings.lit(circuit, samples):
                    shown = {port: samples[:, self._column[port]] for port in circuit}
                    self._take_ingress(circuit.ingress, shown[circuit.ingress], hands)
                    self._take_egress(circuit.egress, shown[circuit.egress], hands)
                    if setting is settings[0] and circuit in check_circuits(setting, switch):
                        self._check(circuit, samples)

    def _check(self, circuit: Circuit, samples: Numbers) -> None:
        """Note the loss of a circuit of the check standard, by these references."""
        ingress, egress = (Port(self._chain.switch, str(port)) for port in circuit)
        leaving = float(samples[:, self._column[circuit.egress]].mean()) - self.offsets[egress]
        entering = float(samples[:, self._column[circuit.ingress]].mean())
        if ingress in self.offsets:
            entering -= self.offsets[ingress]
        elif ingress in self.launches:
            entering = self.launches[ingress]
        else:
            return
        self.checks[f"{self._chain.switch} {circuit}"] = entering - leaving

    def _take_ingress(self, number: int, shown: Numbers, hands: Hands) -> None:
        port = Port(self._chain.switch, str(number))
        fiber = self._fabric.testbed.cabling.fiber_to(port)
        if port in self.launches or fiber is None:
            return
        dbm = self.launches[port] = self._level(hands.plug, fiber.source)
        if np.isfinite(shown).all():
            self._offset(port, shown, dbm)

    def _take_egress(self, number: int, shown: Numbers, hands: Hands) -> None:
        port = Port(self._chain.switch, str(number))
        if port not in self.offsets:
            self._offset(port, shown, self._level(hands.cord, port))

    def _offset(self, port: Port, shown: Numbers, dbm: float) -> None:
        self.offsets[port] = float(shown.mean()) - dbm
        self.noisy.append(shown.tolist())

    def _level(self, hand: Plug, source: Port) -> float:
        """Measured power of `source`, in dBm; without light, `hand` is called again."""
        for _ in range(_ATTEMPTS):
            undo = hand(source, self._meter)
            try:
                found = read_meter(self._fabric.bench, self._instrument, int(self._meter.name))
            finally:
                undo()
            if min(found) > DARK_DBM:
                self.noisy.append(found)
                return math.fsum(found) / len(found)
        raise NoReferenceError(
            f"{self._meter} showed no light of {source} {_ATTEMPTS} times, whose port is lit"
        )

    def _apply(self, setting: Setting) -> None:
        circuits = {self._chain.switch: beside(setting, self._established)}
        self._fabric.apply(
            Plan(f"references of {self._chain.switch}", circuits), check_budget=False
        )

    def _egress_ports(self) -> set[Port]:
        return {Port(self._chain.switch, str(number)) for number in self._chain.egress}
