"""Agilent (HP) 8169A polarization controllers: a polarizer and two waveplates that turn."""

import math

from lightrig.instruments.core.scpi_instrument import RestorableScpiInstrument, Setting
from lightrig.instruments.core.wire_facts import WireFact

_TURNED = 10_000_000_000


class Agilent8169a(RestorableScpiInstrument):
    """A polarizer, a quarter-wave and a half-wave plate, in this order; channel 1.

    The instrument has GPIB only, so it is addressed through a gateway. Light is assumed to be
    polarized along the polarizer, which this driver leaves as it is: turn it for most power.

    Source: Agilent 8169A Polarization Controller User's Guide, second edition, chapter 6: the
    syntax, the error queue and the subsystem INPut. Names and queries of the angles, within
    +-360 degrees, and the plates that make linear and circular light: public control programs
    by four authors (classes PC_8169A, Agilent8169A, Keysight8169A, PolarizationController),
    one of which waits with *OPC?. That a command which turns a plate ends when it has turned is
    a guess.
    """

    schemes = ("visa", "scpi")
    wire_facts = (
        WireFact("syntax, error queue, [:INPut]", "Agilent 8169A User's Guide, second edition"),
        WireFact(
            "angles of the plates (:INP:POS:QUAR, :INP:POS:HALF) and their queries",
            "four public control programs (PC_8169A, Agilent8169A, Keysight8169A, "
            "PolarizationController)",
        ),
        WireFact("that a command which turns a plate ends when it has turned"),
    )
    channels = range(1, 2)
    quarter_setting = Setting(
        float,
        ":INP:POS:QUAR",
        "angle of the quarter-wave plate",
        unit="deg",
        argument="{:.2f}",
        tolerance=0.1,
        timeout=_TURNED,
        verified=True,
        advice="is the polarization being scanned? stop that at its front panel",
    )
    half_setting = Setting(
        float,
        ":INP:POS:HALF",
        "angle of the half-wave plate",
        unit="deg",
        argument="{:.2f}",
        tolerance=0.1,
        timeout=_TURNED,
        verified=True,
        advice="is the polarization being scanned? stop that at its front panel",
    )

    def set_polarization(self, channel: int, stokes: tuple[float, float, float]) -> None:
        """Turn both plates so that light leaves with these Stokes parameters, and wait for it.

        stokes: s1, s2, s3, normalized, s1 along the polarizer.

        The quarter-wave plate at q makes linear light at 0 an ellipse along q of ellipticity q;
        the half-wave plate at h mirrors it to the azimuth 2h - q, of the other hand.

        Raises:
            DeniedError: the state is not normalized, or there is no such channel.
            NotDoneError: a plate did not reach its angle.
        """
        s1, s2, s3 = stokes
        if abs(math.hypot(s1, s2, s3) - 1) > 1e-6:
            raise self.refused(
                f"{stokes} is no state of polarized light: the squares add up to "
                f"{s1 * s1 + s2 * s2 + s3 * s3:g}, expected 1"
            )
        quarter = math.degrees(math.asin(max(-1.0, min(1.0, -s3)))) / 2
        azimuth = math.degrees(math.atan2(s2, s1)) / 2
        self.quarter_setting.set(quarter % 180, channel)
        self.half_setting.set((azimuth + quarter) / 2 % 180, channel)
