"""`ethtool --json -m`: a transceiver's memory as JSON, powers in mW, no units.

The released form repeats keys: `module_temperature` and `module_voltage` are first a measured
number, then an object of thresholds; a later form renames the former to `..._measurement`. Drafts
had `..._units` beside the values and the received power under another name. All are accepted,
found apart by key and type, never by version.
Source: the patch series of ethtool 6.14 and its repair, tests/tools/samples/SOURCES.md.
"""

from collections.abc import Mapping
from typing import Any

from lightrig.instruments.servers.tools.module import (
    ALARMS_NOTE,
    CMIS,
    LANE_FLAGS,
    LEVELS,
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
from lightrig.instruments.servers.tools.output import Repeated, ToolOutputError, load_repeating

TOOL = "ethtool --json -m"

_QUANTITIES = {name.lower().replace(" ", "_"): quantity for name, quantity in QUANTITIES.items()}
_FLAGS = {name.lower().replace(" ", "_"): flag for name, flag in LANE_FLAGS.items()}
_UNITS = {
    "module_temperature_units": "degrees C",
    "module_voltage_units": "V",
    "laser_tx_bias_current_units": "mA",
    "transmit_avg_optical_power_units": "mW",
    "rcvr_signal_avg_optical_power_units": "mW",
}
_QUANTITY_UNITS: Mapping[Quantity, str] = {
    "temperature": "degrees C",
    "voltage": "V",
    "tx_bias": "mA",
    "tx_power": "mW",
    "rx_power": "mW",
}


def parse(text: str) -> ModuleReading:
    """Parse the output of `ethtool --json -m`; see `ethtool_module.parse`, which calls this."""
    document = load_repeating(TOOL, text)
    if (
        not isinstance(document, list)
        or len(document) != 1
        or not isinstance(document[0], Repeated)
    ):
        raise ToolOutputError(TOOL, "a list with one module", type(document).__name__)
    try:
        return _Module(document[0]).reading()
    except ValueError as error:
        raise ToolOutputError(TOOL, str(error)) from error


class _Module:
    def __init__(self, values: Repeated) -> None:
        self._values = values
        for key, unit in _UNITS.items():
            found = self._only(key, str)
            if found is not None and found != unit:
                raise ValueError(f"{key} to be {unit!r}, not {found!r}")

    def reading(self) -> ModuleReading:
        columns: dict[str, list[float] | list[bool]] = {}
        for attribute, quantity, keys in (
            ("tx_bias_ma", "tx_bias", ("laser_tx_bias_current", "laser_bias_current")),
            ("tx_power_dbm", "tx_power", ("transmit_avg_optical_power", "laser_output_power")),
        ):
            if values := self._lane_values(*keys):
                columns[attribute] = [_measured(quantity, value) for value in values]  # type: ignore[arg-type]
        received, kind = self._rx_power()
        if received:
            columns["rx_power_dbm"] = [_measured("rx_power", value) for value in received]
        count = max(map(len, columns.values()), default=0)
        for key, attribute in _FLAGS.items():
            if flags := self._lane_flags(key, count):
                columns[attribute] = flags
        lanes = lanes_of(columns)
        alarms = frozenset(self._alarms(lanes))
        celsius, volt = sensors(
            self._module_value("temperature", "module_temperature"),
            self._module_value("voltage", "module_voltage"),
        )
        identifier = self._only("identifier", int)
        if identifier is None and not lanes:
            raise ValueError("the fields of a transceiver")
        return ModuleReading(
            identifier=identifier,
            form=self._only("identifier_description", str),
            vendor=self._only("vendor_name", str),
            part=self._only("vendor_pn", str),
            serial=self._only("vendor_sn", str),
            state=self._only("module_state_description", str),
            wavelength_nm=self._number("laser_wavelength"),
            temperature_c=celsius,
            voltage_v=volt,
            rx_power_is=kind,
            lanes=lanes,
            thresholds={
                quantity: thresholds
                for key, quantity in _QUANTITIES.items()
                if (thresholds := self._thresholds(key, quantity))
            },
            alarms=alarms,
            alarms_reported=any(key.endswith(LEVELS) for key in self._values),
            firmware=self._firmware(),
            alarms_note=ALARMS_NOTE if identifier in CMIS and self._flags_lanes() else "",
            connector=self._only("connector_description", str),
            compliance=tuple(
                each for each in self._values.get("transceiver_type", ()) if isinstance(each, str)
            ),
        )

    def _firmware(self) -> str | None:
        """Return the version that runs: major and minor number of a CMIS module."""
        found = self._only("active_firmware_version", Repeated)
        if found is None:
            return None
        inner = _Module(found)
        return f"{inner._only('major', int)}.{inner._only('minor', int)}"

    def _only(self, key: str, kind: type | tuple[type, ...]) -> Any:
        """The one value of `key` that is of `kind`; None where there is none."""
        kinds = kind if isinstance(kind, tuple) else (kind,)
        fitting = [
            value
            for value in self._values.get(key, ())
            if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        ]
        if len(fitting) > 1:
            raise ValueError(f"one {kinds[0].__name__} for {key!r}, not {len(fitting)}")
        return fitting[0] if fitting else None

    def _number(self, key: str) -> float | None:
        value = self._only(key, (int, float))
        return None if value is None else float(value)

    def _module_value(self, quantity: Quantity, key: str) -> float | None:
        found = [
            value
            for name in (f"{key}_measurement", key)
            if (value := self._number(name)) is not None
        ]
        if len(found) > 1:
            raise ValueError(f"one measured {quantity}, not {found}")
        return plausible(quantity, found[0]) if found else None

    def _lane_values(self, *keys: str) -> list[float]:
        """Values by lane: a list, or one number for a module of one lane."""
        for key in keys:
            values = self._only(key, list)
            if values is not None:
                return _numbers(key, values)
            value = self._number(key)
            if value is not None:
                return [value]
        return []

    def _rx_power(self) -> tuple[list[float], RxPowerIs | None]:
        draft = self._lane_values("rcvr_signal_avg_optical_power")
        found = self._only("rx_power", Repeated)
        if found is None:
            return draft, "average" if draft else None
        if draft:
            raise ValueError("one received power")
        inner = _Module(found)
        match inner._only("type", str):
            case "Rcvr signal avg optical power" | "Receiver signal average optical power":
                kind: RxPowerIs = "average"
            case "Receiver signal OMA" | "Rcvr signal OMA":
                kind = "oma"
            case other:
                raise ValueError(f"a known type of received power, not {other!r}")
        return inner._lane_values("values", "value"), kind

    def _lane_flags(self, key: str, count: int) -> list[bool]:
        """A flag of every lane: false or `None` for none, else Yes or No by lane."""
        if key not in self._values:
            return []
        (value, *rest) = self._values[key]
        if rest:
            raise ValueError(f"{key!r} once")
        if value is False or value == "None":
            return [False] * count
        if isinstance(value, list) and all(isinstance(each, bool) for each in value):
            return value
        if isinstance(value, list) and all(each in ("Yes", "No") for each in value):
            return [each == "Yes" for each in value]
        raise ValueError(f"{key!r} to be false, or Yes and No by lane, not {value!r}")

    def _alarms(self, lanes: tuple[Lane, ...]) -> list[Alarm]:
        raised = []
        for stem, quantity in _QUANTITIES.items():
            for level in LEVELS:
                for value in self._values.get(f"{stem}_{level}", ()):
                    raised += _flagged(quantity, level, value, lanes)
        return raised

    def _flags_lanes(self) -> bool:
        stems = [stem for stem, quantity in _QUANTITIES.items() if quantity in PER_LANE]
        return any(f"{stem}_{level}" in self._values for stem in stems for level in LEVELS)

    def _thresholds(self, key: str, quantity: Quantity) -> dict[Level, float]:
        found = self._only(key, Repeated)
        if found is None:
            return {}
        inner = _Module(found)
        unit = inner._only("units", str)
        if unit not in (None, _QUANTITY_UNITS[quantity]):
            raise ValueError(f"thresholds of {key} in {_QUANTITY_UNITS[quantity]}, not {unit!r}")
        return {
            level: _measured(quantity, value)
            for level in LEVELS
            if (value := inner._number(f"{level}_threshold")) is not None
        }


def _flagged(
    quantity: Quantity, level: Level, value: object, lanes: tuple[Lane, ...]
) -> list[Alarm]:
    if isinstance(value, bool):
        return [Alarm(quantity, level, 1 if quantity in PER_LANE else None)] if value else []
    if not isinstance(value, list) or not all(isinstance(each, bool) for each in value):
        raise ValueError(f"flags of {quantity} to be true or false, not {value!r}")
    if lanes and len(value) != len(lanes):
        raise ValueError(f"a flag of {quantity} for each of {len(lanes)} lanes, not {len(value)}")
    return [Alarm(quantity, level, index + 1) for index, on in enumerate(value) if on]


def _measured(quantity: Quantity, value: float) -> float:
    plausible(quantity, value)
    return dbm_of_milliwatt(value) if quantity in ("tx_power", "rx_power") else value


def _numbers(key: str, values: list[Any]) -> list[float]:
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        raise ValueError(f"numbers in {key!r}, not {values!r}")
    return [float(value) for value in values]
