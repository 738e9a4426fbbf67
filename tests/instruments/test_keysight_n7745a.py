"""The N7745A driver against a simulated meter, and against one that lies."""

import contextlib
import math
import struct

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from instrument_rig import MS, Rig
from scripted_scpi import scripted_scpi

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core import scpi_instrument
from lightrig.instruments.core.detected_power import (
    NoReadingError,
    OverRangeError,
    UnderRangeError,
    dbm,
)
from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
    NotDoneError,
)
from lightrig.instruments.power_meters.keysight_n7745a import KeysightN7745a
from lightrig.instruments.simulated.devices.simulated_keysight_n7745a import SimulatedKeysightN7745a

US = 1000


@pytest.fixture
def meter(in_virtual_time) -> Rig:
    return in_virtual_time(SimulatedKeysightN7745a, kind="power_meter")


@pytest.fixture
def driver(meter) -> KeysightN7745a:
    return meter.driver(KeysightN7745a)


def test_identity(driver):
    identity = driver.identity()
    assert (identity.manufacturer, identity.model) == ("Keysight Technologies", "N7745A")
    assert identity.simulated


def test_a_reading_is_not_older_than_its_question(meter, driver):
    driver.prepare([1, 2], wavelength_nm=1310, averaging=20 * MS)
    meter.shine(1, 1.0)
    before = meter.clock.now()
    reading = driver.power([1, 2])
    assert reading.asked == before
    assert before + 20 * MS <= reading.answered <= meter.clock.now()
    assert reading.answered < before + 22 * MS
    assert reading.window == 20 * MS
    assert reading.dbm[1] == pytest.approx(0, abs=0.3)
    assert reading.dbm[2] < -70


def test_a_reading_averages_over_its_window(meter, driver):
    driver.prepare([1], wavelength_nm=1310, averaging=10 * MS)
    driver.power([1])
    meter.shine(1, 1.0)
    full = driver.power([1]).dbm[1]
    meter.clock.schedule(meter.clock.now() + 5 * MS, "night", lambda: meter.shine(1, 0.0))
    half = driver.power([1]).dbm[1]
    assert full - half == pytest.approx(3.0, abs=0.5)


def test_darkness_is_the_floor_and_never_less(meter):
    driver = meter.driver(KeysightN7745a, floor=-60.0)
    assert driver.power([3]).dbm == {3: -60.0}


@given(st.floats(allow_nan=False, allow_infinity=False, max_value=1e20), st.integers(-110, 10))
def test_power_in_dbm_is_finite_and_not_below_the_floor(watt, floor):
    shown = dbm(watt, float(floor))
    assert math.isfinite(shown)
    assert shown >= floor
    if watt > 1e-3 * 10 ** (floor / 10) * 1.000001:
        assert shown == pytest.approx(10 * math.log10(watt / 1e-3))


def test_more_light_than_it_takes_is_an_error_and_no_number(meter, driver):
    meter.shine(2, 50.0)
    driver.prepare([2], wavelength_nm=1550)
    with pytest.raises(OverRangeError, match=r"more light on channel 2 than its range takes"):
        driver.power([2])
    meter.shine(2, 0.5)
    assert driver.power([2]).dbm[2] == pytest.approx(-3, abs=0.3)


def test_zeroing_takes_time_and_makes_the_dark_darker(meter):
    driver = meter.driver(KeysightN7745a, log_range=-30.0)

    def dark() -> float:
        return abs(np.mean(driver.log(5, samples=10, period=1000 * MS).result().milliwatt))

    offset = dark()
    before = meter.clock.now()
    driver.zero([5])
    assert meter.clock.now() - before > 1000 * MS
    assert dark() < offset / 3


def test_with_light_on_it_there_is_no_zeroing(meter, driver):
    meter.shine(1, 0.01)
    with pytest.raises(NotDoneError, match=r"dark offset of channel 1[^$]*cap the input"):
        driver.zero([1])


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ({"wavelength_nm": 850.0}, "-222"),
        ({"wavelength_nm": 1310.0, "averaging": 100}, "-222"),
        ({"wavelength_nm": 1310.0, "averaging": 20_000 * MS}, "-222"),
    ],
)
def test_an_unsupported_setting_of_the_meter_is_denied(driver, setting, code):
    with pytest.raises(DeniedError) as denied:
        driver.prepare([1], **setting)
    assert denied.value.code == code
    assert "outside the instrument's range" in str(denied.value)


def test_a_channel_that_is_not_there_is_denied_before_anything_is_asked_of_it(driver):
    with pytest.raises(DeniedError, match=r"no channel 9; there are \[1, 2, 3, 4, 5, 6, 7, 8\]"):
        driver.power([1, 9])


# ------------------------------------------------------------------------------------ logs


def test_a_log_is_the_light_sample_by_sample(meter, driver):
    meter.shine(3, 1.0)
    pending = driver.log(3, samples=1000, period=10 * US)
    begun = meter.clock.now()
    meter.clock.schedule(begun + 4 * MS, "night", lambda: meter.shine(3, 0.0))
    log = pending.result()
    truth = meter.truth.first("meter.3", "log", up=True, since=0)
    assert log.start.earliest <= truth.earliest <= log.start.latest
    assert log.start.latest - log.start.earliest < 2 * MS
    assert (log.period, log.milliwatt.shape) == (10 * US, (1000,))
    dark_from = (begun + 4 * MS - truth.earliest) / (10 * US)
    assert np.mean(log.milliwatt[: int(dark_from)]) == pytest.approx(1.0, rel=0.05)
    assert np.max(log.milliwatt[int(dark_from) + 1 :]) < 0.01


def test_a_log_outlasts_what_the_light_itself_remembers(meter, driver):
    meter.shine(1, 1.0)
    pending = driver.log(1, samples=100, period=100 * MS)
    begun = meter.clock.now()
    for n in range(1, 101):
        at = begun + n * 100 * MS - 50 * MS
        meter.clock.schedule(at, "sun", lambda n=n: meter.shine(1, float(n % 2 == 0)))
    log = pending.result()
    assert np.mean(log.milliwatt) == pytest.approx(0.5, rel=0.05)
    assert np.min(log.milliwatt) > 0.4
    assert np.max(log.milliwatt[1:]) < 0.6


def test_logs_begun_together_are_of_the_same_moments(meter, driver):
    pending = driver.log_together([1, 4], samples=2000, period=US)
    at = meter.clock.now() + 200 * US
    meter.clock.schedule(at, "sun", lambda: [meter.shine(n, 1.0) for n in (1, 4)])
    logs = pending.result()
    rises = [int(np.argmax(logs[n].milliwatt > 0.5)) for n in (1, 4)]
    assert rises[0] == rises[1] > 0
    assert logs[1].start == logs[4].start


def test_too_much_light_on_an_unread_channel_is_ignored(meter, driver):
    meter.shine(7, 100.0)
    meter.shine(1, 0.5)
    assert driver.power([1]).dbm[1] == pytest.approx(-3, abs=0.3)


def test_after_a_log_readings_work_as_before(meter, driver):
    driver.prepare([1], wavelength_nm=1310, averaging=MS)
    meter.shine(1, 1e-5)
    before = driver.power([1]).dbm[1]
    driver.log(1, samples=10, period=US).result()
    assert driver.power([1]).dbm[1] == pytest.approx(before, abs=0.05)


def test_an_unread_log_blocks_readings_only(driver):
    driver.log(1, samples=1000, period=MS)
    with pytest.raises(DeniedError) as denied:
        driver.power([2])
    assert denied.value.code == "-284"
    assert "a log is running" in str(denied.value)
    driver.log(2, samples=10, period=US).result()


def test_a_log_that_another_program_ends_is_an_error(meter, driver):
    other = meter.driver(KeysightN7745a)
    other.identity()
    pending = driver.log(1, samples=1000, period=MS)
    other.prepare([1], wavelength_nm=1310)
    with pytest.raises(NotDoneError, match=r"ended the log of channel 1 before it was full"):
        pending.result()


def test_light_beyond_a_logs_range_is_an_error_and_no_number(meter):
    driver = meter.driver(KeysightN7745a, log_range=-20.0)
    meter.shine(1, 0.001)
    assert driver.log(1, samples=100, period=US).result().milliwatt.max() < 0.01
    meter.shine(1, 1.0)
    with pytest.raises(OverRangeError, match=r"in 100 of 100 samples"):
        driver.log(1, samples=100, period=US).result()


@pytest.mark.parametrize(
    ("samples", "period"), [(1_000_001, US), (0, US), (10, 999), (10, 11 * 10**9)]
)
def test_a_log_that_the_meter_cannot_do_is_denied(driver, samples, period):
    with pytest.raises(DeniedError):
        driver.log(1, samples=samples, period=period)


def test_the_longest_log_comes_through_in_real_time(in_real_time):
    meter = in_real_time(SimulatedKeysightN7745a, kind="power_meter", channels=4)
    driver = meter.driver(KeysightN7745a)
    driver.prepare([1], wavelength_nm=1310, averaging=MS)
    meter.shine(1, 0.5)
    assert driver.power([1]).dbm[1] == pytest.approx(-3, abs=0.3)
    log = driver.log(1, samples=200_000, period=US).result()
    assert len(log.milliwatt) == 200_000
    assert np.mean(log.milliwatt) == pytest.approx(0.5, rel=0.05)
    with pytest.raises(DeniedError, match="no channel 5"):
        driver.power([5])


# ------------------------------------------------------------------------------------ lies

LAYOUT = b"#18" + struct.pack("<HHHH", 1, 1, 2, 1) + b"\n"


def block(data: bytes) -> bytes:
    return f"#2{len(data):02d}".encode() + data + b"\n"


def told(reading: bytes | None, **other: bytes) -> "dict[str, bytes | None]":
    answers: dict[str, bytes | None] = {
        ":FETC:POW:ALL:CONF?": LAYOUT,
        ":SENS1:POW:ATIM?": b"+1.00000000E-003\n",
        ":SENS2:POW:ATIM?": b"+1.00000000E-003\n",
        ":READ:POW:ALL?": reading,
    }
    return {**answers, **{key.replace("_", ":"): value for key, value in other.items()}}


@pytest.mark.parametrize(
    ("reading", "error"),
    [
        (b"+1.0E-3,+1.0E-3\n", GarbledError),
        (block(struct.pack("<f", 1e-3)), GarbledError),
        (block(struct.pack("<fff", 1e-3, 1e-3, 1e-3)), GarbledError),
        (block(struct.pack("<ff", float("nan"), 1e-3)), GarbledError),
        (block(struct.pack("<ff", 3.4e38, 1e-3)), OverRangeError),
        (block(struct.pack("<ff", float("inf"), 1e-3)), OverRangeError),
        (block(struct.pack("<ff", 9.9e37, 1e-3)), OverRangeError),
        (block(struct.pack("<ff", -9.9e37, 1e-3)), UnderRangeError),
        (block(struct.pack("<ff", 9.91e37, 1e-3)), NoReadingError),
        (b"#1x\n", GarbledError),
        (b"", DisconnectedError),
        (b"#18\x00\x00", NoReplyError),
        (None, NoReplyError),
    ],
)
def test_an_invalid_reading_is_an_error(reading, error, monkeypatch):
    if error is NoReplyError:  # whoever answers may take his time
        monkeypatch.setattr(
            "lightrig.instruments.power_meters.keysight_n7745a._READING_TIMEOUT", 200 * MS
        )
    answers = told(reading)
    clock = SystemClock()
    with (
        scripted_scpi(answers.get) as device,
        contextlib.closing(KeysightN7745a("meter", device.endpoint, clock)) as driver,
        pytest.raises(error) as wrong,
    ):
        driver.power([1])
    assert "meter" in str(wrong.value)
    assert ":READ:POW:ALL?" in str(wrong.value)
    clock.close()


def test_a_wavelength_that_the_meter_does_not_take_is_an_error():
    answers = told(None) | {":SENS1:POW:WAV?": b"+1.25000000E-006\n"}
    clock = SystemClock()
    with (
        scripted_scpi(answers.get) as device,
        contextlib.closing(KeysightN7745a("meter", device.endpoint, clock)) as driver,
        pytest.raises(NotDoneError, match=r"accepted 1550 nm .* reports 1250 nm"),
    ):
        driver.prepare([1], wavelength_nm=1550)
    clock.close()


@pytest.mark.parametrize(
    ("query", "reply", "says"),
    [
        (":SENS1:POW:RANG?", b"+0.00000000E+000\n", "accepted 10 dBm .* reports 0 dBm"),
        (
            ":SENS1:FUNC:PAR:LOGG?",
            b"+100,+2.00000000E-003\n",
            "100 samples of 1000000 ns .* reports 100 of 2e.06 ns",
        ),
    ],
)
def test_a_log_that_the_meter_takes_otherwise_is_an_error(query, reply, says):
    well = {
        ":SENS1:POW:RANG?": b"+1.00000000E+001\n",
        ":SENS1:FUNC:PAR:LOGG?": b"+100,+1.00000000E-003\n",
    }
    clock = SystemClock()
    with (
        scripted_scpi({**told(None), **well, query: reply}.get) as device,
        contextlib.closing(KeysightN7745a("meter", device.endpoint, clock)) as driver,
        pytest.raises(NotDoneError, match=says),
    ):
        driver.log(1, samples=100, period=1_000_000)
    clock.close()


def test_an_error_queued_instead_of_a_reply_is_raised(monkeypatch):
    monkeypatch.setattr(
        "lightrig.instruments.power_meters.keysight_n7745a._READING_TIMEOUT", 200 * MS
    )
    queue = [b'-616,"Not allowed while ongoing zeroing"\n']
    answers = told(None)
    asked = []

    def script(command: str) -> bytes | None:
        asked.append(command)
        if command == ":SYST:ERR?" and ":READ:POW:ALL?" in asked and queue:
            return queue.pop()
        return answers.get(command)

    clock = SystemClock()
    with (
        scripted_scpi(script) as device,
        contextlib.closing(KeysightN7745a("meter", device.endpoint, clock)) as driver,
        pytest.raises(DeniedError) as denied,
    ):
        driver.power([1])
    assert denied.value.code == "-616"
    assert "wait some seconds" in str(denied.value)
    clock.close()


@pytest.mark.parametrize(
    "layout", [b"#10\n", b"#13\x01\x00\x01\n", b"nothing\n", b"#16\x01\x00\x01\x00\x02\x00\n"]
)
def test_an_invalid_layout_is_an_error(layout):
    clock = SystemClock()
    with (
        scripted_scpi({":FETC:POW:ALL:CONF?": layout}.get) as device,
        contextlib.closing(KeysightN7745a("meter", device.endpoint, clock)) as driver,
        pytest.raises(GarbledError),
    ):
        driver.power([1])
    clock.close()


@pytest.mark.parametrize("identity", [b"Keysight\n", b",,,\n", b"\xff\xfe,\x00\n"])
def test_an_invalid_identity_is_an_error(identity):
    clock = SystemClock()
    with (
        scripted_scpi({"*IDN?": identity}.get) as device,
        contextlib.closing(KeysightN7745a("meter", device.endpoint, clock)) as driver,
        pytest.raises(GarbledError),
    ):
        driver.identity()
    clock.close()


# --------------------------------------------------------------------------------- numbers


class CannedReply(scpi_instrument.ScpiInstrument):
    """An instrument that replies with what it is given."""

    def __init__(self, text: str = "", data: bytes = b"") -> None:
        self.name, self._text, self._data = "meter", text, data

    def query(self, command, timeout=0):
        return self._text

    def query_block(self, command, timeout=0):
        return self._data

    def failed(self, kind, problem, command, *details):
        return kind(self.name, problem, command=command, details=details)


@given(st.text(max_size=20))
def test_a_text_is_a_number_or_an_error(text):
    try:
        value = CannedReply(text).query_number("?")
    except GarbledError:
        return
    assert math.isfinite(value) or "e" in text.lower()
    assert value == float(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_that_instruments_write_is_read(value):
    for text in (repr(value), f"{value:+.8E}"):
        assert CannedReply(text).query_number("?") == float(text)


@settings(max_examples=50)
@given(st.lists(st.floats(width=32, allow_nan=False), max_size=20))
def test_a_block_of_floats_is_read_as_it_was_written(values):
    data = struct.pack(f"<{len(values)}f", *values)
    assert CannedReply(data=data).query_floats("?", len(values)).tolist() == values
    with pytest.raises(InstrumentError):
        CannedReply(data=data).query_floats("?", len(values) + 1)


@given(st.binary(max_size=64), st.integers(0, 16))
def test_a_block_is_floats_or_an_error(data, count):
    try:
        values = CannedReply(data=data).query_floats("?", count)
    except GarbledError:
        return
    assert len(values) == count
    assert not np.isnan(values).any()
