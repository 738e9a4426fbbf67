"""Simulated Acme PM4; written from its manual, never from the driver."""

from lightrig.devices import (
    METRES,
    SECONDS,
    DelayedReply,
    Detector,
    DeviceContext,
    Number,
    Photodiode,
    ScpiDevice,
    ScpiError,
    ScpiNode,
    command,
)

ZEROING = 2_000_000_000
"""Time to take a dark offset, in ns."""
GREATEST_W = 10e-3
"""End of the range."""


class Sensor(ScpiNode):
    """One channel: its parameters, and the photodiode that its light falls on."""

    wavelength = Number(
        "SENSe#:POWer:WAVelength", default=1550e-9, minimum=800e-9, maximum=1700e-9, units=METRES
    )
    averaging = Number("SENSe#:POWer:ATIMe", default=0.1, minimum=1e-4, maximum=10, units=SECONDS)

    def __init__(self, context: DeviceContext, number: int) -> None:
        super().__init__()
        self._clock = context.clock
        self._light = context.light
        self._number = number
        name = f"{context.spec.name}.{number}"  # its random draws depend on it
        self._detector = Detector(name, context.chance, Photodiode())
        context.light.on_arrival(number, self._lit)

    def _lit(self, at: int) -> None:
        self._detector.lit(at, self._light.level(self._number))

    @command("SENSe#:CORRection:ZERO")
    def _zero(self) -> DelayedReply:
        return DelayedReply(ZEROING, lambda: self._detector.zero(ZEROING))

    @command("READ#:POWer?")
    def _read(self) -> DelayedReply:
        averaging = round(self.averaging * 1e9)
        exposure = self._detector.expose(self._clock.now())

        def finish() -> str:
            self._detector.end(exposure)
            watt = self._detector.reading(
                float(exposure.means(averaging, 1)[0]),
                averaging=averaging,
                wavelength_nm=self.wavelength * 1e9,
                full_scale_w=GREATEST_W,
            )
            return f"{watt:.8E}"

        return DelayedReply(averaging, finish)


class SimulatedAcmePm4(ScpiDevice):
    """Four channels; the number in a header selects one, and 1 where there is none."""

    schemes = ("scpi",)  # answers over visa:// as well
    channel_type = Sensor

    def __init__(self, context: DeviceContext) -> None:
        super().__init__(context.spec.name, context.clock, f"Acme,PM4,{context.serial},1.3")
        self._sensors = {number: Sensor(context, number) for number in range(1, 5)}

    def channel(self, suffixes: tuple[int, ...]) -> ScpiNode:
        """Return the sensor that the number in a header selects."""
        if suffixes[0] not in self._sensors:
            raise ScpiError(-114, "Header suffix out of range")
        return self._sensors[suffixes[0]]

    def reset(self) -> None:
        """Set the parameters of every channel to their defaults."""
        for sensor in self._sensors.values():
            sensor.reset_parameters()
