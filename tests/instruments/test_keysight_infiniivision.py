"""A simulated InfiniiVision oscilloscope as a fast logger of light, and one that lies."""

import contextlib
import struct

import numpy as np
import pytest
from instrument_rig import MS, Line, Rig
from scripted_scpi import scripted_scpi

from lightrig.harness.measure.edges import edges
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.capabilities import FastLog
from lightrig.instruments.core.detected_power import OverRangeError
from lightrig.instruments.core.errors import CANNOT, DeniedError, GarbledError, NotDoneError
from lightrig.instruments.oscilloscopes.keysight_infiniivision import KeysightInfiniivision
from lightrig.instruments.simulated.devices.simulated_keysight_infiniivision import (
    SimulatedKeysightInfiniivision,
)
from lightrig.testbeds import Port

US = 1000
STATED = {"kind": "power_meter", "name": "scope", "channels": 4}


def scope_lit(scope: Rig) -> int:
    """Time when light came to the first channel."""
    return scope.field.trace(Port("scope", "1")).settled


@pytest.fixture
def scope(in_virtual_time) -> Rig:
    return in_virtual_time(SimulatedKeysightInfiniivision, **STATED, options={"volts_per_mw": 0.5})


@pytest.fixture
def driver(scope) -> KeysightInfiniivision:
    return scope.driver(KeysightInfiniivision, volts_per_mw=0.5)


@pytest.fixture
def line(in_real_time) -> Line:
    return in_real_time(SimulatedKeysightInfiniivision, **STATED).line()


def test_identity_and_fast_log(driver):
    identity = driver.identity()
    assert (identity.model, identity.simulated) == ("DSO-X 3034T", True)
    assert isinstance(driver, FastLog)


def test_a_dark_interval_is_known_to_ten_nanoseconds(scope, driver):
    scope.shine(1, 1.0)
    pending = driver.log_together([1, 3], samples=100_000, period=10)
    now = scope.clock.now()
    scope.clock.schedule(now + 100_123, "a", lambda: scope.shine(1, 0.0))
    scope.clock.schedule(now + 167_890, "b", lambda: scope.shine(3, 0.7))
    logs = pending.result()
    (gone,), (back,) = edges(logs[1]), edges(logs[3])
    dark = back.at.since(gone.at)
    assert dark.earliest <= 67_767 <= dark.latest
    assert abs(sum(dark) / 2 - 67_767) <= 10
    at = gone.on_clock(logs[1])
    assert at.earliest <= now + 100_123 <= at.latest


def test_power_is_what_the_photodiode_makes_of_light(scope, driver):
    scope.shine(2, 1.5)
    log = driver.log(2, samples=10_000, period=US).result()
    assert np.mean(log.milliwatt) == pytest.approx(1.5, rel=0.01)
    truth = scope.truth.first("scope", "trigger", up=True, since=0)
    assert log.start.earliest <= truth.earliest <= log.start.latest
    assert log.start.latest - log.start.earliest < MS
    again = driver.log(4, samples=1000, period=US).result()
    assert np.max(np.abs(again.milliwatt)) < 0.05


def test_the_record_includes_samples_before_the_trigger(scope, driver):
    do = driver.write
    for command in (":TIM:RANG 2MS", ":TIM:POS 0", ":WAV:POIN 1000", ":WAV:FORM ASC", ":SING"):
        do(command)
    scope.clock.sleep(2 * MS)
    scope.shine(1, 1.0)
    scope.clock.sleep(MS // 2)
    do(":TRIG:FORC")
    scope.clock.sleep(3 * MS)
    text = driver.query_block(":WAV:DATA?").decode()
    volts = np.array([float(value) for value in text.split(",")])
    rise = int(np.argmax(volts > 0.25)) * 2 * US
    shape = [float(field) for field in driver.query(":WAV:PRE?").split(",")]
    trigger = scope.truth.first("scope", "trigger", up=True, since=0).earliest
    assert shape[5] == pytest.approx(-1e-3)
    assert rise == pytest.approx(MS - (trigger - scope_lit(scope)), abs=2 * US)


def test_a_level_beyond_the_screen_is_an_error_and_no_number(scope, driver):
    scope.shine(1, 5.0)
    with pytest.raises(OverRangeError, match=r"in 1,000 of 1,000 samples"):
        driver.log(1, samples=1000, period=US).result()


@pytest.mark.parametrize(("samples", "period"), [(1234, US), (999_999, 10)])
def test_a_record_that_it_does_not_have_is_refused(driver, samples, period):
    with pytest.raises(DeniedError, match="are none of its records") as denied:
        driver.log(1, samples=samples, period=period).result()
    assert denied.value.code == CANNOT


@pytest.mark.parametrize(("samples", "period"), [(10, US), (5_000_000, US), (1000, 10**12)])
def test_an_unsupported_setting_is_denied(driver, samples, period):
    with pytest.raises(DeniedError) as denied:
        driver.log(1, samples=samples, period=period)
    assert denied.value.code == "-222"


def test_typed_by_hand(line):
    line.write(":CHAN2:RANG 4;OFFS 1;:TIM:RANG 1MS;POS 500US;:ACQ:TYPE HRES;:WAV:POIN 100")
    assert line.ask(":OPER:COND?") == "+0"
    assert line.ask(":WAV:PRE?").split(",")[2] == "+0"
    assert line.error() == '-230,"Data corrupt or stale"'
    line.write(":SINGLE")
    assert line.ask(":OPERegister:CONDition?") == "+8"
    line.write(":TRIGger:FORCe;:WAV:SOUR CHANnel2;:WAV:FORM WORD;:WAV:BYT LSBF")
    while line.ask(":OPER:COND?") != "+0":
        pass
    preamble = [float(field) for field in line.ask(":WAV:PRE?").split(",")]
    assert preamble == pytest.approx([1, 3, 100, 1, 1e-5, 0.0, 0, 4 / 65536, 1.0, 32768])
    line.write(":WAV:DATA?")
    block = line.read()
    assert block.startswith(b"#3200")
    codes = struct.unpack("<100H", block[5:])
    assert np.mean(codes) == pytest.approx(32768 - 65536 / 4, abs=200)
    line.write(":WAV:FORM BYTE;:WAV:DATA?")
    assert line.read().startswith(b"#3100")
    assert line.try_out(":CHAN7:RANG 1").startswith("-114")


WELL = {
    ":OPER:COND?": b"+0\n",
    ":CHAN1:COUP?": b"DC\n",
    ":ACQ:TYPE?": b"HRES\n",
    ":WAV:PRE?": b"+1,+3,+100,+1,+1.0E-06,+0.0E+00,+0,+1.0E-04,+0.0E+00,+32768\n",
    ":WAV:DATA?": b"#3200" + struct.pack("<100H", *[40000] * 100) + b"\n",
}


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        ({":WAV:PRE?": b"+1,+3,+100\n"}, GarbledError),
        ({":CHAN1:COUP?": b"AC\n"}, NotDoneError),
        ({":ACQ:TYPE?": b"NORM\n"}, NotDoneError),
        ({":WAV:PRE?": WELL[":WAV:PRE?"].replace(b"+0.0E+00", b"soon")}, GarbledError),
        ({":WAV:PRE?": WELL[":WAV:PRE?"].replace(b"1.0E-06", b"1.1E-06")}, DeniedError),
        ({":WAV:DATA?": b"#3100" + b"a" * 100 + b"\n"}, GarbledError),
        ({":WAV:DATA?": b"#3200" + b"\0" * 200 + b"\n"}, GarbledError),
        ({":WAV:DATA?": b"#3200" + b"\xff" * 200 + b"\n"}, OverRangeError),
        ({":OPER:COND?": b"+8\n"}, NotDoneError),
        ({":OPER:COND?": b"busy\n"}, GarbledError),
    ],
)
def test_an_invalid_reply_of_the_oscilloscope_is_an_error(lie, error, monkeypatch):
    monkeypatch.setattr(
        "lightrig.instruments.oscilloscopes.keysight_infiniivision._RECORD_TIMEOUT", 20 * MS
    )
    clock = SystemClock()
    with (
        scripted_scpi({**WELL, **lie}.get) as device,
        contextlib.closing(KeysightInfiniivision("scope", device.endpoint, clock)) as driver,
        pytest.raises(error, match="scope"),
    ):
        driver.log(1, samples=100, period=US).result()
    clock.close()


def test_in_real_time_too(in_real_time):
    scope = in_real_time(SimulatedKeysightInfiniivision, **STATED)
    driver = scope.driver(KeysightInfiniivision)
    scope.shine(1, 1.0)
    assert np.mean(driver.log(1, samples=10_000, period=US).result().milliwatt) == pytest.approx(
        1.0, rel=0.01
    )
