"""A simulated N7776C typed at by hand, and the driver against it and against one that lies."""

import contextlib
import itertools
import math

import pytest
from instrument_rig import MS, Line, Rig
from scripted_scpi import scripted_scpi

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import CANNOT, DeniedError, GarbledError, NotDoneError
from lightrig.instruments.light_sources.keysight_n7776c import KeysightN7776c
from lightrig.instruments.simulated.devices.simulated_keysight_n7776c import SimulatedKeysightN7776c


@pytest.fixture
def laser(in_virtual_time) -> Rig:
    return in_virtual_time(SimulatedKeysightN7776c, kind="light_source", name="laser", channels=1)


@pytest.fixture
def driver(laser) -> KeysightN7776c:
    return laser.driver(KeysightN7776c)


@pytest.fixture
def line(in_real_time) -> Line:
    rig = in_real_time(SimulatedKeysightN7776c, kind="light_source", name="laser", channels=1)
    return rig.line()


def test_identity(driver):
    identity = driver.identity()
    assert (identity.model, identity.simulated) == ("N7776C", True)


def test_it_is_dark_until_it_is_switched_on(laser, driver):
    driver.set_power(1, 3.0)
    driver.set_wavelength(1, 1555.0)
    assert not driver.emission(1)
    assert laser.leaving(1) == 0.0
    driver.set_emission(1, on=True)
    assert driver.emission(1)
    assert 10 * math.log10(laser.leaving(1)) == pytest.approx(3.0, abs=0.3)
    driver.set_emission(1, on=False)
    assert not driver.emission(1)
    assert laser.leaving(1) == 0.0


def test_emission_is_acknowledged_when_there_is_light(laser, driver):
    before = laser.clock.now()
    driver.set_emission(1, on=True)
    assert 500 * MS <= laser.clock.now() - before < 510 * MS
    assert laser.left(1, before, before + 499 * MS) == 0.0


def test_power_can_be_changed_while_it_is_on(laser, driver):
    driver.set_emission(1, on=True)
    seen = []
    for dbm in (-10.0, 0.0, 10.0):
        driver.set_power(1, dbm)
        seen.append(10 * math.log10(laser.leaving(1)))
    assert [b - a for a, b in itertools.pairwise(seen)] == pytest.approx([10, 10], abs=0.1)


def test_tuning_takes_longer_the_further_it_goes(laser, driver):
    times = []
    for nanometre in (1551.0, 1611.0):
        before = laser.clock.now()
        driver.set_wavelength(1, nanometre)
        times.append(laser.clock.now() - before)
    assert times[1] - times[0] == pytest.approx(59 * 5 * MS, abs=MS)


@pytest.mark.parametrize(
    ("verb", "value"), [("set_wavelength", 1310.0), ("set_power", 20.0), ("set_power", -60.0)]
)
def test_an_unsupported_setting_is_denied(driver, verb, value):
    with pytest.raises(DeniedError) as denied:
        getattr(driver, verb)(1, value)
    assert denied.value.code == "-222"


def test_more_than_the_testbed_allows_is_not_even_sent(laser):
    driver = laser.driver(KeysightN7776c, launch_max_dbm=3.0)
    driver.set_power(1, 3.0)
    sent = len(driver.wire())
    with pytest.raises(DeniedError, match=r"5 dBm is more than the testbed allows") as denied:
        driver.set_power(1, 5.0)
    assert denied.value.code == CANNOT
    assert "`launch: {max: 3 dBm}`" in str(denied.value)
    assert len(driver.wire()) == sent


def test_there_is_one_channel(driver):
    with pytest.raises(DeniedError, match="no channel 2"):
        driver.set_emission(2, on=True)


def test_a_locked_laser_stays_off_and_the_error_tells_how_to_unlock_it(driver):
    driver.write(":LOCK 1,1234")
    with pytest.raises(DeniedError, match="is the laser locked") as denied:
        driver.set_emission(1, on=True)
    assert denied.value.code == "-200"
    assert not driver.emission(1)


def test_locking_switches_the_light_off(laser, driver):
    driver.set_emission(1, on=True)
    driver.write(":LOCK 1,1234")
    assert laser.leaving(1) == 0.0


def test_while_it_sweeps_it_does_not_tune(driver):
    driver.write(":SOUR0:WAV:SWE:SPE 50NM/S")
    driver.write(":SOUR0:WAV:SWE 1")
    with pytest.raises(DeniedError, match="a wavelength sweep is running"):
        driver.set_wavelength(1, 1550.0)


def test_quantities_have_the_units_that_are_set(line):
    line.write(":SOUR0:POW 1.0 mW")
    assert line.ask("sour0:pow:unit?") == "0"
    assert float(line.ask("sour0:pow?")) == pytest.approx(0.0, abs=1e-5)
    line.write("SOUR0:POW:UNIT W;:SOUR0:POW 0.002")
    assert line.ask(":SOURCE0:POWER:UNIT?;:SOUR0:POW?") == "+1;+2.00000000E-003"
    assert line.ask(":SOUR0:WAV?;:SOUR0:WAV? MIN") == "+1.55000000E-006;+1.48000000E-006"
    assert line.try_out(":SOUR0:POW -1MW").startswith("-222")
    assert line.try_out(":SOUR0:POW 1 NM").startswith("-131")
    assert line.try_out(":LOCK 1,0000").startswith("-224")
    assert line.error() == '+0,"No error"'


@pytest.mark.parametrize(
    ("answers", "ask", "error"),
    [
        ({":SOUR0:POW:STAT?": b"0\n"}, lambda d: d.set_emission(1, on=True), NotDoneError),
        ({":SOUR0:POW:STAT?": b"2\n"}, lambda d: d.emission(1), GarbledError),
        ({":SOUR0:WAV?": b"+1.31E-006\n"}, lambda d: d.set_wavelength(1, 1550.0), NotDoneError),
        ({":SOUR0:WAV?": b"1550nm\n"}, lambda d: d.set_wavelength(1, 1550.0), GarbledError),
        ({":SYST:ERR?": b"no idea\n"}, lambda d: d.set_power(1, 0.0), GarbledError),
    ],
)
def test_a_source_that_reads_back_differently_is_an_error(answers, ask, error):
    clock = SystemClock()
    with (
        scripted_scpi(answers.get) as device,
        contextlib.closing(KeysightN7776c("laser", device.endpoint, clock)) as driver,
        pytest.raises(error, match="laser"),
    ):
        ask(driver)
    clock.close()


def test_in_real_time_too(in_real_time):
    laser = in_real_time(SimulatedKeysightN7776c, kind="light_source", name="laser", channels=1)
    driver = laser.driver(KeysightN7776c)
    driver.set_emission(1, on=True)
    assert 10 * math.log10(laser.leaving(1)) == pytest.approx(0.0, abs=0.3)
