"""`ethtool -m`: a transceiver's memory, decoded (SFF-8472, SFF-8636, CMIS), as text or JSON.

Text is one `key : value` a line; per-lane keys end with `(Channel n)` or `(Chan n)`, counted
from 1 upstream and from 0 by a vendor's fork, with or without a blank before the bracket.
Powers are printed in mW and in dBm, temperatures in °C and in °F: both must agree. DriveNets' DNOS
(command reference, `show interfaces transceiver`, release 25.2) counts channels from 0 and may name
the identifier without its code. Its QSFP_DD form is refused: powers are in dBm alone, and an alarm
at 63.2 dBm shows that this is not the unit of all of them.
Source: samples of ethtool 5 and 6 and of two forks, tests/tools/samples.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from lightrig.instruments.servers.tools import ethtool_module_json
from lightrig.instruments.servers.tools.module import (
    ALARMS_NOTE,
    CMIS,
    LANE_FLAGS,
    PER_LANE,
    QUANTITIES,
    Alarm,
    Lane,
    Level,
    ModuleReading,
    Quantity,
    RxPowerIs,
    dbm_of_milliwatt,
    lanes_of,
    plausible,
    sensors,
)
from lightrig.instruments.servers.tools.output import Printed, ToolOutputError, is_json, number

TOOL = "ethtool -m"

T = TypeVar("T")

_LANE = re.compile(r"(.+?) ?\((?:Channel|Chan) (\d+)\)", re.ASCII)
_FLAG = re.compile(r"(.+) (high|low) (alarm|warning)( threshold)?")
_CODED = re.compile(r"0x([0-9a-f]{2}) \((.+)\)")
_FORMS = frozenset({"SFP", "QSFP", "QSFP28", "QSFP_DD"})
_POWER = re.compile(r"(\S+) mW / (\S+) dBm")
_TEMPERATURE = re.compile(r"(\S+) degrees C / (\S+) degrees F")
_HEX_DUMP = re.compile(r"0x[0-9a-f]+$|Offset\b")

_LANE_VALUES: Mapping[str, tuple[Quantity, str]] = {
    "Laser tx bias current": ("tx_bias", "tx_bias_ma"),
    "Laser bias current": ("tx_bias", "tx_bias_ma"),
    "Transmit avg optical power": ("tx_power", "tx_power_dbm"),
    "Laser output power": ("tx_power", "tx_power_dbm"),
    "Rcvr signal avg optical power": ("rx_power", "rx_power_dbm"),
    "Receiver signal average optical power": ("rx_power", "rx_power_dbm"),
    "Receiver signal OMA": ("rx_power", "rx_power_dbm"),
    "Rcvr signal OMA": ("rx_power", "rx_power_dbm"),
}
_READ_ONCE = frozenset(
    {"Identifier", "Vendor name", "Vendor PN", "Vendor SN", "Module State", "Laser wavelength"}
    | {"Module state"}  # from 6.14 on
    | {"Module temperature", "Module voltage", *LANE_FLAGS}
)
"""Plain keys that are parsed and so must not repeat; others, such as `Option`, may."""


def parse(text: str) -> ModuleReading:
    """Read what `ethtool -m` or `ethtool --json -m` printed.

    Raises:
        ToolOutputError: it is not one module's reading, or contradicts itself.
    """
    return ethtool_module_json.parse(text) if is_json(text) else _Text(text).reading()


class _Text:
    """The lines of one reading, sorted by kind."""

    def __init__(self, text: str) -> None:
        self.plain: dict[str, str] = {}
        self.lanes: dict[str, dict[int, float]] = {}
        self.lines: dict[str, str] = {}
        self.rx_power_is: set[str] = set()
        self.thresholds: dict[Quantity, dict[Level, float]] = {}
        self.flags: dict[Alarm, bool] = {}
        self.compliance: list[str] = []
        for line in text.splitlines():
            if line.strip():
                self._take(line)

    def reading(self) -> ModuleReading:
        identifier, form = self._coded("Identifier")
        doubtful = identifier in CMIS and any(flag.lane is not None for flag in self.flags)
        celsius, volt = sensors(
            self._optional("Module temperature", _temperature),
            self._optional("Module voltage", lambda text: _in_unit(text, "V", "voltage")),
        )
        reading = ModuleReading(
            identifier=identifier,
            form=form,
            vendor=self.plain.get("Vendor name"),
            part=self.plain.get("Vendor PN"),
            serial=self.plain.get("Vendor SN"),
            state=self._coded("Module state" if "Module state" in self.plain else "Module State")[
                1
            ],
            wavelength_nm=self._wavelength(),
            temperature_c=celsius,
            voltage_v=volt,
            rx_power_is=self._kind_of_rx_power(),
            lanes=self._lanes(),
            thresholds=self.thresholds,
            alarms=self._alarms(),
            alarms_reported=bool(self.flags),
            firmware=self.plain.get("Active firmware version"),
            connector=self._connector(),
            compliance=tuple(self.compliance),
            alarms_note=ALARMS_NOTE if doubtful else "",
        )
        if not reading.lanes and not any(
            (reading.identifier, reading.vendor, reading.part, reading.temperature_c)
        ):
            raise ToolOutputError(TOOL, "the fields of a transceiver", next(iter(self.lines), ""))
        return reading

    # --------------------------------------------------------------------- line by line

    def _take(self, line: str) -> None:
        raw, colon, value = line.partition(":")
        key, value = " ".join(raw.split()), value.strip()
        if _HEX_DUMP.match(key):
            raise ToolOutputError(
                TOOL, "decoded fields; this kernel or ethtool can only dump the memory", line
            )
        if not colon or not key:
            raise ToolOutputError(TOOL, "`key : value` in every line", line)
        self.lines[key] = line
        try:
            self._sort(key, value)
        except ValueError as error:
            raise ToolOutputError(TOOL, str(error), line) from error

    def _sort(self, key: str, value: str) -> None:
        name, channel = key, None
        if match := _LANE.fullmatch(key):
            name, channel = match[1], int(match[2])
        if match := _FLAG.fullmatch(name):
            if quantity := QUANTITIES.get(match[1]):
                level: Level = f"{match[2]}_{match[3]}"  # type: ignore[assignment]
                self._take_flag(quantity, level, channel, value, threshold=bool(match[4]))
        elif name in _LANE_VALUES:
            self._take_value(name, 1 if channel is None else channel, value)
        elif key in self.plain and key in _READ_ONCE:
            raise ValueError(f"{key!r} once")
        elif key == "Transceiver type":
            self.compliance.append(value)
        else:
            self.plain[key] = value

    def _take_value(self, name: str, channel: int, value: str) -> None:
        quantity, attribute = _LANE_VALUES[name]
        taken = self.lanes.setdefault(attribute, {})
        if channel in taken:
            raise ValueError(f"one {quantity} of channel {channel}")
        if quantity == "rx_power":
            self.rx_power_is.add("oma" if name.endswith("OMA") else "average")
        taken[channel] = _measured(quantity, value)

    def _take_flag(
        self, quantity: Quantity, level: Level, channel: int | None, value: str, *, threshold: bool
    ) -> None:
        if threshold:
            thresholds = self.thresholds.setdefault(quantity, {})
            if level in thresholds:
                raise ValueError("each threshold once")
            thresholds[level] = _measured(quantity, value)
            return
        flag = Alarm(quantity, level, 1 if channel is None and quantity in PER_LANE else channel)
        if flag in self.flags:
            raise ValueError("each flag once")
        self.flags[flag] = _switch(value)

    # ------------------------------------------------------------------------ together

    def _lanes(self) -> tuple[Lane, ...]:
        columns: dict[str, list[float] | list[bool]] = {}
        for attribute, by_channel in self.lanes.items():
            channels = self._channels(len(by_channel))
            if sorted(by_channel) != list(channels):
                expected = f"{attribute} of channels 1, 2, 3 ... or 0, 1, 2 ..., all alike"
                raise ToolOutputError(TOOL, expected, sorted(by_channel))
            columns[attribute] = [by_channel[channel] for channel in channels]
        # "None" stands for as many lanes as other flags list, also where no lane has a value.
        listed = (
            self.plain[key].count(",") + 1 for key in LANE_FLAGS if "[" in self.plain.get(key, "")
        )
        count = max([*map(len, columns.values()), *listed], default=0)
        for key, attribute in LANE_FLAGS.items():
            if flags := self._optional(key, lambda text: _flags(text, count)):
                columns[attribute] = flags
        try:
            return lanes_of(columns)
        except ValueError as error:
            raise ToolOutputError(TOOL, str(error)) from error

    def _channels(self, count: int) -> range:
        """Return the numbers of `count` channels: from 0 if any value is of channel 0."""
        first = 0 if any(0 in by_channel for by_channel in self.lanes.values()) else 1
        return range(first, first + count)

    def _alarms(self) -> frozenset[Alarm]:
        channels = self._channels(max(map(len, self.lanes.values()), default=0))
        raised = set()
        for flag, on in self.flags.items():
            if flag.lane is not None and channels and flag.lane not in channels:
                expected = "flags of the channels that have values, and of no other"
                raise ToolOutputError(TOOL, expected, f"{flag.quantity} of channel {flag.lane}")
            if on:
                lane = None if flag.lane is None else flag.lane - channels.start + 1
                raised.add(flag._replace(lane=lane))
        return frozenset(raised)

    def _kind_of_rx_power(self) -> RxPowerIs | None:
        if len(self.rx_power_is) > 1:
            raise ToolOutputError(TOOL, "average power or OMA, not both")
        return "oma" if "oma" in self.rx_power_is else "average" if self.rx_power_is else None

    def _coded(self, key: str) -> tuple[int | None, str | None]:
        """Return code and text of a value such as `0x03 (ModuleReady)`."""
        if key not in self.plain:
            return None, None
        match = _CODED.fullmatch(self.plain[key])
        if match is None and key == "Identifier" and self.plain[key] in _FORMS:
            return None, self.plain[key]
        if match is None:
            raise ToolOutputError(TOOL, "a code and its meaning, `0x.. (...)`", self.lines[key])
        return int(match[1], 16), match[2]

    def _connector(self) -> str | None:
        match = _CODED.fullmatch(self.plain.get("Connector", ""))
        return match[2] if match else None

    def _wavelength(self) -> float | None:
        return self._optional(
            "Laser wavelength", lambda text: number(text.removesuffix("nm").strip()).value
        )

    def _optional(self, key: str, read: Callable[[str], T]) -> T | None:
        if key not in self.plain:
            return None
        try:
            return read(self.plain[key])
        except ValueError as error:
            raise ToolOutputError(TOOL, str(error), self.lines[key]) from error


def _switch(text: str) -> bool:
    if text not in ("On", "Off"):
        raise ValueError("On or Off")
    return text == "On"


def _flags(text: str, lanes: int) -> list[bool]:
    """A flag of every lane: `None`, or `[ Yes, No, No, No ]`."""
    if text == "None":
        return [False] * lanes
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError("None, or Yes and No in brackets")
    parts = [word.strip() for word in text[1:-1].split(",")]
    if not set(parts) <= {"Yes", "No"}:
        raise ValueError("None, or Yes and No in brackets")
    return [word == "Yes" for word in parts]


def _measured(quantity: Quantity, text: str) -> float:
    match quantity:
        case "temperature":
            return _temperature(text)
        case "voltage":
            return _in_unit(text, "V", quantity)
        case "tx_bias":
            return _in_unit(text, "mA", quantity)
        case "tx_power" | "rx_power":
            return _power(text, quantity)


def _in_unit(text: str, unit: str, quantity: Quantity) -> float:
    value, _, found = text.partition(" ")
    if found != unit:
        raise ValueError(f"a {quantity} in {unit}")
    return plausible(quantity, number(value).value)


def _temperature(text: str) -> float:
    match = _TEMPERATURE.fullmatch(text)
    if match is None:
        raise ValueError("a temperature in degrees C / degrees F")
    celsius, fahrenheit = number(match[1]), number(match[2])
    converted = celsius.times(1.8)
    if not Printed(converted.value + 32, converted.half).agrees(fahrenheit):
        raise ValueError("degrees C and degrees F that agree")
    return plausible("temperature", celsius.value)


def _power(text: str, quantity: Quantity) -> float:
    match = _POWER.fullmatch(text)
    if match is None:
        raise ValueError("a power in mW / dBm")
    milliwatt = number(match[1])
    plausible(quantity, milliwatt.value)
    if milliwatt.value == 0:
        if match[2] != "-inf":
            raise ValueError("-inf dBm for no light")
    else:
        dbm = number(match[2])
        low, high = (
            10 * math.log10(max(milliwatt.value + sign * milliwatt.half, 1e-9)) for sign in (-1, 1)
        )
        if not low - dbm.half - 1e-9 <= dbm.value <= high + dbm.half + 1e-9:
            raise ValueError("mW and dBm that agree")
    return dbm_of_milliwatt(milliwatt.value)
