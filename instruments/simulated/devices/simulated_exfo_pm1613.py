"""Simulated EXFO PM-1613 power meter.

Commands are those of autolab's driver exfo_PM1613 and of EXFO's PM-1600 user manual. Chosen: limits
of wavelength and averages, ranges of one decade each, how long it shows stars after a change of
range, how long zeroing takes; plus and minus signs as the IQS-1700's manual has them.
"""

import math

from lightrig.instruments.simulated.protocols.commands import command
from lightrig.instruments.simulated.protocols.scpi_device import DelayedReply, ScpiDevice
from lightrig.instruments.simulated.protocols.scpi_status import StatusSubsystem
from lightrig.instruments.simulated.protocols.scpi_values import Choice, Flag, Number
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.instruments.simulated.world.detector import Detector, Photodiode

SAMPLE = 250_000
"""Time of one measurement, in ns."""
ZEROING = 2_000_000_000
RANGING = 150_000_000
"""How long stars are shown after a change of range, in ns."""
GREATEST_W = 8e-3

_LOWEST_RANGE_W = 8e-9
_STARS, _PLUSES, _MINUSES = "*****", "+++++++", "-------"


class SimulatedExfoPm1613(StatusSubsystem, ScpiDevice):
    """One power meter with an InGaAs detector."""

    schemes = ("scpi", "serial")
    error_format = '{code},"{text}"'

    wavelength = Number(
        "SENSe:POWer:WAVElength",
        default=1550.0,
        minimum=800.0,
        maximum=1700.0,
        units={"": 1.0, "NM": 1.0},
    )
    averaged = Flag("SENSe:AVERage:STATe", default=False)
    count = Number("SENSe:AVERage:COUNt", default=10, minimum=1, maximum=10_000)
    automatic = Flag("SENSe:POWer:RANGe:AUTO", default=True)
    relative = Flag("SENSe:POWer:REFerence:STATe", default=False)
    unit = Choice("SENSe:POWer:UNIT", default="DBM", names=("W", "DBM"))

    def __init__(self, context: DeviceContext) -> None:
        name = context.spec.name
        super().__init__(name, context.clock, f"EXFO E.O. Engineering,PM-1613,{context.serial},1.3")
        self._light = context.light
        self._detector = Detector(
            f"{name}.1", context.chance, Photodiode(noise_w=1e-12, offset_w=5e-11, gain_db=0.1)
        )
        self._upper = GREATEST_W
        self._blank_until = 0
        context.light.on_arrival(1, self._on_light)

    def _on_light(self, at: int) -> None:
        self._detector.lit(at, self._light.level(1))

    @command("SENSe:AVERage:COUNt?")
    def _query_count(self) -> str:
        return str(round(self.count))

    @command("SENSe:CORRection:COLLect:ZERO")
    def _zero(self) -> DelayedReply:
        def finish() -> None:
            self._detector.zero(ZEROING)

        return DelayedReply(ZEROING, finish)

    @command("READ:ALL:POWer:DC?")
    def _read(self) -> DelayedReply:
        averaging = (round(self.count) if self.averaged else 1) * SAMPLE
        exposure = self._detector.expose(self.clock.now())

        def finish() -> str:
            self._detector.end(exposure)
            return self._shown(float(exposure.means(averaging, 1)[0]), averaging)

        return DelayedReply(averaging, finish)

    def _shown(self, milliwatt: float, averaging: int) -> str:
        if self.automatic:
            upper = _LOWEST_RANGE_W
            while upper < milliwatt * 1e-3 and upper < GREATEST_W:
                upper *= 10
            if upper != self._upper:
                self._upper, self._blank_until = upper, self.clock.now() + RANGING
        if self.clock.now() < self._blank_until:
            return _STARS
        if milliwatt * 1e-3 > self._upper:
            return _PLUSES
        watt = self._detector.reading(
            milliwatt,
            averaging=averaging,
            wavelength_nm=self.wavelength,
            full_scale_w=self._upper,
        )
        if self.unit == "W":
            return f"{watt:.5E}"
        return f"{10 * math.log10(watt * 1e3):.4f}" if watt > 0 else _MINUSES
