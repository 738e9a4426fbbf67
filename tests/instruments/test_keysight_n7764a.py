"""A simulated N7764A typed at by hand, and the driver against it and against one that lies."""

import contextlib
import math
import struct

import pytest
from instrument_rig import MS, Line, Rig
from scripted_scpi import scripted_scpi

from lightrig.instruments.attenuators.keysight_n7764a import KeysightN7764a
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.detected_power import OverRangeError
from lightrig.instruments.core.errors import CANNOT, DeniedError, GarbledError, NotDoneError
from lightrig.instruments.simulated.devices.simulated_keysight_n7764a import SimulatedKeysightN7764a


@pytest.fixture
def box(in_virtual_time) -> Rig:
    return in_virtual_time(SimulatedKeysightN7764a, kind="attenuator", name="voa", channels=4)


@pytest.fixture
def driver(box) -> KeysightN7764a:
    return box.driver(KeysightN7764a)


@pytest.fixture
def line(in_real_time) -> Line:
    rig = in_real_time(SimulatedKeysightN7764a, kind="attenuator", name="voa", channels=4)
    return rig.line()


def loss(box: Rig, channel: int, entering: float = 1.0) -> float:
    return 10 * math.log10(entering / box.leaving(channel))


def test_identity(driver):
    identity = driver.identity()
    assert (identity.model, identity.simulated) == ("N7764A", True)


def test_light_loses_what_is_set_on_top_of_what_the_box_loses(box, driver):
    box.shine(2, 1.0)
    assert box.leaving(2) == 0.0
    driver.set_shutter(2, is_open=True)
    own = loss(box, 2)
    assert 0.3 < own < 4
    driver.set_attenuation(2, 20.0)
    assert driver.attenuation(2) == pytest.approx(20.0)
    assert loss(box, 2) - own == pytest.approx(20.0)
    box.shine(2, 0.5)
    assert loss(box, 2, 0.5) - own == pytest.approx(20.0)


def test_a_change_is_acknowledged_after_the_light_has_settled(box, driver):
    box.shine(1, 1.0)
    driver.set_shutter(1, is_open=True)
    own = loss(box, 1)
    before = box.clock.now()
    driver.set_attenuation(1, 40.0)
    took = box.clock.now() - before
    assert 40 * MS <= took < 50 * MS
    assert loss(box, 1) - own == pytest.approx(40.0)
    on_the_way = box.left(1, before + 15 * MS, before + 25 * MS)
    assert 15 < -10 * math.log10(on_the_way) - own < 25


def test_a_slow_one_is_waited_for_or_given_up(box, driver):
    driver.set_shutter(1, is_open=True)
    box.driver(KeysightN7764a).write(":INP1:ATT:SPE 20")
    before = box.clock.now()
    driver.set_attenuation(1, 10.0)
    assert box.clock.now() - before >= 500 * MS
    impatient = box.driver(KeysightN7764a, change_timeout=100 * MS)
    with pytest.raises(NotDoneError, match=r"not done after 0.1 s[^$]*transition speed"):
        impatient.set_attenuation(1, 0.0)


def test_a_shutter_lets_nothing_through(box, driver):
    box.shine(3, 10.0)
    driver.set_shutter(3, is_open=True)
    assert box.leaving(3) > 1.0
    driver.set_shutter(3, is_open=False)
    assert box.leaving(3) == 0.0
    driver.set_attenuation(3, 5.0)
    assert box.leaving(3) == 0.0
    driver.set_shutter(3, is_open=True)
    assert 10 * math.log10(10 / box.leaving(3)) == pytest.approx(7, abs=1.5)


def test_channels_are_independent(box, driver):
    for channel in range(1, 5):
        box.shine(channel, 1.0)
        driver.set_shutter(channel, is_open=True)
        driver.set_attenuation(channel, 5.0 * channel)
    losses = [loss(box, channel) for channel in range(1, 5)]
    assert losses == pytest.approx([7, 12, 17, 22], abs=1.5)
    assert [driver.attenuation(n) for n in range(1, 5)] == pytest.approx([5, 10, 15, 20])


@pytest.mark.parametrize("decibel", [-1.0, 45.5, 400.0])
def test_an_attenuation_out_of_range_is_denied(driver, decibel):
    with pytest.raises(DeniedError) as denied:
        driver.set_attenuation(1, decibel)
    assert denied.value.code == "-222"


def test_there_are_four_channels(driver):
    with pytest.raises(DeniedError, match=r"no channel 5; there are 1 to 4") as denied:
        driver.set_attenuation(5, 1.0)
    assert denied.value.code == CANNOT


def test_its_monitors_see_the_light_behind_the_attenuator(box, driver):
    box.shine(4, 1.0)
    driver.set_shutter(4, is_open=True)
    driver.set_attenuation(4, 10.0)
    box.clock.sleep(300 * MS)
    reading = driver.power([4, 1])
    assert reading.dbm[4] == pytest.approx(10 * math.log10(box.leaving(4)), abs=1.0)
    assert reading.dbm[1] == -50.0
    assert reading.window == 200 * MS
    assert reading.asked <= reading.answered


def test_a_monitor_reading_shows_no_light_older_than_its_window(box, driver):
    box.shine(1, 1.0)
    driver.set_shutter(1, is_open=True)
    box.clock.sleep(1000 * MS)
    window = driver.power([1]).window
    box.shine(1, 0.0)
    gone = box.clock.now()
    while driver.power([1]).dbm[1] > -50:
        pass
    assert box.clock.now() - gone < window + 10 * MS


def test_the_wavelength_of_the_testbed_is_set_on_every_channel_that_is_used(box):
    driver = box.driver(KeysightN7764a, wavelength_nm=1310.0)
    driver.set_attenuation(2, 3.0)
    assert driver.query_number(":INP3:WAV?") == pytest.approx(1310e-9)
    assert driver.query_number(":INP1:WAV?") == pytest.approx(1550e-9)


def test_an_offset_that_somebody_left_is_found_out(box, driver):
    driver.write(":INP1:OFFS 3DB")
    driver.set_attenuation(1, 10.0)
    assert driver.attenuation(1) == pytest.approx(10.0)
    with pytest.raises(DeniedError):
        driver.set_attenuation(1, 2.0)


def test_either_slot_of_a_channel_names_it(line):
    assert line.try_out(":INP4:ATT 7DB") == '+0,"No error"'
    assert float(line.ask(":INP3:ATT?")) == 7.0
    assert line.ask(":INP3:ATT? MIN;ATT? MAX") == "+0.00000000E+000;+4.50000000E+001"
    assert line.ask("outp3?;:outp3:pow:contr?") == "0;0"
    line.write(":OUTP4:STAT ON")
    assert line.ask(":OUTPUT3:STATE?") == "1"
    assert line.try_out(":INP9:ATT 1").startswith("-303")
    assert line.try_out(":INP1:WAV 850NM").startswith("-222")
    assert line.try_out(":OUTP1:STAT PERHAPS").startswith("-224")
    line.write(":READ:POW:ALL:CONF?")
    assert line.read() == b"#216" + b"".join(struct.pack("<HH", n, 1) for n in (1, 3, 5, 7))
    assert line.ask("*OPC?;:SLOT1:OPC?") == "1;1"


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({":INP1:ATT?": b"+1.10000000E+001\n", ":SLOT1:OPC?": b"1\n"}, NotDoneError),
        ({":INP1:ATT?": b"ten\n", ":SLOT1:OPC?": b"1\n"}, GarbledError),
        ({":INP1:ATT?": b"+9.9\n", ":SLOT1:OPC?": b"perhaps\n"}, GarbledError),
        ({":SLOT1:OPC?": b"0\n"}, NotDoneError),
    ],
)
def test_an_attenuation_that_reads_back_differently_is_an_error(answers, error):
    clock = SystemClock()
    with (
        scripted_scpi(answers.get) as device,
        contextlib.closing(
            KeysightN7764a("voa", device.endpoint, clock, change_timeout=20 * MS)
        ) as driver,
        pytest.raises(error, match="voa"),
    ):
        driver.set_attenuation(1, 10.0)
    clock.close()


def test_a_shutter_that_does_not_move_is_an_error():
    clock = SystemClock()
    answers = {":SLOT3:OPC?": b"1\n", ":OUTP3:STAT?": b"0\n"}
    with (
        scripted_scpi(answers.get) as device,
        contextlib.closing(KeysightN7764a("voa", device.endpoint, clock)) as driver,
        pytest.raises(NotDoneError, match="shutter of channel 2"),
    ):
        driver.set_shutter(2, is_open=True)
    clock.close()


def test_a_monitor_without_a_value_is_an_error():
    clock = SystemClock()
    power = b"#216" + struct.pack("<ffff", 1e-3, 3.4e38, 1e-3, 1e-3) + b"\n"
    answers = {":OUTP3:ATIM?": b"+1.0E-001\n", ":READ:POW:ALL?": power}
    with (
        scripted_scpi(answers.get) as device,
        contextlib.closing(KeysightN7764a("voa", device.endpoint, clock)) as driver,
        pytest.raises(OverRangeError, match="channel 2"),
    ):
        driver.power([2])
    clock.close()


def test_in_real_time_too(in_real_time):
    box = in_real_time(SimulatedKeysightN7764a, kind="attenuator", name="voa", channels=4)
    driver = box.driver(KeysightN7764a)
    box.shine(1, 1.0)
    driver.set_shutter(1, is_open=True)
    driver.set_attenuation(1, 12.5)
    assert loss(box, 1) == pytest.approx(14.5, abs=1.5)
