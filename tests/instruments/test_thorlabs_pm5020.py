"""A simulated PM5020 typed at by hand, and the driver against it: two sensors that differ."""

import pytest
from instrument_rig import MS, Line, Rig

from lightrig.instruments.core.detected_power import OverRangeError
from lightrig.instruments.core.errors import DeniedError, NotDoneError
from lightrig.instruments.power_meters.thorlabs_pm5020 import ThorlabsPm5020
from lightrig.instruments.simulated.devices.simulated_thorlabs_pm5020 import SimulatedThorlabsPm5020

STATED = {"kind": "power_meter", "channels": 2}


@pytest.fixture
def meter(in_virtual_time) -> Rig:
    return in_virtual_time(SimulatedThorlabsPm5020, **STATED)


@pytest.fixture
def line(in_real_time) -> Line:
    return in_real_time(SimulatedThorlabsPm5020, **STATED).line()


def test_each_channel_has_its_light_and_its_settings(meter):
    driver = meter.driver(ThorlabsPm5020)
    assert (driver.identity().model, driver.identity().simulated) == ("PM5020", True)
    driver.prepare([1], wavelength_nm=1310, averaging=40 * MS)
    driver.prepare([2], wavelength_nm=1550, averaging=7 * MS)
    meter.shine(1, 0.5)
    meter.shine(2, 0.01)
    found = [driver.power([n]) for n in (1, 2)]
    assert [each.window for each in found] == [40 * MS, 7 * MS]
    assert found[0].dbm == {1: pytest.approx(-3.01, abs=0.5)}
    assert found[1].dbm == {2: pytest.approx(-20, abs=0.5)}
    assert driver.read_settings([1, 2]) == {
        "wavelength 1": 1310.0,
        "wavelength 2": 1550.0,
        "averages 1": 40.0,
        "averages 2": 7.0,
    }


def test_both_channels_are_read_one_after_the_other(meter):
    driver = meter.driver(ThorlabsPm5020)
    driver.prepare([1, 2], wavelength_nm=1310, averaging=20 * MS)
    meter.shine(2, 0.2)
    before = meter.clock.now()
    reading = driver.power([2, 1])
    assert (reading.asked, reading.window) == (before, 40 * MS)
    assert reading.answered >= before + reading.window
    assert reading.dbm[1] == -60
    assert reading.dbm[2] == pytest.approx(-6.99, abs=0.5)


def test_settings_of_both_channels_are_restored(meter):
    driver = meter.driver(ThorlabsPm5020)
    driver.prepare([1], wavelength_nm=1310, averaging=4 * MS)
    restore = driver.snapshot([1, 2])
    driver.prepare([1, 2], wavelength_nm=980, averaging=9 * MS)
    restore()
    assert [driver.wavelength.get(n) for n in (1, 2)] == [1310, 1550]
    assert driver.power([1]).window == 4 * MS


def test_zeroing_takes_the_offset_of_its_channel_alone(meter):
    driver = meter.driver(ThorlabsPm5020, floor=-90)
    driver.prepare([1, 2], wavelength_nm=1310, averaging=3000 * MS)
    before = [abs(driver.query_number(f"READ{n}?")) for n in (1, 2)]
    driver.zero([2])
    after = [abs(driver.query_number(f"READ{n}?")) for n in (1, 2)]
    assert after[1] < before[1] / 3
    assert after[0] > before[0] / 3
    meter.shine(1, 0.1)
    with pytest.raises(NotDoneError, match=r"dark offset[^$]*cap the sensor"):
        driver.zero([1])


def test_what_is_no_reading_names_its_channel(meter):
    driver = meter.driver(ThorlabsPm5020)
    meter.shine(2, 10.0)
    assert driver.power([1]).dbm == {1: -60}
    with pytest.raises(OverRangeError, match="more light on channel 2"):
        driver.power([1, 2])
    with pytest.raises(DeniedError, match="no channel 3; there are 1 to 2"):
        driver.prepare([3], wavelength_nm=1310)


def test_a_program_that_measures_with_both_channels(line):
    """The class PM_PM5020 (queries and replies as it reads them), and Thorlabs' rules of suffixes.

    Thorlabs: "If there is only one suffix you may skip it because default is applied internally."
    """
    line.write("CONF:POW")
    line.write("SENS1:POW:UNIT W;:SENS2:POW:UNIT dBm")
    assert [line.ask(f"SENS{n}:POW:UNIT?") for n in (1, 2)] == ["W", "DBM"]
    line.write("SENS1:CORR:WAV 1310;:SENS2:CORR:WAV 1064;:SENS2:POW:RANGE:AUTO 0")
    assert [float(line.ask(f"SENS{n}:CORR:WAV?")) for n in (1, 2)] == [1310, 1064]
    assert [int(line.ask(f"SENS{n}:POW:RANGE:AUTO?")) for n in (1, 2)] == [1, 0]
    line.write(":SENS2:AVER 5")
    assert [float(line.ask(f":SENS{n}:AVER?")) for n in (1, 2)] == [1, 5]
    line.write("INIT1:IMM")
    assert abs(float(line.ask("MEAS1:POW?"))) < 1e-7
    assert line.ask("SYST:SENS2:IDN?").split(",")[3:5] == ["1", "2"]
    assert float(line.ask("sense:correction:wavelength?")) == 1310
    assert line.try_out("SENS3:CORR:WAV 1310") == '-114,"Header suffix out of range"'
    assert line.error() == '+0,"No error"'
