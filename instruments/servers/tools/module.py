"""Readings of a transceiver: identity, temperature, and optical power by lane."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

DARK_DBM = -math.inf
"""No light: below every threshold, and infinite as a loss."""

LEAST_MW = 0.0001
"""The smallest step of a module's power registers: 0.1 µW (-40 dBm), indistinguishable from none.

Modules in low-power mode print it for every lane; mlxlink prints -40 for no light.
"""

Quantity = Literal["temperature", "voltage", "tx_bias", "tx_power", "rx_power"]
Level = Literal["high_alarm", "low_alarm", "high_warning", "low_warning"]
LEVELS: tuple[Level, ...] = ("high_alarm", "low_alarm", "high_warning", "low_warning")

PER_LANE: frozenset[Quantity] = frozenset({"tx_bias", "tx_power", "rx_power"})
"""Quantities that a transceiver measures on every lane."""

QUANTITIES: Mapping[str, Quantity] = {
    "Module temperature": "temperature",
    "Module voltage": "voltage",
    "Laser bias current": "tx_bias",
    "Laser tx bias current": "tx_bias",
    "Laser output power": "tx_power",
    "Laser tx power": "tx_power",
    "Laser rx power": "rx_power",
}
"""Quantities by ethtool's keys, as printed; in JSON a key is in small letters with `_`."""
LANE_FLAGS = {
    "Rx loss of signal": "rx_los",
    "Tx loss of signal": "tx_los",
    "Rx loss of lock": "rx_lol",
    "Tx loss of lock": "tx_lol",
    "Tx fault": "tx_fault",
}
"""Fields of `Lane` by ethtool's keys, likewise."""

RxPowerIs = Literal["average", "oma"]
"""Kind of received power: average, or optical modulation amplitude (OMA)."""


def dbm_of_milliwatt(milliwatt: float) -> float:
    """Return optical power in dBm; `DARK_DBM` at or below the smallest step."""
    return DARK_DBM if milliwatt <= LEAST_MW else 10 * math.log10(milliwatt)


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane of a transceiver; None for what it or the tool does not report.

    Attributes:
        number: counted from 1.
        tx_bias_ma: laser bias current.
        tx_power_dbm: launched power, -inf for none.
        rx_power_dbm: received power, -inf for none.
        tx_los: the host's electrical signal is missing.
        rx_los: the light is missing, by the receiver's own threshold.
        tx_lol: the transmitter's clock recovery is not locked.
        rx_lol: the receiver's clock recovery is not locked.
        tx_fault: the transmitter reports a fault.
    """

    number: int
    tx_bias_ma: float | None = None
    tx_power_dbm: float | None = None
    rx_power_dbm: float | None = None
    tx_los: bool | None = None
    rx_los: bool | None = None
    tx_lol: bool | None = None
    rx_lol: bool | None = None
    tx_fault: bool | None = None

    @property
    def in_use(self) -> bool:
        """Whether it has a bias current, or light in either direction."""
        lit = {self.tx_power_dbm, self.rx_power_dbm} - {None, DARK_DBM}
        return bool(self.tx_bias_ma or lit)


CMIS = frozenset((0x18, 0x19, 0x1E))
"""SFF-8024 identifiers of modules with CMIS: QSFP-DD, OSFP, QSFP."""

ALARMS_NOTE = "ethtool prints these flags on the wrong lanes (cmis.c, by its source of 2025)"
"""Of a CMIS module's lanes: the flags of a byte are masked by the lane's number, not its bit."""


class Alarm(NamedTuple):
    """A flag that is on; `lane` is None for the module's own temperature or voltage."""

    quantity: Quantity
    level: Level
    lane: int | None = None


def sensors(celsius: float | None, volt: float | None) -> tuple[float | None, float | None]:
    """Return temperature and voltage of a module; None where it has no sensors.

    A passive cable has zeros there: a module with a supply of 0 V would not answer.
    """
    return (None, None) if volt == 0 else (celsius, volt)


@dataclass(frozen=True, slots=True)
class ModuleReading:
    """One reading of a transceiver.

    Attributes:
        identifier: its SFF-8024 number, such as 0x18.
        form: form factor of that number, such as `QSFP28`.
        state: a CMIS module's state, such as `ModuleReady`.
        wavelength_nm: nominal.
        rx_power_is: kind of `rx_power_dbm`; some transceivers report OMA instead of the average.
        thresholds: by quantity and level, in °C, V, mA and dBm.
        alarms: the flags that are on; they latch, so one may be of the past.
        alarms_reported: whether the tool printed flags at all.
        firmware: version of the firmware that runs in a CMIS module, such as `2.9`.
        connector: of its fibers, such as `LC` or `MPO Parallel Optic`.
        compliance: the standards that it states, such as `100G Ethernet: 100G Base-LR4`.
        alarms_note: why the lanes of `alarms` are doubtful; empty where they are not.
    """

    identifier: int | None
    form: str | None
    vendor: str | None
    part: str | None
    serial: str | None
    state: str | None
    wavelength_nm: float | None
    temperature_c: float | None
    voltage_v: float | None
    rx_power_is: RxPowerIs | None
    lanes: tuple[Lane, ...]
    thresholds: Mapping[Quantity, Mapping[Level, float]] = field(default_factory=dict)
    alarms: frozenset[Alarm] = frozenset()
    alarms_reported: bool = False
    firmware: str | None = None
    connector: str | None = None
    compliance: tuple[str, ...] = ()
    alarms_note: str = ""

    @property
    def lanes_in_use(self) -> tuple[Lane, ...]:
        """The lanes with a bias current or light; all lanes, where none has any.

        A module of eight lanes prints all of them, also where it uses four (400GBASE-DR4, FR4).
        """
        return tuple(lane for lane in self.lanes if lane.in_use) or self.lanes


_LANE_FIELDS = frozenset(Lane.__dataclass_fields__) - {"number"}


def lanes_of(columns: Mapping[str, Sequence[float | bool | None]]) -> tuple[Lane, ...]:
    """Return lanes from columns by field of `Lane`; a column, or a value in it, may be missing.

    Raises ValueError if two columns have different lengths.
    """
    assert columns.keys() <= _LANE_FIELDS
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{length} of {name}" for name, length in lengths.items())
        raise ValueError(f"as many values of each kind as there are lanes, not {counts}")
    count = next(iter(lengths.values()), 0)
    return tuple(
        Lane(index + 1, **{name: column[index] for name, column in columns.items()})  # type: ignore[arg-type]
        for index in range(count)
    )


_PLAUSIBLE: Mapping[Quantity, tuple[float, float]] = {
    "temperature": (-128.0, 128.0),
    "voltage": (0.0, 6.5535),
    "tx_bias": (0.0, 1000.0),
    "tx_power": (0.0, 100.0),
    "rx_power": (0.0, 100.0),
}
"""Ranges of the registers of SFF-8472, SFF-8636 and CMIS, in °C, V, mA and mW (rounded up)."""


def plausible(quantity: Quantity, value: float) -> float:
    """Return `value` in °C, V, mA or mW; raises ValueError outside the range of the register."""
    least, most = _PLAUSIBLE[quantity]
    if not least <= value <= most:
        raise ValueError(f"a {quantity} from {least:g} to {most:g}, as a module's registers hold")
    return value
