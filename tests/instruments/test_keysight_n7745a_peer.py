"""The simulated N7745A says what the programming guide says, typed at it by hand."""

import struct

import numpy as np
import pytest
from instrument_rig import MS, Line, Rig

from lightrig.instruments.simulated.devices.simulated_keysight_n7745a import SimulatedKeysightN7745a

FLOOR_NOISE_W = 1e-9


@pytest.fixture
def meter(in_real_time) -> Rig:
    return in_real_time(SimulatedKeysightN7745a, kind="power_meter")


@pytest.fixture
def line(meter) -> Line:
    return meter.line()


def floats(block: bytes) -> tuple[float, ...]:
    digits = int(block[1:2])
    data = block[2 + digits :]
    assert len(data) == int(block[2 : 2 + digits])
    return struct.unpack(f"<{len(data) // 4}f", data)


def wait_for_log(line: Line, channel: int) -> None:
    while line.ask(f":SENS{channel}:FUNC:STAT?") != "LOGGING_STABILITY,COMPLETE":
        pass


def test_identity(line, in_real_time):
    assert line.ask("*IDN?") == "Keysight Technologies,N7745A,SIM-meter,V1.18"
    four = in_real_time(SimulatedKeysightN7745a, kind="power_meter", name="small", channels=4)
    assert four.line().ask("*idn?") == "Keysight Technologies,N7744A,SIM-small,V1.18"


def test_power_on_state_is_that_of_the_guide(line):
    assert line.ask(":SENS1:POW:ATIM?") == "+2.00000000E-001"
    assert line.ask("sense8:channel1:power:unit?") == "+0"
    assert line.ask(":sens2:pow:range:auto?;:init2:cont?;:trig2:inp?") == "1;1;IGN"
    assert line.ask(":SENS1:FUNC:STAT?") == "NONE,PROGRESS"
    assert line.error() == '+0,"No error"'


@pytest.mark.parametrize("text", ["1550nm", "1.55UM", "+1.55000000E-006", "1550000 PM"])
def test_a_wavelength_is_set_in_any_unit_and_read_in_metres(line, text):
    assert line.try_out(f":SENS3:POW:WAV {text}") == '+0,"No error"'
    assert line.ask(":SENS3:POW:WAV?") == "+1.55000000E-006"
    assert line.ask(":SENS3:POW:WAV? MIN;WAV? MAX;WAV? DEF") == (
        "+1.25000000E-006;+1.65000000E-006;+1.55000000E-006"
    )


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (":SENS1:POW:WAV 1800NM", '-222,"Data out of range (StatParmTooLarge)"'),
        (":SENS1:POW:WAV 700NM", '-222,"Data out of range (StatParmTooSmall)"'),
        (":SENS1:POW:WAV 1550 FURLONG", '-131,"Invalid suffix"'),
        (":SENS1:POW:WAV red", '-121,"Invalid character in number"'),
        (":SENS1:POW:WAV", '-109,"Missing parameter"'),
        (":SENS9:POW:WAV 1550NM", '-303,"Module slot empty or slot / channel invalid"'),
        (":SENS1:POW:COLOUR 1", '-113,"Undefined header"'),
        (":SENS1:FUNC:PAR:LOGG 1000001,1US", '-222,"Data out of range (StatParmTooLarge)"'),
        (":SENS1:FUNC:PAR:LOGG 10,100NS", '-222,"Data out of range (StatParmTooSmall)"'),
        (":SENS1:FUNC:STAT LOGG,NOW", '-224,"Illegal parameter value"'),
        (":TRIG1:INP SOON", '-224,"Illegal parameter value"'),
        (":INIT1:IMM", '-213,"Init ignored"'),
    ],
)
def test_unknown_commands_are_in_the_error_queue(line, command, error):
    assert line.try_out(command) == error
    assert line.error() == '+0,"No error"'


def test_the_error_queue_holds_thirty_entries_and_reports_overflow(line):
    for _ in range(33):
        line.write("wav:pow")
    errors = [line.error() for _ in range(31)]
    assert errors[:29] == ['-113,"Undefined header"'] * 29
    assert errors[29:] == ['-350,"Queue overflow"', '+0,"No error"']


def test_a_reading_takes_its_averaging_time_and_has_the_unit_that_is_set(meter, line):
    meter.shine(2, 0.5)
    line.write(":INIT2:CONT 0;:SENS2:POW:ATIM 20MS;:SENS2:POW:UNIT W")
    before = meter.clock.now()
    watt = float(line.ask(":READ2:POW?"))
    assert meter.clock.now() - before >= 20 * MS
    assert watt == pytest.approx(0.5e-3, rel=0.05)
    assert line.ask(":FETC2:POW?") == line.ask(":FETC2:POW?")
    line.write(":SENS2:POW:UNIT DBM")
    assert float(line.ask(":READ2:POW?")) == pytest.approx(-3.01, abs=0.3)


def test_negative_power_has_no_logarithm(meter, line):
    line.write(":INIT1:CONT 0;:SENS1:POW:ATIM 1MS;:SENS1:POW:UNIT DBM;:SENS1:CORR:COLL:ZERO?")
    assert line.read() == b"0"
    shown = [float(line.ask(":READ1:POW?")) for _ in range(30)]
    errors = {line.error() for _ in range(30)}
    assert any(value > 1e20 for value in shown)
    assert '-261,"Math error in expression (StatUnitCalculationError)"' in errors


def test_all_ports_are_read_in_one_trigger_in_watt_and_intels_byte_order(meter, line):
    for n in range(1, 9):
        meter.shine(n, 0.01 * n)
        line.write(f":INIT{n}:CONT 0;:SENS{n}:POW:ATIM 1MS")
    line.write(":FETC:POW:ALL:CONF?")
    assert line.read() == b"#232" + b"".join(struct.pack("<HH", n, 1) for n in range(1, 9))
    line.write(":READ:POW:ALL?")
    assert floats(line.read()) == pytest.approx([1e-5 * n for n in range(1, 9)], rel=0.05)
    csv = line.ask(":FETC:POW:ALL:CSV?").split(",")
    assert len(csv) == 8
    assert csv[0].endswith("E-006") or csv[0].endswith("E-005")


def test_a_fixed_range_that_is_too_low_shows_no_power(meter, line):
    meter.shine(1, 0.5)
    line.write(":INIT1:CONT 0;:SENS1:POW:ATIM 1MS;UNIT W;RANG -18DBM;RANG:AUTO 0")
    assert line.ask(":SENS1:POW:RANG?") == "-2.00000000E+001"
    assert float(line.ask(":READ1:POW?")) > 1e20
    assert line.error() == '-231,"Data questionable (StatRangeTooLow)"'


def test_an_unfinished_average_is_questionable(line):
    line.write(":SENS1:POW:ATIM 10S")
    line.ask(":FETC1:POW?")
    assert line.error() == '-231,"Data questionable (StatValNYetAcc)"'


def test_while_a_log_runs_its_channel_refuses_readings(line):
    line.write(":SENS4:FUNC:PAR:LOGG 64,10S")
    assert line.try_out(":SENS4:FUNC:STAT LOGG,STAR") == '+0,"No error"'
    assert line.ask(":SENS4:FUNC:STAT?") == "LOGGING_STABILITY,PROGRESS"
    assert line.try_out(":SENS4:FUNC:PAR:LOGG 1,1ms").startswith('-284,"Function currently running')
    assert line.try_out(":READ4:POW?").startswith("-284")


def test_a_log_is_a_block_of_floats(meter, line):
    meter.shine(4, 1.0)
    line.write(":SENS4:POW:UNIT 1;:SENS4:POW:RANG:AUTO 0;:SENS4:POW:RANG 10DBM")
    line.write(":SENS4:FUNC:PAR:LOGG 64,5ms")
    assert line.ask(":SENS4:FUNC:PAR:LOGG?") == "+64,+5.00000000E-003"
    assert line.try_out(":SENS4:FUNC:STAT LOGG,STAR") == '+0,"No error"'
    wait_for_log(line, 4)
    assert line.try_out(":SENS4:FUNC:PAR:LOGG 1,1ms").startswith('-200,"Execution error')
    assert line.try_out(":FETC4:POW?").startswith('-205,"Powermeter not running')
    line.write(":SENS4:FUNC:RES?")
    samples = floats(line.read())
    assert len(samples) == 64
    assert np.mean(samples) == pytest.approx(1e-3, rel=0.05)
    line.write(":SENS4:FUNC:STAT LOGG,STOP")
    assert line.ask(":SENS4:FUNC:STAT?") == "NONE,PROGRESS"
    assert line.try_out(":SENS4:FUNC:RES?").startswith('-286,"No function currently running"')


def test_a_changed_setting_ends_a_log(line):
    line.write(":SENS1:FUNC:PAR:LOGG 1000,1ms;:SENS1:FUNC:STAT LOGG,STAR")
    assert line.ask(":SENS1:FUNC:STAT?") == "LOGGING_STABILITY,PROGRESS"
    line.write(":SENS1:POW:WAV 1310NM")
    assert line.ask(":SENS1:FUNC:STAT?") == "NONE,PROGRESS"


def test_one_trigger_begins_all_armed_logs(meter, line):
    for n in (1, 5):
        line.write(f":INIT{n}:CONT 0;:TRIG{n}:INP CME;:SENS{n}:FUNC:PAR:LOGG 10,1ms")
        line.write(f":SENS{n}:FUNC:STAT LOGG,STAR")
    assert meter.truth.first("meter.1", "log", up=True, since=0) is None
    assert line.ask(":SENS5:FUNC:STAT?") == "LOGGING_STABILITY,PROGRESS"
    assert line.try_out(":INIT1:IMM") == '+0,"No error"'
    first, fifth = (meter.truth.first(f"meter.{n}", "log", up=True, since=0) for n in (1, 5))
    assert first == fifth is not None


def test_noise_of_a_log_falls_with_its_sample_time(meter, line):
    line.write(":SENS1:POW:UNIT 1;:SENS1:POW:RANG:AUTO 0;:SENS1:POW:RANG -30DBM")
    spread = {}
    for period in (1, 100):
        line.write(f":SENS1:FUNC:PAR:LOGG 2000,{period}US;:SENS1:FUNC:STAT LOGG,STAR")
        wait_for_log(line, 1)
        line.write(":SENS1:FUNC:RES?")
        spread[period] = np.std(floats(line.read()))
        line.write(":SENS1:FUNC:STAT LOGG,STOP")
    assert spread[1] / spread[100] == pytest.approx(10, rel=0.15)
