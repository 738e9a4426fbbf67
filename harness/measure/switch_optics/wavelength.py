"""Wavelength dependent loss of every circuit: the range of its loss over wavelengths.

The definition is that of IEC 61300-3-7, for a stated set of wavelengths. A laser that is tuned
and a meter that is corrected stand for the reference, and their flatness is in the budget.
"""

import functools
import math
from collections.abc import Sequence

import scipy

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.climate import await_steady_temperature
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.switch_optics.light_paths import light_on, meter_paths
from lightrig.harness.measure.switch_optics.results import Result, record_results
from lightrig.harness.statistics.uncertainty import Component, pooled
from lightrig.testbeds.plans import circuit_subject

QUANTITY = "wavelength_dependent_loss"
WAVELENGTHS_NM = (1530.0, 1540.0, 1550.0, 1560.0, 1570.0)
SOURCE_DB = 0.05
"""Flatness of a tunable laser's power over wavelengths, ± dB (chosen)."""
METER_DB = 0.02
"""Flatness of a meter's corrected reading over wavelengths, ± dB (chosen)."""


def measure_wavelength_dependence(
    fabric: Fabric,
    recording: Recording,
    wavelengths_nm: Sequence[float] = WAVELENGTHS_NM,
    *,
    switch: str | None = None,
) -> None:
    """Record the wavelength dependent loss of every circuit between a laser and power meters.

    Polarization stays as it is. switch: the only one to measure, all without it. Raises:
        NoMeterPathError: no laser leads through a switch to a power meter.
        DeniedError: the laser or the meter cannot be set to one of the wavelengths.
        InstrumentError: an instrument refused or failed.
    """
    bench = fabric.bench
    found = meter_paths(bench, switch)
    await_steady_temperature(bench, recording)
    for paths in found:
        results = []
        with light_on(fabric, paths, wavelengths_nm[0]) as light:
            for circuit in paths.circuits():
                light.make(circuit)
                at, readings, true = bench.clock.now(), [], []
                for nm in wavelengths_nm:
                    light.set_wavelength(nm)
                    readings.append(light.read(circuit.egress))
                    if bench.world is not None:
                        true.append(bench.world.loss(paths.switch, circuit))
                loss, components, factor = dependence(readings)
                known = max(true) - min(true) if true else None
                subject = circuit_subject(paths.switch, circuit)
                results.append(Result(subject, loss, components, factor, at, known, least=0.0))
        stated = {"wavelengths_nm": ", ".join(f"{nm:g}" for nm in wavelengths_nm)}
        record_results(recording, bench, paths.switch, QUANTITY, results, stated)


def dependence(readings: Sequence[Sequence[float]]) -> tuple[float, list[Component], float]:
    """Return the range of loss in dB, its uncertainty components and the factor.

    readings: in dBm, one sequence for each wavelength.

    A range is off by at most the range of its errors, of which the studentized range bounds 95 %.
    """
    means = [math.fsum(each) / len(each) for each in readings]
    noise = pooled(readings, "noise")
    components = [
        Component("noise", noise.standard / math.sqrt(len(readings[0])), noise.degrees),
        Component("source", SOURCE_DB / math.sqrt(3)),
        Component("meter", METER_DB / math.sqrt(3)),
    ]
    return max(means) - min(means), components, _range_factor(len(readings), noise.degrees)


@functools.lru_cache
def _range_factor(count: int, degrees: float) -> float:
    return float(scipy.stats.studentized_range.ppf(0.95, count, min(degrees, 1e4)))
