"""A simulated PM-1613 typed at by hand, and the driver against it and against one that lies."""

import contextlib
import math

import pytest
from instrument_rig import MS, Line, Rig
from scripted_scpi import scripted_scpi

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.detected_power import (
    NoReadingError,
    OverRangeError,
    UnderRangeError,
)
from lightrig.instruments.core.errors import DeniedError, GarbledError
from lightrig.instruments.power_meters.exfo_pm1613 import ExfoPm1613
from lightrig.instruments.simulated.devices.simulated_exfo_pm1613 import SimulatedExfoPm1613

STATED = {"kind": "power_meter", "channels": 1}


@pytest.fixture
def meter(in_virtual_time) -> Rig:
    return in_virtual_time(SimulatedExfoPm1613, **STATED)


@pytest.fixture(params=["scpi", "serial"])
def driver(meter, request) -> ExfoPm1613:
    return meter.driver(ExfoPm1613, meter.serial() if request.param == "serial" else None)


@pytest.fixture
def line(in_real_time) -> Line:
    return in_real_time(SimulatedExfoPm1613, **STATED).line()


def test_power_over_ranges_that_change(meter, driver):
    driver.prepare([1], wavelength_nm=1310.25, averaging=20 * MS)
    assert driver.identity().model == "PM-1613"
    for milliwatt in (0.7, 3e-5, 5.5):
        meter.shine(1, milliwatt)
        reading = driver.power([1])
        assert reading.window == 20 * MS
        assert reading.dbm[1] == pytest.approx(10 * math.log10(milliwatt), abs=0.5)
        assert meter.clock.now() - reading.asked < 100 * MS  # not from before the range changed
    meter.shine(1, 0.0)
    assert driver.power([1]).dbm == {1: -70}
    meter.shine(1, 20.0)
    with pytest.raises(OverRangeError, match="more light on channel 1"):
        driver.power([1])


def test_settings_are_read_back_and_restored(driver):
    driver.prepare([1], wavelength_nm=1550, averaging=5 * MS)
    restore = driver.snapshot([1])
    driver.prepare([1], wavelength_nm=980, averaging=MS // 10)
    assert driver.power([1]).window == MS // 4
    restore()
    assert driver.read_settings([1]) == {
        "wavelength 1": 1550.0,
        "averaged 1": True,
        "averages 1": 20.0,
    }
    assert driver.power([1]).window == 5 * MS
    with pytest.raises(DeniedError) as denied:
        driver.prepare([1], wavelength_nm=400)
    assert denied.value.code == "-222"
    with pytest.raises(DeniedError, match="there is only 1"):
        driver.power([2])


def test_zeroing(meter):
    driver = meter.driver(ExfoPm1613, floor=-100)
    driver.prepare([1], wavelength_nm=1310, averaging=500 * MS)
    driver.power([1])
    before = abs(driver.query_number("READ:ALL:POW:DC?"))
    driver.zero([1])
    assert abs(driver.query_number("READ:ALL:POW:DC?")) < before / 3


def test_a_program_of_others(line):
    """The commands of autolab's driver, and what it reads of the replies."""
    for each in ("*CLS", "SENS:POW:RANG:AUTO 1", "SENS:POW:REF:STAT 0", "SENS:POW:UNIT W"):
        line.write(each)
    line.write("SENS:AVER:STAT 1;:SENS:AVER:COUN 4")
    assert line.ask("*OPC?") == "1"
    assert int(line.ask("SENS:AVER:COUN?")) == 4
    line.write("SENS:POW:WAVE 1310.250000")
    assert float(line.ask("SENS:POW:WAVE?")) == 1310.25
    while "*" in (shown := line.ask("READ:ALL:POW:DC?")):
        pass
    assert abs(float(shown)) < 1e-8
    assert line.error() == '0,"No error"'
    assert line.try_out("SENS:POW:UNIT FURLONG") == '-224,"Illegal parameter value"'


@pytest.mark.parametrize(
    ("reply", "error", "sentence"),
    [
        (b"*****\n", NoReadingError, r"shows no power on channel 1: it answers \*{5}"),
        (b"!!!!!!!\n", NoReadingError, "it answers !!!!!!!"),
        (b"+++++++\n", OverRangeError, "has more light on channel 1"),
        (b"-------\n", UnderRangeError, "has less light on channel 1"),
        (b"1.2E-3,3.4E-3\n", GarbledError, "meter"),
        (b"W=1.2E-3\n", GarbledError, "meter"),
        (b"nan\n", NoReadingError, "has no reading of channel 1"),
    ],
)
def test_what_is_no_power_is_an_error(reply, error, sentence, monkeypatch):
    monkeypatch.setattr("lightrig.instruments.power_meters.exfo_pm1613._READING_TIMEOUT", 300 * MS)
    asked = {
        "SENS:AVER:STAT?": b"1\n",
        "SENS:AVER:COUN?": b"3\n",
        "READ:ALL:POW:DC?": reply,
    }
    clock = SystemClock()
    with (
        scripted_scpi(asked.get) as device,
        contextlib.closing(ExfoPm1613("meter", device.endpoint, clock)) as driver,
        pytest.raises(error, match=sentence),
    ):
        driver.power([1])
    clock.close()
