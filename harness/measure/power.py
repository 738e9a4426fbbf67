"""Optical power at one port: a mean of several readings, with its interval."""

import math

import numpy as np
import scipy

from lightrig.harness.bench import Bench
from lightrig.harness.bench.named_values import SubjectError
from lightrig.harness.measure.measured import Measured, NothingMeasuredError
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.core.capabilities import PowerMonitor
from lightrig.testbeds.findings import did_you_mean

POWER = "optical_power"
READINGS = 10


def measure_power(
    bench: Bench, recording: Recording, subject: str, *, count: int = READINGS
) -> Measured:
    """Read the power at `subject` `count` times, from 2 on, and record the mean.

    subject: the port of a switch with monitors, such as "ocs.17", or the channel of a power meter,
    such as "meter.1". No two readings share a window of the instrument. The 95 % interval is that
    of the mean of the readings, by Student's t (JCGM 100:2008, G.3): scatter alone, without the
    instrument's own uncertainty, which a loss against references has.

    Raises:
        SubjectError: nothing reads power there.
        NothingMeasuredError: a reading had no light.
        InstrumentError: the instrument refused or failed.
    """
    if count < 2:
        raise SubjectError(f"found count={count}, expected 2 readings or more")
    name, _, port = subject.partition(".")
    found: dict[str, object] = {**bench.switches, **bench.instruments}
    monitor = found.get(name)
    if not isinstance(monitor, PowerMonitor) or not port.isdecimal():
        known = [each for each, one in found.items() if isinstance(one, PowerMonitor)]
        raise SubjectError(
            f"nothing reads power at {subject!r}{did_you_mean(subject, known)}; expected the port "
            f"or channel of {' or '.join(known) or 'an instrument that reads power'}"
        )
    readings, window, began = list[float](), 0, bench.clock.now()
    for _ in range(count):
        bench.clock.sleep(window)
        reading = monitor.power([int(port)])
        window = reading.window
        readings.append(reading.dbm[int(port)])
    if not all(map(math.isfinite, readings)):
        dark = sum(not math.isfinite(each) for each in readings)
        raise NothingMeasuredError(f"{subject} showed no light in {dark} of {count} readings")
    mean = float(np.mean(readings))
    standard = float(np.std(readings, ddof=1)) / math.sqrt(count)
    half = float(scipy.special.stdtrit(count - 1, 0.975)) * standard
    ends = mean - half, mean + half
    recording.record([Row(subject, POWER, mean, *ends, "dBm", began, {"n": count})])
    of = "scatter alone" if half else "all readings alike"
    return Measured(POWER, subject, mean, *ends, "dBm", count, name in bench.simulated, remark=of)
