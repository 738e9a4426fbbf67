"""The section `Module Info` of `mlxlink -m`: the module in a ConnectX port."""

import re
from collections.abc import Sequence

from lightrig.instruments.servers.tools.mlxlink_sections import Section, read_value, text_of
from lightrig.instruments.servers.tools.module import (
    DARK_DBM,
    Level,
    ModuleReading,
    Quantity,
    RxPowerIs,
    lanes_of,
    plausible,
)
from lightrig.instruments.servers.tools.output import number

_DARK_DBM = -40.0
_GREATEST_DBM = 90.0
"""Far beyond any module's; keeps the power of a raw register finite in mW."""
_MEASURED = re.compile(r"(\S+)(?: \[(\S+?)\.\.(\S+?)\])?")

_MEASURES: tuple[tuple[str, Quantity, str], ...] = (
    ("Bias Current [mA]", "tx_bias", "tx_bias_ma"),
    ("Tx Power Current [dBm]", "tx_power", "tx_power_dbm"),
    ("Rx Power Current [dBm]", "rx_power", "rx_power_dbm"),
)
_FLAGS = (
    ("Rx LOS [per lane]", "rx_los"),
    ("Tx LOS [per lane]", "tx_los"),
    ("Rx CDR LOL [per lane]", "rx_lol"),
    ("Tx CDR LOL [per lane]", "tx_lol"),
    ("Tx Fault [per lane]", "tx_fault"),
)


def module_of(section: Section) -> ModuleReading | None:
    """The plugged module, None where there is none; raises ValueError for what cannot be read.

    The firmware gives one low and one high threshold of each quantity; they are taken for
    those of alarms.
    """
    form = text_of(section, "Identifier")
    if form is None:
        return None
    thresholds: dict[Quantity, dict[Level, float]] = {}
    columns: dict[str, Sequence[float | bool | None]] = {}
    for key, quantity, attribute in _MEASURES:
        if values := _measured(section, key, quantity, thresholds):
            columns[attribute] = values
    for key, attribute in _FLAGS:
        if flags := read_value(section, key, _flags):
            columns[attribute] = flags
    temperature = _measured(section, "Temperature [C]", "temperature", thresholds)
    voltage = _measured(section, "Voltage [mV]", "voltage", thresholds)
    if len(temperature) > 1 or len(voltage) > 1:
        raise ValueError("one temperature and one voltage")
    return ModuleReading(
        identifier=None,
        form=form,
        vendor=text_of(section, "Vendor Name"),
        part=text_of(section, "Vendor Part Number"),
        serial=text_of(section, "Vendor Serial Number"),
        state=text_of(section, "Module State"),
        wavelength_nm=read_value(section, "Wavelength [nm]", lambda text: number(text).value),
        temperature_c=temperature[0] if temperature else None,
        voltage_v=voltage[0] if voltage else None,
        rx_power_is=_kind_of_power(section) if "rx_power_dbm" in columns else None,
        lanes=lanes_of(columns),
        thresholds=thresholds,
    )


def _kind_of_power(section: Section) -> RxPowerIs:
    """Return the kind of received power (mstflint, mlxlink_maps.cpp); average where not stated."""
    match text_of(section, "Rx Power Type"):
        case None | "Average power":
            return "average"
        case "OMA":
            return "oma"
        case kind:
            raise ValueError(f"a received power of OMA or Average power, not {kind!r}")


def _measured(
    section: Section,
    key: str,
    quantity: Quantity,
    thresholds: dict[Quantity, dict[Level, float]],
) -> list[float | None]:
    """Values such as `1.886,N/A [-10.41..6]`; the thresholds go where they belong."""
    value = text_of(section, key)
    if value is None:
        return []
    match = _MEASURED.fullmatch(value)
    if match is None:
        raise ValueError(f"{key}: `value [low..high]`, not {value!r}")
    if match[2]:
        thresholds[quantity] = {
            "low_alarm": _in_our_unit(quantity, match[2]),
            "high_alarm": _in_our_unit(quantity, match[3]),
        }
    values = match[1].split(",")
    return [None if each == "N/A" else _in_our_unit(quantity, each) for each in values]


def _in_our_unit(quantity: Quantity, text: str) -> float:
    """In °C, V, mA or dBm: mlxlink gives mV, and -40 dBm for no light."""
    value = number(text).value
    match quantity:
        case "voltage":
            return value / 1000
        case "tx_power" | "rx_power":
            plausible(quantity, 10 ** (min(value, _GREATEST_DBM) / 10))
            return DARK_DBM if value <= _DARK_DBM else value
        case _:
            return value


def _flags(text: str) -> list[bool]:
    flags = [flag.strip() for flag in text.split(",")]
    if not set(flags) <= {"0", "1"}:
        raise ValueError(f"0 or 1 by lane, not {text!r}")
    return [flag == "1" for flag in flags]
