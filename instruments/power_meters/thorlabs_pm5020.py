"""Thorlabs PM5020 power meters: two sensors."""

from typing import ClassVar

from lightrig.instruments.core.scpi_instrument import Setting
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.instruments.power_meters.thorlabs_pm100d import ThorlabsPm100d


class ThorlabsPm5020(ThorlabsPm100d):
    """A console with two sensors, channels 1 and 2, by USB (visa://) or Ethernet (scpi://).

    Its commands are those of the PM100D with the channel behind their first word. A reading
    averages samples of 1 ms; one of both channels takes one after the other.

    Source: Thorlabs' command reference of the PM5020 (Light_Analysis_Examples, commandDocu), and
    the class PM_PM5020 of a program that measures with both channels. Port 2000 over Ethernet:
    the program thorlabs_pm.py, whose consoles are addressed so.
    """

    schemes = ("visa", "scpi")
    wire_facts = (
        WireFact(
            "`SENS#:CORR:WAV`, `SENS#:AVER`, `SENS#:POW:UNIT`, `SENS#:POW:RANG:AUTO`",
            "Thorlabs' command reference of the PM5020",
            second="the program PM_PM5020",
        ),
        WireFact(
            "`READ#?`, `CONF#:POW`, `SYST:SENS#:IDN?`, zeroing",
            "Thorlabs' command reference of the PM5020",
            second="the PM100D's, as several drivers use them without a number",
        ),
        WireFact("1 ms for each averaged sample", "Thorlabs' command reference of the PM5020"),
        WireFact("port 2000 over Ethernet", "thorlabs_pm.py"),
        WireFact("least power that is reported (option)"),
    )
    channels = range(1, 3)
    numbered: ClassVar[bool] = True
    default_port = 2000
    wavelength = Setting(
        float,
        "SENS{channel}:CORR:WAV",
        "wavelength",
        unit="nm",
        argument="{:.4f}",
        tolerance=0.5,
        verified=True,
        advice="does its sensor measure there? query SENS1:CORR:WAV? MIN and MAX",
    )
    averages = Setting(
        float,
        "SENS{channel}:AVER:COUN",
        "averaging",
        unit="samples",
        argument="{:.0f}",
        verified=False,
        reason="the console may limit it; the window of a reading is the number that it reports",
    )
