"""Commands of other people's drivers, typed as they send them; each test names its source."""

import contextlib
import math
import socket
import struct

import pytest
from instrument_rig import MS

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.simulated.devices.simulated_keysight_n7745a import SimulatedKeysightN7745a
from lightrig.instruments.simulated.devices.simulated_keysight_n7764a import SimulatedKeysightN7764a
from lightrig.instruments.simulated.devices.simulated_keysight_n7776c import SimulatedKeysightN7776c
from lightrig.instruments.simulated.devices.simulated_thorlabs_pm100d import SimulatedThorlabsPm100d
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import load


def test_a_thorlabs_meter_has_status_registers_and_abort(in_real_time):
    """qcodes_contrib_drivers, Thorlab_PM100D: what it sends when it opens."""
    line = in_real_time(SimulatedThorlabsPm100d, kind="power_meter", channels=1).line()
    line.write("STAT:OPER:PTR 512")
    line.write("STAT:OPER:NTR 0")
    assert line.ask("STAT:OPER?") == "0"
    line.write("CONF:POW")
    assert line.ask("ABOR;:STAT:OPER?") == "0"
    line.write("INIT")
    assert line.ask("STAT:OPER:PTR?") == "512"
    assert float(line.ask("FETC?")) != 0
    assert float(line.ask("CORR?")) == 0
    assert line.error() == '+0,"No error"'


def test_a_thorlabs_average_count_is_an_integer(in_real_time):
    """InstrumentKit, PM100USB.averaging_count: `int(self.query("SENS:AVER:COUN?"))`."""
    line = in_real_time(SimulatedThorlabsPm100d, kind="power_meter", channels=1).line()
    line.write("SENS:AVER:COUN 10")
    assert int(line.ask("SENS:AVER:COUN?")) == 10
    assert int(line.ask("SENS:AVER:COUN? MAX")) == 10_000


def test_an_attenuators_unit_has_a_sign(in_real_time):
    """Driver of the N776xx family: its table of units has `+0` and `+1` only."""
    line = in_real_time(SimulatedKeysightN7764a, kind="attenuator", channels=4).line()
    for sent in ("+1", "+0"):
        line.write(f"OUTPut1:POWer:UNit {sent}")
        assert line.ask("OUTPut1:POWer:UNit?") == sent


def test_set_power_and_offset_of_an_attenuator_are_reported(in_real_time):
    """The same driver: power_setpoint and power_offset."""
    line = in_real_time(SimulatedKeysightN7764a, kind="attenuator", channels=4).line()
    line.write("OUTPut3:POWer -7.5")
    assert float(line.ask("OUTPut3:POWer?")) == pytest.approx(-7.5)
    line.write("OUTPut3:POWer:OFFSet 1.5dB")
    assert float(line.ask("OUTPut3:POWer:OFFSet?")) == pytest.approx(1.5)
    line.write("OUTPut3:POWer:UNit 1")
    assert float(line.ask("OUTPut3:POWer?")) == pytest.approx(1e-3 * 10**-0.75, rel=1e-6)
    assert line.error() == '+0,"No error"'


def test_controlled_power_follows_the_light_that_enters(in_real_time):
    rig = in_real_time(SimulatedKeysightN7764a, kind="attenuator", name="voa", channels=4)
    rig.shine(1, 1.0)
    line = rig.line()
    for command in ("OUTP1:STAT 1", "OUTP1:POW -15", "OUTP1:POW:CONTR 1"):
        line.write(command)
    assert line.ask("OUTP1:POW:CONTR?") == "1"
    for entering in (1.0, 4.0, 0.5):
        rig.shine(1, entering)
        rig.clock.sleep(200 * MS)
        assert 10 * math.log10(rig.leaving(1)) == pytest.approx(-15, abs=0.05)
    line.write("INP1:ATT 3")
    assert line.ask("OUTP1:POW:CONTR?") == "0"


def test_a_log_takes_one_sample_for_each_trigger(in_real_time):
    """LabExT, PowerMeterN7744A: logging with `TRIG1:INP SME`; triggers by INIT here."""
    rig = in_real_time(SimulatedKeysightN7745a, kind="power_meter", channels=4)
    line = rig.line()
    for command in (
        ":SENS1:POW:UNIT 1",
        ":SENS1:POW:RANG:AUTO 0",
        ":SENS1:POW:RANG 0DBM",
        ":TRIG1:INP SME",
        ":SENS1:FUNC:PAR:LOGG 3,1ms",
        ":INIT1:CONT 0",
        ":SENS1:FUNC:STAT LOGG,STAR",
    ):
        line.write(command)
    assert line.error() == '+0,"No error"'
    for milliwatt in (0.1, 0.2, 0.4):
        assert line.ask(":SENS1:FUNC:STAT?") == "LOGGING_STABILITY,PROGRESS"
        rig.shine(1, milliwatt)
        line.write(":INIT1:IMM")
        rig.clock.sleep(30 * MS)
    assert line.ask(":SENS1:FUNC:STAT?") == "LOGGING_STABILITY,COMPLETE"
    line.write(":SENS1:FUNC:RES?")
    block = line.read()
    watts = struct.unpack("<3f", block[2 + int(block[1:2]) :])
    assert watts == pytest.approx([1e-4, 2e-4, 4e-4], rel=0.05)


def test_a_multiport_meter_tells_its_options_and_heads(in_real_time):
    line = in_real_time(SimulatedKeysightN7745a, kind="power_meter", channels=4).line()
    assert line.ask("*OPT?").split(",") == ["N7744A"] * 4
    assert "N7744A" in line.ask("SLOT1:HEAD?")
    assert line.ask("TRIG:CONF?")


def test_a_logged_sweep_has_points_and_data(in_real_time):
    """PyMeasure, KeysightN7776C: sweep_points and get_wl_data."""
    line = in_real_time(
        SimulatedKeysightN7776c, kind="light_source", name="laser", channels=1
    ).line()
    assert int(line.ask("sour0:read:points? llog")) == 0
    for command in (
        "sour0:wav:swe:star 1550.000000nm",
        "sour0:wav:swe:stop 1551.000000nm",
        "sour0:wav:swe:step 0.100000nm",
        "sour0:wav:swe:speed 200.000000nm/s",
        "SOUR0:WAV:SWE:LLOG 1",
        "sour0:wav:swe 1",
    ):
        line.write(command)
    while int(line.ask("sour0:wav:swe?")):
        pass
    assert int(line.ask("sour0:read:points? llog")) == 11
    line.write("sour0:read:data? llog")
    block = line.read()
    wavelengths = struct.unpack("<11d", block[2 + int(block[1:2]) :])
    assert wavelengths[0] == pytest.approx(1550e-9)
    assert wavelengths[-1] == pytest.approx(1551e-9)


@contextlib.contextmanager
def dicon(folder):
    path = folder / "dicon.yaml"
    path.write_text(
        "name: dicon\nswitches:\n"
        '  ocs: {model: dicon-gp600, address: "scpi://ocs.invalid", size: 4x4}\n'
    )
    clock = SystemClock()
    world = SimulatedLab(load(path), clock, 1)
    try:
        service = world.services["ocs"]
        with socket.create_connection((service.host, service.port), timeout=30) as line:
            yield line
    finally:
        world.close()
        clock.close()


def test_a_dicon_matrix_tells_its_state_as_the_public_driver_prints_it(tmp_path):
    """autosweep, DiConGP600X1: constructor, print_state, wavelengths, automatic saving."""
    with dicon(tmp_path) as line:

        def query(text):
            line.sendall(text.encode() + b"\n")
            return line.recv(1000).decode().strip()

        assert [field.strip() for field in query("*IDN?").split(",")][1] == "GP600"
        assert query("SYST:ERR?") == "+0, No Error"
        assert query("SYST:CONF?") == "X1"
        assert query("X1 DIM?") == "4,4"
        assert query("VER?") == "7.0"
        wavelengths = [float(each) for each in query("X1 WAVESAVAIL?").split(",")]
        for nm in wavelengths:
            line.sendall(f"X1 W {nm}\n".encode())
            assert float(query("X1 W?")) == nm
        for state in (1, 0):
            line.sendall(f"WEN {state}\n".encode())
            assert int(query("WEN?")) == state
        line.sendall(b"X1 CH 2 3\n")
        assert query("X1 CH 2?") == "2,3"
        assert query("SYST:ERR?") == "+0, No Error"
