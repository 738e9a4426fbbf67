"""A simulated PM100D typed at by hand, and the driver against it and against one that lies."""

import contextlib

import pytest
from instrument_rig import MS, Line, Rig
from scripted_scpi import scripted_scpi

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.detected_power import (
    NoReadingError,
    OverRangeError,
    UnderRangeError,
)
from lightrig.instruments.core.errors import (
    CANNOT,
    DeniedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
    NotDoneError,
)
from lightrig.instruments.power_meters.thorlabs_pm100d import ThorlabsPm100d
from lightrig.instruments.simulated.devices.simulated_thorlabs_pm100d import SimulatedThorlabsPm100d
from lightrig.testbeds import LightrigError

STATED = {"kind": "power_meter", "channels": 1}


@pytest.fixture
def meter(in_virtual_time) -> Rig:
    return in_virtual_time(SimulatedThorlabsPm100d, **STATED)


@pytest.fixture(params=["scpi", "serial"])
def driver(meter, request) -> ThorlabsPm100d:
    return meter.driver(ThorlabsPm100d, meter.serial() if request.param == "serial" else None)


@pytest.fixture
def line(in_real_time) -> Line:
    return in_real_time(SimulatedThorlabsPm100d, **STATED).line()


def test_identity(driver):
    identity = driver.identity()
    assert (identity.manufacturer, identity.model) == ("Thorlabs", "PM100D")
    assert identity.simulated


def test_a_reading_is_not_older_than_its_question_and_averages_whole_samples(meter, driver):
    driver.prepare([1], wavelength_nm=1310, averaging=100 * MS)
    meter.shine(1, 0.5)
    before = meter.clock.now()
    reading = driver.power([1])
    assert reading.asked == before
    assert reading.window == 34 * 3 * MS
    assert reading.answered == meter.clock.now() >= before + reading.window
    assert reading.dbm[1] == pytest.approx(-3, abs=0.5)


@pytest.mark.parametrize(
    ("console", "sample_ms"), [("PM100D", 3), ("PM100D2", 1), ("PM103", 1), ("PM400", 1)]
)
def test_consoles_average_samples_of_their_own_length(in_virtual_time, console, sample_ms):
    """Thorlabs' command references: 1,000 / AVG readings a second; several drivers: 3 ms."""
    meter = in_virtual_time(SimulatedThorlabsPm100d, options={"console": console}, **STATED)
    driver = meter.driver(ThorlabsPm100d)
    driver.prepare([1], wavelength_nm=1310, averaging=100 * MS)
    meter.shine(1, 0.5)
    before = meter.clock.now()
    reading = driver.power([1])
    assert driver.averages.get() == -(-100 // sample_ms)
    assert 100 * MS <= reading.window <= 102 * MS
    assert reading.window <= reading.answered - before <= reading.window + 20 * MS
    assert driver.identity().model == console
    assert meter.driver(ThorlabsPm100d, sample=2 * MS).power([1]).window % (2 * MS) == 0


def test_a_console_that_is_not_simulated_is_named(simulated):
    meter = "{kind: power_meter, model: thorlabs-pm100d, address: 'scpi://meter.invalid', OPTIONS}"
    switch = "{model: polatis, address: 'tl1://ocs.invalid', size: 4x4}"
    text = f"name: one\nswitches: {{ocs: {switch}}}\ninstruments:\n  meter: {meter}\n"
    with pytest.raises(LightrigError, match="found 'PM9', expected one of PM100D, PM100D2"):
        simulated(text.replace("OPTIONS", "options: {console: PM9}"))


def test_darkness_is_the_floor(driver):
    assert driver.power([1]).dbm == {1: -60}


def test_more_light_than_the_sensor_takes_is_an_error_and_no_number(meter, driver):
    meter.shine(1, 10.0)
    with pytest.raises(OverRangeError, match=r"more light on channel 1"):
        driver.power([1])


def test_zeroing(meter):
    driver = meter.driver(ThorlabsPm100d, floor=-90)
    driver.prepare([1], wavelength_nm=1310, averaging=3000 * MS)

    def dark() -> float:
        return driver.query_number("READ?")

    offset = abs(dark())
    driver.zero([1])
    assert abs(dark()) < offset / 3
    meter.shine(1, 0.1)
    with pytest.raises(NotDoneError, match=r"dark offset[^$]*cap the sensor"):
        driver.zero([1])


def test_without_a_sensor_there_is_no_reading(in_virtual_time):
    meter = in_virtual_time(SimulatedThorlabsPm100d, options={"sensor": False}, **STATED)
    driver = meter.driver(ThorlabsPm100d)
    assert driver.identity().model == "PM100D"
    for ask in (
        lambda: driver.power([1]),
        lambda: driver.prepare([1], wavelength_nm=1310),
    ):
        with pytest.raises(DeniedError, match="no sensor") as denied:
            ask()
        assert denied.value.code == CANNOT
        assert "plug a sensor in" in str(denied.value)


@pytest.mark.parametrize(
    "setting", [{"wavelength_nm": 400.0}, {"wavelength_nm": 1310.0, "averaging": 60_000 * MS}]
)
def test_an_unsupported_setting_of_the_meter_is_denied(driver, setting):
    with pytest.raises(DeniedError) as denied:
        driver.prepare([1], **setting)
    assert denied.value.code == "-222"


def test_there_is_one_channel(driver):
    with pytest.raises(DeniedError, match="no channel 2"):
        driver.power([1, 2])


def test_public_drivers_get_the_replies_that_they_expect(line):
    assert line.ask("*IDN?") == "Thorlabs,PM100D,SIM-meter,2.4.0"
    name, serial, calibrated, *numbers = line.ask("SYST:SENSOR:IDN?").split(",")
    assert (name, serial) == ("S154C", "SIM-meter")
    assert calibrated
    assert [int(number) for number in numbers] == [1, 2, 33]
    assert line.ask("SENSE:CORR:WAV? MIN;WAV? MAX") == "8.00000000E+02;1.70000000E+03"
    line.write("SENS:CORR:WAV 1310;:SENS:AVER:COUN 2;:SENS:AVER 3")
    assert line.ask("sense:correction:wavelength?;:aver:coun?") == "1.31000000E+03;3"
    assert line.ask("POW:DC:UNIT?;:POW:DC:RANG:AUTO?;:CONF?") == "W;1;POW"
    assert abs(float(line.ask("MEASURE:POWER?"))) < 1e-8
    assert line.try_out("SENS:POW:UNIT FURLONG") == '-224,"Illegal parameter value"'
    assert line.try_out("SENS:CORR:WAV 400") == '-222,"Data out of range"'
    assert line.error() == '+0,"No error"'


def test_in_dbm_less_than_nothing_is_no_number(line):
    line.write("SENS:POW:UNIT DBM")
    shown = {float(line.ask("READ?")) for _ in range(20)}
    assert all(abs(value) > 1e20 or -120 < value < -50 for value in shown)


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({"READ?": b"bright\n"}, GarbledError),
        ({"READ?": b"9.90000000E+37\n"}, OverRangeError),
        ({"READ?": b"-9.90000000E+37\n"}, UnderRangeError),
        ({"READ?": b"-3.4E+38\n"}, UnderRangeError),
        ({"READ?": b"9.91E+37\n"}, NoReadingError),
        ({"SENS:AVER:COUN?": b"many\n"}, GarbledError),
        ({"SYST:SENS:IDN?": b"S154C\n"}, GarbledError),
        ({"SYST:SENS:IDN?": b"ES111C,1,now,3,1,34\n"}, DeniedError),
        ({"SYST:SENS:IDN?": b"ES111C,1,now,3,2,2147483653\n"}, DeniedError),
        ({"READ?": None}, NoReplyError),
    ],
)
def test_an_invalid_reply_of_the_meter_is_an_error(answers, error, monkeypatch):
    if error is NoReplyError:  # whoever answers may take his time
        monkeypatch.setattr(
            "lightrig.instruments.power_meters.thorlabs_pm100d._READING_TIMEOUT", 200 * MS
        )
    well = {
        "SYST:SENS:IDN?": b"S154C,1,now,1,2,33\n",
        "SENS:AVER:COUN?": b"1\n",
        "READ?": b"1.0E-3\n",
    }
    clock = SystemClock()
    with (
        scripted_scpi({**well, **answers}.get) as device,
        contextlib.closing(ThorlabsPm100d("meter", device.endpoint, clock)) as driver,
        pytest.raises(error, match="meter"),
    ):
        driver.power([1])
    clock.close()


# Types and flags: Thorlabs' command references of PM100D3 (bit 31: new mask, bit 0: automatic
# ranges, bit 2: wavelength settable), PM103 (the same bits without bit 31), PM400 and PM101 (bit 0:
# power, bit 5: wavelength settable; type 5 is a four-quadrant thermopile, 4 on the PM100D3).
@pytest.mark.parametrize(
    "sensor",
    [
        "S155C,1,2-JUN-2021,1,18,289",
        f"S120C,1,2-JUN-2021,1,18,{1 << 31 | 0b101}",
        f"S120C,1,2-JUN-2021,1,18,{1 << 31 | 0b100}",
        "S120C,1,2-JUN-2021,1,2,4",
        f"S401C,1,2-JUN-2021,2,18,{1 << 31 | 0b101}",
        f"S440C,1,2-JUN-2021,4,18,{1 << 31 | 0b100}",
        "S440C,1,2-JUN-2021,5,18,33",
    ],
)
def test_sensors_of_power_are_known_by_their_type(sensor):
    script = {
        "SYST:SENS:IDN?": f"{sensor}\n".encode(),
        "SENS:AVER:COUN?": b"1\n",
        "READ?": b"1.0E-3\n",
    }
    clock = SystemClock()
    with (
        scripted_scpi(script.get) as device,
        contextlib.closing(ThorlabsPm100d("meter", device.endpoint, clock)) as driver,
    ):
        assert driver.power([1]).dbm == {1: pytest.approx(0.0)}
    clock.close()


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (b"+9.9E+37\n", "has more light on channel 1 than its range takes"),
        (b"-9.9E+37\n", "has less light on channel 1 than its range shows"),
        (b"9.91E37\n", "has no reading of channel 1: it answers that it is not a number"),
    ],
)
def test_each_answer_that_is_no_value_has_its_sentence(reply, sentence):
    script = {
        "SYST:SENS:IDN?": b"S155C,1,2-JUN-2021,1,18,289\n",
        "SENS:AVER:COUN?": b"1\n",
        "READ?": reply,
    }
    clock = SystemClock()
    with (
        scripted_scpi(script.get) as device,
        contextlib.closing(ThorlabsPm100d("meter", device.endpoint, clock)) as driver,
        pytest.raises(InstrumentError, match=sentence) as found,
    ):
        driver.power([1])
    assert ("attenuate" in str(found.value)) == ("more light" in sentence)
    clock.close()


IDENTITIES = {
    "plain": b"Thorlabs,PM100D,P1,2.4.0\n",
    "quoted": b'"Thorlabs,PM100D,P1,2.4.0"\n',
    "behind NUL bytes": b"\0\0Thorlabs,PM100D,P1,2.4.0\n",
}


@pytest.mark.parametrize("answer", IDENTITIES.values(), ids=IDENTITIES)
def test_an_identity_in_other_words(answer):
    with (
        scripted_scpi(lambda command: answer if command == "*IDN?" else None) as device,
        contextlib.closing(SystemClock()) as clock,
        contextlib.closing(ThorlabsPm100d("meter", device.endpoint, clock)) as meter,
    ):
        found = meter.identity()
    assert (found.manufacturer, found.model) == ("Thorlabs", "PM100D")
    assert (found.serial, found.firmware) == ("P1", "2.4.0")


def test_firmware_with_a_comma_is_part_of_the_identity():
    """Keysight M8070B and HP: a fifth field."""
    reply = b"Thorlabs,PM100D,P1,2.4.0,HW 1\n"
    with (
        scripted_scpi(lambda command: reply if command == "*IDN?" else None) as device,
        contextlib.closing(SystemClock()) as clock,
        contextlib.closing(ThorlabsPm100d("meter", device.endpoint, clock)) as meter,
    ):
        assert meter.identity().firmware == "2.4.0,HW 1"


@pytest.mark.parametrize(("shows", "accepted"), [(1550.0, True), (1549.6, True), (1100.0, False)])
def test_a_wavelength_that_the_sensor_does_not_take_is_an_error(shows, accepted):
    script = {
        "SYST:SENS:IDN?": b"S155C,1,2-JUN-2021,1,18,289\n",
        "SENS:AVER:COUN?": b"1\n",
        "SENS:CORR:WAV?": f"{shows:.8E}\n".encode(),
    }
    clock = SystemClock()
    with (
        scripted_scpi(script.get) as device,
        contextlib.closing(ThorlabsPm100d("meter", device.endpoint, clock)) as driver,
        contextlib.nullcontext()
        if accepted
        else pytest.raises(NotDoneError, match=r"accepted 1550 nm .* reports 1100 nm"),
    ):
        driver.prepare([1], wavelength_nm=1550)
    clock.close()


def test_an_error_queued_instead_of_a_reply_is_raised(monkeypatch):
    monkeypatch.setattr(
        "lightrig.instruments.power_meters.thorlabs_pm100d._READING_TIMEOUT", 200 * MS
    )
    asked = []

    def script(command):
        asked.append(command)
        if command == ":SYST:ERR?" and "READ?" in asked and "told" not in asked:
            asked.append("told")
            return b'-241,"Hardware missing"\n'
        return {"SYST:SENS:IDN?": b"S154C,1,now,1,2,33\n", "SENS:AVER:COUN?": b"1\n"}.get(command)

    clock = SystemClock()
    with (
        scripted_scpi(script) as device,
        contextlib.closing(ThorlabsPm100d("meter", device.endpoint, clock)) as driver,
        pytest.raises(DeniedError, match="the sensor is missing") as denied,
    ):
        driver.power([1])
    assert denied.value.code == "-241"
    clock.close()


@pytest.mark.parametrize("wire", ["scpi", "serial"])
def test_in_real_time_too(in_real_time, wire):
    meter = in_real_time(SimulatedThorlabsPm100d, **STATED)
    driver = meter.driver(ThorlabsPm100d, meter.serial() if wire == "serial" else None)
    meter.shine(1, 1.0)
    assert driver.power([1]).dbm[1] == pytest.approx(0, abs=0.5)
