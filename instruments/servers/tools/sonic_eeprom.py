"""Modules as SONiC shows them: `sfputil show eeprom -d`, `show interfaces transceiver eeprom -d`.

A port is a line `Ethernet0: SFP EEPROM detected`, below it `key: value`; measured values and
thresholds stand in sections, per lane for QSFP (`RX1Power`) and without a number for SFP
(`RXPower`). Source: sonic-utilities, doc/Command-Reference.md and the outputs of its changes.
"""

import re
from collections.abc import Iterator, Mapping

from lightrig.instruments.servers.tools.module import (
    DARK_DBM,
    Lane,
    Level,
    ModuleReading,
    Quantity,
)
from lightrig.instruments.servers.tools.output import ToolOutputError, number

TOOL = "show interfaces transceiver eeprom"

# Or by its alias, as the command line shows ports in that mode: `etp1a`, `fourHundredGigE1`.
_PORT = re.compile(r"(\w[\w/().-]*): SFP EEPROM (is )?(not )?detected", re.ASCII | re.IGNORECASE)
_SECTIONS = frozenset(
    {"ChannelMonitorValues", "ModuleMonitorValues", "MonitorData"}
    | {"ChannelThresholdValues", "ModuleThresholdValues", "ThresholdData"}
)
_LANE = re.compile(r"(RX|TX)(\d*)(Power|Bias)", re.ASCII)
_THRESHOLD = re.compile(r"(Temp|Vcc|TxBias|TxPower|RxPower)(High|Low)(Alarm|Warning)")
_FIELDS = {"RXPower": "rx_power_dbm", "TXPower": "tx_power_dbm", "TXBias": "tx_bias_ma"}
_QUANTITIES: Mapping[str, Quantity] = {
    "Temp": "temperature",
    "Vcc": "voltage",
    "TxBias": "tx_bias",
    "TxPower": "tx_power",
    "RxPower": "rx_power",
}
_UNITS = {"Power": "dBm", "Bias": "mA", "Temp": "C", "Temperature": "C", "Vcc": "Volts"}
_MISSING = frozenset({"", "N/A"})


def parse(text: str) -> dict[str, ModuleReading]:
    """Return the module of every port that has one.

    A module without monitors, such as a passive cable, may be shown with zeros, its supply
    included; then nothing is measured.

    Raises:
        ToolOutputError: it is something else, or a measured value is no number in its unit.
    """
    ports: dict[str, list[str]] = {}
    absent = set()
    port = ""
    for line in text.splitlines():
        if match := _PORT.match(line.strip()):
            port = match[1]
            if port in ports:
                raise ToolOutputError(TOOL, "each port once", line)
            ports[port] = []
            absent |= {port} if match[3] else set()
        elif port:
            ports[port].append(line)
    if not ports:
        raise ToolOutputError(TOOL, "`Ethernet0: SFP EEPROM detected`", text.strip()[:80])
    return {name: _module(lines) for name, lines in ports.items() if name not in absent}


def _pairs(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield section, key and value of each line; raises `ToolOutputError` for a repeated key."""
    section, limit, seen = "", 0, set[tuple[str, str]]()
    for line in lines:
        key, _, value = (part.strip() for part in line.partition(":"))
        indent = len(line.expandtabs()) - len(line.expandtabs().lstrip())
        if key in _SECTIONS and not value:
            section, limit = key, indent
            continue
        if section and indent <= limit:
            section = ""
        if (section, key) in seen and section:
            raise ToolOutputError(TOOL, "each value once", line)
        seen.add((section, key))
        yield section, key, value


def _module(lines: list[str]) -> ModuleReading:
    plain: dict[str, str] = {}
    measured: dict[str, float | None] = {}
    lanes: dict[int, dict[str, float | None]] = {}
    thresholds: dict[Quantity, dict[Level, float]] = {}
    for section, key, value in _pairs(lines):
        if not section:
            plain.setdefault(key, value)
        elif match := _LANE.fullmatch(key):
            lane = lanes.setdefault(int(match[2] or 1), {})
            lane[_FIELDS[match[1] + match[3]]] = _value(match[3], key, value)
        elif match := _THRESHOLD.fullmatch(key):
            level: Level = f"{match[2]}_{match[3]}".lower()  # type: ignore[assignment]
            unit = "Power" if match[1].endswith("Power") else match[1].removeprefix("Tx")
            if (limit := _value(unit, key, value)) is not None:
                thresholds.setdefault(_QUANTITIES[match[1]], {})[level] = limit
        elif key in _UNITS:
            measured[key] = _value(key, key, value)
    if measured.get("Vcc") == 0:
        measured, lanes = {}, {}
    return ModuleReading(
        identifier=None,
        form=plain.get("Identifier"),
        vendor=plain.get("Vendor Name"),
        part=plain.get("Vendor PN"),
        serial=plain.get("Vendor SN"),
        state=None,
        wavelength_nm=None,
        temperature_c=measured.get("Temperature"),
        voltage_v=measured.get("Vcc"),
        rx_power_is="average" if lanes else None,
        lanes=tuple(Lane(n, **lanes[n]) for n in sorted(lanes)),  # type: ignore[arg-type]
        thresholds=thresholds,
    )


def _value(kind: str, key: str, text: str) -> float | None:
    """Return a number in the unit of its kind; None where it is not available."""
    if text in _MISSING:
        return None
    unit = _UNITS[kind]
    bare = text.removesuffix(unit).strip()
    try:
        if bare == text:
            raise ValueError(f"a value in {unit}")
        return DARK_DBM if (unit, bare) == ("dBm", "-inf") else number(bare).value
    except ValueError as error:
        raise ToolOutputError(TOOL, str(error), f"{key}: {text}") from error
