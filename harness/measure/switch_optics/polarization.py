"""Polarization dependent loss of every circuit, from six states of polarization.

The definition is that of IEC 61300-3-2: the difference between the greatest and the least loss
over all states. Transmission is linear in the Stokes vector s of the light, T (1 + d·s), so three
pairs of opposite states find the vector d, and the loss changes by 10 lg (1 + |d|)/(1 - |d|).
Six states instead of the four of the standard's Mueller matrix method, after R. M. Craig,
Visualizing the Limitations of Four-State Measurement of PDL and Results of a Six-State
Alternative (NIST, 2002); opposite states need no reference of the light that enters.
"""

import math
from collections.abc import Mapping, Sequence

import scipy

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.climate import await_steady_temperature
from lightrig.harness.measure.insertion_loss.chains import SOURCE_NM
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.switch_optics.light_paths import (
    NoMeterPathError,
    PathLight,
    light_on,
    meter_paths,
)
from lightrig.harness.measure.switch_optics.results import Result, record_results
from lightrig.harness.statistics.uncertainty import Component, pooled
from lightrig.instruments.core.capabilities import PolarizationController
from lightrig.testbeds import Circuit
from lightrig.testbeds.plans import circuit_subject

QUANTITY = "polarization_dependent_loss"
AXES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
CONTROLLER_DB = 0.03
"""By how much the light behind a controller changes with its plates, ± dB (chosen)."""
METER_DB = 0.005
"""By how much a meter's reading changes with the polarization, ± dB (chosen)."""

_NEPER_DB = 20 / math.log(10)
Readings = Mapping[tuple[int, int], Sequence[float]]


def measure_polarization_dependence(
    fabric: Fabric, recording: Recording, *, switch: str | None = None
) -> None:
    """Record the polarization dependent loss of every circuit behind a polarization controller.

    switch: the only one to measure, all without it. Raises:
        NoMeterPathError: no controller is between a laser and a switch with power meters.
        InstrumentError: an instrument refused or failed.
    """
    bench = fabric.bench
    found = [paths for paths in meter_paths(bench, switch) if paths.controller is not None]
    if not found:
        raise NoMeterPathError(
            f"testbed {bench.testbed.name} has no polarization controller between a light source "
            "and a switch"
        )
    await_steady_temperature(bench, recording)
    for paths in found:
        results = []
        with light_on(fabric, paths, SOURCE_NM) as light:
            for circuit in paths.circuits():
                light.make(circuit)
                at = bench.clock.now()
                loss, components, factor = dependence(_readings(light, circuit))
                world = bench.world
                true = world.polarization_dependence(paths.switch) if world else None
                subject = circuit_subject(paths.switch, circuit)
                results.append(Result(subject, loss, components, factor, at, true, least=0.0))
        # A number with a fraction: the laser's setting distinguishes no cases between nights.
        stated = {"wavelength_nm": float(SOURCE_NM)}
        record_results(recording, bench, paths.switch, QUANTITY, results, stated)


def dependence(readings: Readings) -> tuple[float, list[Component], float]:
    """Return the polarization dependent loss in dB, its uncertainty components and the factor.

    readings: in dBm, by axis (0 to 2) and sign (1, -1).

    The length of a vector is off by at most the length of its error. So half the 95 % interval is
    the length that three errors exceed in 5 % of cases, and it holds a loss of 0 as well.
    """
    mean = {state: math.fsum(each) / len(each) for state, each in readings.items()}
    across = [mean[axis, 1] - mean[axis, -1] for axis in range(3)]
    length = math.hypot(*(math.tanh(each / _NEPER_DB) for each in across))
    loss = _NEPER_DB * math.atanh(min(length, 1 - 1e-9))
    noise = pooled(readings.values(), "noise")
    count = min(len(each) for each in readings.values())
    components = [
        Component("noise", noise.standard * math.sqrt(2 / count), noise.degrees),
        Component("controller", CONTROLLER_DB * math.sqrt(2 / 3)),
        Component("meter", METER_DB * math.sqrt(2 / 3)),
    ]
    degrees = min(noise.degrees, 1e9)
    return loss, components, math.sqrt(3 * float(scipy.special.fdtri(3, degrees, 0.95)))


def _readings(light: PathLight, circuit: Circuit) -> Readings:
    controller = light.paths.controller
    assert controller is not None
    plates: PolarizationController = light.bench.instruments[controller.owner]  # type: ignore[assignment]
    found = {}
    for index, (s1, s2, s3) in enumerate(AXES):
        for sign in (1, -1):
            plates.set_polarization(int(controller.name), (sign * s1, sign * s2, sign * s3))
            found[index, sign] = light.read(circuit.egress)
    return found
