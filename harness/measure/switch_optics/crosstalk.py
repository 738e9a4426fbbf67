"""Crosstalk of every circuit at every egress that is dark but for it.

The definition is that of IEC 61300-3-50 for spatial switches: power at an egress that should be
dark over power at the egress of the circuit, in dB, with light at one ingress only.
"""

import math
from collections.abc import Sequence

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.climate import await_steady_temperature
from lightrig.harness.measure.insertion_loss.chains import SOURCE_NM
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.switch_optics.light_paths import (
    NoMeterPathError,
    light_on,
    meter_paths,
)
from lightrig.harness.measure.switch_optics.results import Result, record_results
from lightrig.harness.statistics.uncertainty import Component, coverage_factor, pooled
from lightrig.testbeds.plans import circuit_subject

QUANTITY = "crosstalk"
METER_DB = 0.06
"""Calibration of one channel of a meter, k = 1: two channels are compared."""
LINEARITY_DB = 0.02
"""Linearity of a meter over the range between both powers, ± dB (chosen)."""
LEAST_DB = -120.0
"""Lower bound of crosstalk that is not resolved."""

_DB = 10 / math.log(10)


def measure_crosstalk(fabric: Fabric, recording: Recording, *, switch: str | None = None) -> None:
    """Record the crosstalk of each circuit at each other egress with a power meter.

    Crosstalk that is lost in the meters' own dark level is recorded as an upper bound.
    switch: the only one to measure, all without it. Raises:
        NoMeterPathError: no laser leads through a switch to two channels of power meters.
        InstrumentError: an instrument refused or failed.
    """
    bench = fabric.bench
    found = [paths for paths in meter_paths(bench, switch) if len(paths.channels) > 1]
    if not found:
        raise NoMeterPathError(
            f"on testbed {bench.testbed.name} no ingress has power meters behind two egress ports"
        )
    await_steady_temperature(bench, recording)
    for paths in found:
        results = []
        with light_on(fabric, paths, SOURCE_NM) as light:
            light.set_emission(on=False)
            dark = {egress: light.read(egress) for egress in paths.channels}
            light.set_emission(on=True)
            for circuit in paths.circuits():
                light.make(circuit)
                at, wanted = bench.clock.now(), light.read(circuit.egress)
                for egress in paths.channels:
                    if egress == circuit.egress:
                        continue
                    value, components, factor = crosstalk(wanted, light.read(egress), dark[egress])
                    world = bench.world
                    true = world.crosstalk(paths.switch, circuit, egress) if world else None
                    subject = f"{circuit_subject(paths.switch, circuit)} at {egress}"
                    results.append(
                        Result(subject, value, components, factor, at, true, least=LEAST_DB)
                    )
        # A number with a fraction: the laser's setting distinguishes no cases between nights.
        stated = {"wavelength_nm": float(SOURCE_NM)}
        record_results(recording, bench, paths.switch, QUANTITY, results, stated)


def crosstalk(
    wanted: Sequence[float], unwanted: Sequence[float], dark: Sequence[float]
) -> tuple[float, list[Component], float]:
    """Return the crosstalk in dB, its uncertainty components and the coverage factor.

    All readings are in dBm: of the circuit's egress, of another one, and of that in the dark. What
    is no more than three standard uncertainties above the dark is taken to be these three.
    """
    leak, leak_noise = _milliwatt(unwanted)
    floor, floor_noise = _milliwatt(dark)
    light, light_noise = _milliwatt(wanted)
    uncertain = math.hypot(leak_noise, floor_noise)
    net = leak - floor
    degrees = pooled([unwanted, dark], "noise").degrees
    components = [
        Component("meter", METER_DB * math.sqrt(2)),
        Component("linearity", LINEARITY_DB / math.sqrt(3)),
    ]
    if net <= 3 * uncertain:
        # Not resolved: the interval reaches from nothing to this bound.
        bound = 10 * math.log10(max(3 * uncertain + max(net, 0.0), 1e-15) / light)
        half = bound - LEAST_DB
        return bound - half / 2, [*components, Component("dark", half / 4)], 2.1
    noise = _DB * math.hypot(uncertain / net, light_noise / light)
    return (
        10 * math.log10(net / light),
        [*components, Component("noise", noise, degrees)],
        (coverage_factor(degrees)),
    )


def _milliwatt(readings: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard uncertainty of readings in dBm, in mW."""
    values = [10 ** (dbm / 10) for dbm in readings]
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - 1) / len(values))
