"""Simulated Thorlabs PM5020 power meter with two photodiode sensors.

Written from Thorlabs' command reference of the PM5020 (Light_Analysis_Examples, commandDocu).
Chosen: what it answers for a channel that does not exist, without a sensor, and to zeroing with
light on the sensor; how long zeroing takes.
"""

from lightrig.instruments.simulated.devices.simulated_thorlabs_pm100d import (
    GREATEST_W,
    NANOMETRES,
    POWERS,
    PhotodiodeInput,
)
from lightrig.instruments.simulated.protocols.commands import Constant, Ignored, command
from lightrig.instruments.simulated.protocols.scpi_device import DelayedReply, ScpiDevice
from lightrig.instruments.simulated.protocols.scpi_status import StatusSubsystem
from lightrig.instruments.simulated.protocols.scpi_values import (
    DECIBELS,
    Choice,
    Flag,
    Number,
    ScpiError,
)
from lightrig.instruments.simulated.registry import DeviceContext

_LOWEST_RANGE_W = 10e-9
_NO_SUCH_CHANNEL = (-114, "Header suffix out of range")


class SensorInput(PhotodiodeInput):
    """One of the console's two inputs."""

    sample = 1_000_000
    flags = 0b101
    """Automatic ranges, and wavelength settable: the mask of newer consoles, without bit 31."""

    wavelength = Number(
        "SENSe#:CORRection:WAVelength",
        default=1550.0,
        minimum=800.0,
        maximum=1700.0,
        units=NANOMETRES,
    )
    loss = Number(
        "SENSe#:CORRection[:LOSS][:INPut][:MAGNitude]",
        default=0.0,
        minimum=-60.0,
        maximum=60.0,
        units=DECIBELS,
    )
    count = Number("SENSe#:AVERage[:COUNt]", default=1, minimum=1, maximum=10_000)
    range = Number(
        "SENSe#:POWer[:DC]:RANGe[:UPPer]",
        default=GREATEST_W,
        minimum=_LOWEST_RANGE_W,
        maximum=GREATEST_W,
        units=POWERS,
    )
    automatic = Flag("SENSe#:POWer[:DC]:RANGe:AUTO", default=True)
    unit = Choice("SENSe#:POWer[:DC]:UNIT", default="W", names=("W", "DBM"))

    @command("SYSTem:SENSor#:IDN?")
    def _query_sensor(self) -> str:
        return self.sensor if self.has_sensor else "no sensor"

    @command("SENSe#:CORRection:COLLect:ZERO[:INITiate]")
    def _begin_zeroing(self) -> None:
        self.zero()

    @command("SENSe#:CORRection:COLLect:ZERO:STATe?")
    def _query_zeroing(self) -> str:
        return str(int(self.zeroing))

    _ignore = Ignored("CONFigure#[:SCALar][:POWer]", "ABORt#")
    """Power is all that this sensor measures; a measurement ends before a command is read."""

    _query_configuration = Constant("CONFigure#?", reply="POW")

    @command("MEASure#[:SCALar][:POWer]?", "READ#?")
    def _read(self) -> DelayedReply:
        return self.begin_reading()

    @command("INITiate#[:IMMediate]")
    def _trigger(self) -> DelayedReply:
        reading = self.begin_reading()

        def finish() -> None:
            reading.finish()

        return DelayedReply(reading.after, finish)

    @command("FETCh#?")
    def _fetch(self) -> str:
        return self.fetch()


class SimulatedThorlabsPm5020(StatusSubsystem, ScpiDevice):
    """The console; its option `sensor: false` leaves both sensors unplugged."""

    channel_type = SensorInput

    def __init__(self, context: DeviceContext) -> None:
        super().__init__(
            context.spec.name, context.clock, f"Thorlabs,PM5020,{context.serial},1.2.0"
        )
        self.inputs = (SensorInput(), SensorInput())
        for number, each in enumerate(self.inputs, start=1):
            each.plug(context, number, self.errors)

    def channel(self, suffixes: tuple[int, ...]) -> SensorInput:
        """Return the input of a number; raise `ScpiError`."""
        if not 1 <= suffixes[0] <= len(self.inputs):
            raise ScpiError(*_NO_SUCH_CHANNEL)
        return self.inputs[suffixes[0] - 1]

    def reset(self) -> None:
        """Set all parameters of both inputs to their defaults and discard the readings."""
        super().reset()
        for each in self.inputs:
            each.reset_parameters()
            each.last = None
