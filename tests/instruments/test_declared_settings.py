"""Settings that drivers declare: commands, conversion, verification, order of restoring."""

from typing import Any

import pytest

from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import DeniedError, NotDoneError
from lightrig.instruments.core.models import shipped_drivers, simulated_models
from lightrig.instruments.core.scpi_instrument import RestorableScpiInstrument, Setting


class Laser(RestorableScpiInstrument):
    """A source whose session is a dictionary of its settings."""

    schemes = ("scpi",)
    channels = range(1, 3)
    emission = Setting(bool, ":OUTP{channel}", "emission", gates_light=True)
    wavelength = Setting(
        float,
        ":SOUR{channel}:WAV",
        "wavelength",
        unit="nm",
        argument="{:.3f}NM",
        scale=1e9,
        tolerance=0.01,
        verified=True,
        advice="is it locked?",
    )
    lock = Setting(bool, ":LOCK", "lock", selector="'key'", written=("OFF", "ON"))

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__("laser", Endpoint("scpi", "laser.invalid"), clock)
        self.values: dict[str, str] = {}
        self.sent: list[str] = []

    def write(self, command: str, timeout: int = 0) -> Any:
        self.sent.append(command)
        node, _, value = command.partition(" ")
        self.values[node] = value.split(",")[-1].replace("NM", "E-9")

    def query(self, command: str, timeout: int = 0) -> str:
        return self.values[command.partition("?")[0]]


@pytest.fixture
def laser():
    clock = VirtualClock()
    made = Laser(clock)
    made.values = {":OUTP1": "0", ":OUTP2": "1", ":LOCK": "0"}
    made.values |= {":SOUR1:WAV": "1550E-9", ":SOUR2:WAV": "1560E-9"}
    yield made
    made.close()
    clock.close()


def test_a_value_is_written_and_read_in_its_unit(laser):
    laser.wavelength.set(1530.25, 2)
    assert laser.sent == [":SOUR2:WAV 1530.250NM"]
    assert laser.wavelength.get(2) == pytest.approx(1530.25)


def test_a_selector_is_the_first_argument_of_the_command(laser):
    laser.lock.set(True)
    assert laser.sent == [":LOCK 'key',ON"]


def test_a_value_that_reads_back_differently_is_an_error(laser):
    laser.write = lambda command, timeout: None
    with pytest.raises(NotDoneError, match=r"accepted 1530 nm .* reports 1550 nm[^$]*locked"):
        laser.wavelength.set(1530.0, 1)


def test_a_channel_that_does_not_exist_is_refused_before_anything_is_sent(laser):
    with pytest.raises(DeniedError, match="no channel 3; there are 1 to 2"):
        laser.wavelength.set(1530.0, 3)
    assert laser.sent == []


def test_light_is_switched_off_first_and_on_last(laser):
    restore = laser.snapshot([1, 2])
    laser.emission.set(True, 1)
    laser.emission.set(False, 2)
    laser.wavelength.set(1530.0, 1)
    laser.wavelength.set(1530.0, 2)
    laser.sent.clear()
    restore()
    assert laser.sent == [
        ":OUTP1 0",
        ":SOUR1:WAV 1550.000NM",
        ":SOUR2:WAV 1560.000NM",
        ":OUTP2 1",
    ]


def test_a_setting_within_its_tolerance_is_not_sent_again(laser):
    restore = laser.snapshot([1])
    laser.values[":SOUR1:WAV"] = "1550.005E-9"
    restore()
    assert laser.sent == []


def test_every_driver_in_the_checkout_has_a_simulated_device():
    assert shipped_drivers().keys() <= simulated_models().keys()
