"""Clients that nobody here wrote work against the simulated instruments."""

import contextlib
import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from instrument_rig import Rig

from lightrig.instruments.simulated.devices.simulated_keysight_infiniivision import (
    SimulatedKeysightInfiniivision,
)
from lightrig.instruments.simulated.devices.simulated_keysight_n7776c import SimulatedKeysightN7776c
from lightrig.instruments.simulated.devices.simulated_thorlabs_pm100d import SimulatedThorlabsPm100d

pytestmark = pytest.mark.filterwarnings("ignore:It is not known whether:FutureWarning")

Opened = Callable[..., Any]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens PyMeasure's drivers through PyVISA's pure-Python backend."""
    import pyvisa
    from pymeasure.adapters import VISAAdapter

    with contextlib.ExitStack() as stack:

        def open_driver(kind: Any, rig: Rig, wire: str = "socket") -> Any:
            resource = f"TCPIP::{rig.host}::{rig.port}::SOCKET"
            if wire == "serial":
                resource = f"ASRL{rig.serial().resource}::INSTR"
            adapter = VISAAdapter(
                resource, visa_library="@py", read_termination="\n", write_termination="\n"
            )
            stack.callback(adapter.close)
            return kind(adapter)

        yield open_driver
    pyvisa.ResourceManager("@py").close()


@pytest.mark.parametrize("wire", ["socket", "serial"])
def test_pymeasures_thorlabs_meter(in_real_time, opened, wire):
    from pymeasure.instruments.thorlabs import ThorlabsPM100USB

    rig = in_real_time(SimulatedThorlabsPm100d, kind="power_meter", channels=1)
    meter = opened(ThorlabsPM100USB, rig, wire)
    assert meter.sensor_name == "S154C"
    assert meter.is_power_sensor
    assert meter.wavelength_settable
    assert not meter.is_energy_sensor
    assert (meter.wavelength_min, meter.wavelength_max) == (800.0, 1700.0)
    meter.wavelength = 1310
    assert meter.wavelength == 1310.0
    meter.wavelength = 400
    assert meter.wavelength == 800.0
    rig.shine(1, 0.5)
    assert meter.power == pytest.approx(0.5e-3, rel=0.1)
    with pytest.raises(AttributeError, match="not an energy sensor"):
        _ = meter.energy


def test_pymeasures_thorlabs_meter_without_a_sensor(in_real_time, opened):
    from pymeasure.instruments.thorlabs import ThorlabsPM100USB

    rig = in_real_time(
        SimulatedThorlabsPm100d, kind="power_meter", channels=1, options={"sensor": False}
    )
    with pytest.raises(OSError, match="No sensor connected"):
        opened(ThorlabsPM100USB, rig)


def test_pymeasures_keysight_laser(in_real_time, opened):
    from pymeasure.instruments.keysight.keysightN7776C import KeysightN7776C

    rig = in_real_time(SimulatedKeysightN7776c, kind="light_source", name="laser", channels=1)
    laser = opened(KeysightN7776C, rig)
    assert not laser.output_enabled
    laser.output_power_mW = 2.0
    assert laser.output_power_mW == pytest.approx(2.0)
    laser.output_power_dBm = 1.5
    assert laser.output_power_dBm == pytest.approx(1.5)
    laser.wavelength = 1523.25
    assert laser.wavelength == pytest.approx(1523.25)
    laser.output_enabled = True
    assert laser.output_enabled
    assert 10 * math.log10(rig.leaving(1)) == pytest.approx(1.5, abs=0.3)
    laser.locked = True
    assert laser.locked
    assert rig.leaving(1) == 0.0
    assert not laser.output_enabled
    laser.locked = False


def test_pymeasures_keysight_laser_sweeps(in_real_time, opened):
    from pymeasure.instruments.keysight.keysightN7776C import KeysightN7776C

    rig = in_real_time(SimulatedKeysightN7776c, kind="light_source", name="laser", channels=1)
    laser = opened(KeysightN7776C, rig)
    laser.sweep_wl_start, laser.sweep_wl_stop = 1550.0, 1560.0
    laser.sweep_step, laser.sweep_speed = 0.01, 200
    laser.sweep_mode, laser.sweep_twoway, laser.wl_logging = "CONT", False, False
    laser.trigger_in, laser.trigger_out = "IGN", "STF"
    assert (laser.sweep_wl_start, laser.sweep_wl_stop) == pytest.approx((1550.0, 1560.0))
    assert (laser.sweep_step, laser.sweep_speed) == pytest.approx((0.01, 200))
    assert (laser.sweep_mode, laser.sweep_twoway, laser.wl_logging) == ("CONT", False, False)
    assert (laser.trigger_in, laser.trigger_out) == ("IGN", "STF")
    assert laser.valid_sweep_params()
    laser.sweep_wl_stop = 1540.0
    assert not laser.valid_sweep_params()
    laser.sweep_wl_stop = 1560.0
    laser.sweep_state = 1
    assert laser.sweep_state == 1
    while laser.sweep_state == 1:
        pass
    assert laser.wavelength == pytest.approx(1560.0)


def test_pymeasures_keysight_oscilloscope(in_real_time, opened):
    from pymeasure.instruments.keysight import KeysightDSOX1102G

    rig = in_real_time(SimulatedKeysightInfiniivision, kind="power_meter", name="scope", channels=4)
    scope = opened(KeysightDSOX1102G, rig)
    scope.timebase_mode, scope.timebase_range, scope.timebase_offset = "main", 1e-3, 5e-4
    assert (scope.timebase_mode, scope.timebase_range) == ("main", pytest.approx(1e-3))
    scope.acquisition_type = "hresolution"
    assert scope.acquisition_type == "hresolution"
    scope.ch1.setup(coupling="dc", display=True, vertical_range=4.0, offset=1.0)
    assert (scope.ch1.coupling, scope.ch1.display) == ("dc", True)
    assert (scope.ch1.range, scope.ch1.offset) == pytest.approx((4.0, 1.0))
    rig.shine(1, 1.5)
    scope.digitize("channel1")
    while int(scope.ask(":OPER:COND?")):
        pass
    volts, preamble = scope.download_data("channel1", points=1000)
    assert (preamble["points"], len(volts)) == (1000, 1000)
    assert preamble["xincrement"] == pytest.approx(1e-6)
    assert volts.mean() == pytest.approx(1.5, abs=0.05)


def pixels(picture: bytes) -> Any:
    """Return what Matplotlib reads, which is not loaded while tests are collected."""
    import matplotlib.image

    return matplotlib.image.imread(io.BytesIO(picture))


def test_pymeasures_oscilloscope_downloads_its_screen(in_real_time, opened):
    """The trace is where scale and offset place it: 0.5 V above the middle of 4 V, row 180."""
    from pymeasure.instruments.keysight import KeysightDSOX1102G

    rig = in_real_time(SimulatedKeysightInfiniivision, kind="power_meter", name="scope", channels=4)
    scope = opened(KeysightDSOX1102G, rig)
    scope.adapter.connection.timeout = 300  # ms; a picture is read until nothing more comes
    scope.ch1.range, scope.ch1.offset = 4.0, 1.0
    for number in (2, 3, 4):
        scope.write(f":CHAN{number}:DISP OFF")
    dark = pixels(scope.download_image())
    assert (dark.shape, dark.max()) == ((480, 640), 0)
    rig.shine(1, 1.5)
    scope.digitize("channel1")
    while int(scope.ask(":OPER:COND?")):
        pass
    image = pixels(scope.download_image("png", "grayscale"))
    rows, columns = image.nonzero()
    assert set(columns) == set(range(640))
    assert rows.mean() == pytest.approx(180, abs=5)
    assert rows.std() < 20


def test_pymeasures_oscilloscope_reads_its_settings(in_real_time, opened):
    """Scales for each division; all settings of a channel and of the time base; a stored setup."""
    from pymeasure.instruments.keysight import KeysightDSOX1102G

    rig = in_real_time(SimulatedKeysightInfiniivision, kind="power_meter", name="scope", channels=4)
    scope = opened(KeysightDSOX1102G, rig)
    scope.timebase_scale = 2e-5
    assert (scope.timebase_range, scope.timebase_scale) == pytest.approx((2e-4, 2e-5))
    assert scope.timebase == {"MODE": "MAIN", "REF": "CENT", "MAIN:RANG": 2e-4, "POS": 0.0}
    scope.ch1.setup(coupling="ac", bwlimit=True, label="lane0", offset=0.25, scale=0.3)
    assert (scope.ch1.range, scope.ch1.scale) == pytest.approx((2.4, 0.3))
    found = scope.ch1.current_configuration
    assert found.pop("LAB") == '"lane0"'
    assert found == {
        "CHAN": 1,
        "RANG": pytest.approx(2.4),
        "OFFS": 0.25,
        "COUP": "AC",
        "IMP": "ONEM",
        "DISP": True,
        "BWL": True,
        "INV": False,
        "UNIT": "VOLT",
        "PROB": 1.0,
        "PROB:SKEW": 0.0,
        "STYP": "SING",
    }
    setup = scope.system_setup
    scope.default_setup()
    assert scope.ch1.scale == pytest.approx(1.0)
    scope.system_setup = setup
    assert (scope.ch1.scale, scope.timebase_scale) == pytest.approx((0.3, 2e-5))
    scope.system_setup = "#15zzzzz"
    assert scope.ask(":SYST:ERR?").startswith("-161")


def test_a_query_of_no_record_is_answered_beside_its_error(in_real_time, opened):
    from pymeasure.instruments.keysight import KeysightDSOX1102G

    rig = in_real_time(SimulatedKeysightInfiniivision, kind="power_meter", name="scope", channels=4)
    scope = opened(KeysightDSOX1102G, rig)
    assert scope.waveform_preamble["points"] == 0
    assert scope.ask(":WAV:DATA?") == "#10"
    for _ in range(2):
        assert scope.ask(":SYST:ERR?").startswith("-230")
