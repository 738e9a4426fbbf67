"""Values of a bench by name, as a person at a rack reads and sets them.

A name is INSTRUMENT.CHANNEL.NAME, SWITCH.PORT.NAME or SERVER.NIC.PORT.carrier; the channel may be
left out where there is one.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.port_shutters import SHUTTER
from lightrig.instruments.core.capabilities import HasNic, PowerMonitor
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import LightrigError, Testbed
from lightrig.testbeds.findings import did_you_mean
from lightrig.testbeds.quantities import (
    QuantityError,
    format_dbm,
    format_duration,
    parse_celsius,
    parse_db,
    parse_dbm,
    parse_duration,
    parse_wavelength,
)

Value: TypeAlias = float | bool | str | None

_ONE = "one reading"
NO_MONITOR = "no monitor"
NO_LIGHT = "no light"
_STATES = {SHUTTER: ("closed", "open")}
_OFF_AND_ON = ("off", "on")
_UNITS: Mapping[str, Callable[[str], float]] = {
    "dBm": parse_dbm,
    "dB": parse_db,
    "nm": parse_wavelength,
    "ns": parse_duration,
    "°C": parse_celsius,
}


class SubjectError(LightrigError, ValueError):
    """A name or a value that a person has stated fits nothing of the bench."""


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A value that was read.

    Attributes:
        name: such as `laser.1.power`.
        value: a number in `unit`, a state, a word; None where there is nothing that tells it.
        unit: of a number, empty for anything else.
        remark: what a person must know beside it; empty mostly.
    """

    name: str
    value: Value
    unit: str = ""
    remark: str = ""

    @property
    def text(self) -> str:
        """The value as a person reads it."""
        shown = shown_value(self.name.rpartition(".")[2], self.value, self.unit)
        return f"{shown} ({self.remark})" if self.remark else shown


@dataclass(frozen=True, slots=True)
class SettingName:
    """A setting of an instrument: `key` is its driver's name for it, such as `power 1`."""

    instrument: str
    key: str

    def __str__(self) -> str:
        kind, _, channel = self.key.rpartition(" ")
        return f"{self.instrument}.{channel}.{kind}" if kind else f"{self.instrument}.{self.key}"


def shown_value(kind: str, value: Value, unit: str) -> str:
    """Return a value of a kind as a person reads it."""
    if isinstance(value, bool):
        return _STATES.get(kind, _OFF_AND_ON)[value]
    if value is None:
        return "not known"
    if isinstance(value, str):
        return value
    if unit == "ns":
        return format_duration(value)
    if unit == "dBm":
        return NO_LIGHT if value == -math.inf else format_dbm(value)
    return f"{value:g} {unit}".rstrip()


def parsed_value(kind: str, text: str, present: Value, unit: str) -> float | bool:
    """Return the value that a person states for a setting that is `present` now.

    Raises `SubjectError`.
    """
    if isinstance(present, bool):
        states = _STATES.get(kind, _OFF_AND_ON)
        if text not in states:
            raise SubjectError(f"found {text!r} for {kind}, expected {states[0]} or {states[1]}")
        return text == states[1]
    try:
        if unit in _UNITS:
            return float(_UNITS[unit](text))
        number = float(text.removesuffix(unit))
    except QuantityError as error:
        raise SubjectError(f"{kind}: {error}") from error
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise SubjectError(
            f"found {text!r} for {kind}, expected a number{f' in {unit}' * bool(unit)}"
        )
    return number


def owners(testbed: Testbed, subjects: Sequence[str]) -> set[str]:
    """Return the instruments, switches and servers that subjects name; all where none is named.

    Raises `SubjectError`.
    """
    known = [*testbed.optical_switches, *testbed.instruments, *testbed.servers]
    if not subjects:
        return set(known)
    named = set(map(owner_of, subjects))
    for each in sorted(named - set(known)):
        raise SubjectError(f"{testbed.path} has no instrument {each!r}{did_you_mean(each, known)}")
    return named


def read(bench: Bench, subjects: Sequence[str]) -> list[NamedValue]:
    """Return the values that subjects name, all of the bench's where none is named.

    Raises `SubjectError` for a subject without a value, and `InstrumentError`.
    """
    found = [
        value
        for name in bench.testbed.optical_switches
        if name in bench.switches
        for value in (*momentary_values(bench, name), *setting_values(bench, name))
    ]
    for name in bench.testbed.instruments:
        if name in bench.instruments:
            found += [*setting_values(bench, name), *momentary_values(bench, name)]
    for name in bench.testbed.servers:
        if name in bench.servers:
            found += _of_server(bench, name)
    if not subjects:
        return found
    names = [value.name for value in found]
    chosen: list[NamedValue] = []
    for subject in subjects:
        matching = [value for value in found if is_named(subject, value.name)]
        if not matching:
            if subject.endswith(f".{SHUTTER}") and (why := _no_shutters(bench, owner_of(subject))):
                raise SubjectError(why)
            raise SubjectError(f"nothing is named {subject!r}{did_you_mean(subject, names)}")
        chosen += [value for value in matching if value not in chosen]
    return chosen


def setting(bench: Bench, name: str) -> tuple[SettingName, float | bool, str]:
    """Return the setting that a person names, its present value and its unit.

    Raises `SubjectError`, also where several channels have it, and `InstrumentError`.
    """
    owner = owner_of(name)
    if owner in bench.switches and (why := _no_shutters(bench, owner)):
        raise SubjectError(why)
    if (instrument := bench.settable.get(owner)) is None:
        raise SubjectError(f"{owner} has no settings that are set by name")
    present = instrument.read_settings(bench.channels(owner))
    names = {str(SettingName(owner, key)): SettingName(owner, key) for key in present}
    matching = [full for full in names if is_named(name, full) and "." in name]
    if len(matching) > 1:
        raise SubjectError(f"{name!r} is {', '.join(matching)}: name one of them")
    if not matching:
        port = name.split(".")[1] if name.endswith(f".{SHUTTER}") else ""
        if owner in bench.switches and port.isdecimal():
            raise SubjectError(f"port {port} of {owner} is not cabled in {bench.testbed.path}")
        raise SubjectError(f"no setting is named {name!r}{did_you_mean(name, names)}")
    found = names[matching[0]]
    kind = found.key.rpartition(" ")[0] or found.key
    return found, present[found.key], instrument.setting_units.get(kind, "")


def is_named(subject: str, name: str) -> bool:
    """Whether a person's subject is a value's name, begins it, or is it without the channel."""
    stated, whole = subject.split("."), name.split(".")
    return whole[: len(stated)] == stated or stated == [whole[0], whole[-1]]


def owner_of(name: str) -> str:
    """Return the instrument, switch or server of a name."""
    return name.partition(".")[0]


def _no_shutters(bench: Bench, switch: str) -> str:
    """Return why a switch has no shutters; empty if it has, or is none."""
    if switch not in bench.switches:
        return ""
    if (shutters := bench.shutters.get(switch)) is None:
        return f"{switch} has no shutters that are set by name"
    return shutters.refusal and f"{switch} has no shutters: {shutters.refusal}"


def setting_values(bench: Bench, name: str) -> Iterator[NamedValue]:
    """Read the settings of an instrument, or a switch's shutters; raises `InstrumentError`."""
    instrument = bench.settable.get(name)
    if instrument is None or _no_shutters(bench, name):
        return
    present = instrument.read_settings(bench.channels(name))
    for key, value in present.items():
        kind, _, channel = key.rpartition(" ")
        unit = instrument.setting_units.get(kind or key, "")
        off = kind == "power" and present.get(f"emission {channel}") is False
        remark = "emission is off" if off else ""
        yield NamedValue(str(SettingName(name, key)), value, unit, remark)


def momentary_values(
    bench: Bench, name: str, unmonitored: set[int] | None = None
) -> Iterator[NamedValue]:
    """Read powers, and circuits, of a switch or an instrument; raises `InstrumentError`.

    unmonitored: ports of the switch that have no monitor, which are not asked for; those that are
    found are added.
    """
    if name in bench.switches:
        yield from _of_switch(bench, name, set() if unmonitored is None else unmonitored)
        return
    instrument = bench.instruments[name]
    if isinstance(instrument, PowerMonitor):
        channels = range(1, bench.testbed.instruments[name].channels + 1)
        for number, dbm in instrument.power(channels).dbm.items():
            yield NamedValue(f"{name}.{number}.power", dbm, "dBm", _ONE)


def _of_switch(bench: Bench, name: str, unmonitored: set[int]) -> Iterator[NamedValue]:
    switch = bench.switches[name]
    ingress, egress = bench.testbed.cabling.cabled_ports(name)
    ports = sorted(ingress | egress)
    circuits = switch.circuits()
    power: Mapping[int, float] = {}
    if isinstance(switch, PowerMonitor):
        power = _powers(switch, ingress, egress, unmonitored)
    of_port: dict[int, list[str]] = {}
    for circuit in sorted(circuits):
        for port in {circuit.ingress} & ingress | {circuit.egress} & egress:
            of_port.setdefault(port, []).append(str(circuit))
    for port in ports:
        yield NamedValue(f"{name}.{port}.circuit", ", ".join(of_port.get(port, ["none"])))
        if port in power:
            yield NamedValue(f"{name}.{port}.power", power[port], "dBm", _ONE)
        else:
            yield NamedValue(f"{name}.{port}.power", NO_MONITOR)


def _powers(
    switch: PowerMonitor,
    ingress: frozenset[int],
    egress: frozenset[int],
    unmonitored: set[int],
) -> Mapping[int, float]:
    """Read the powers of all ports that have monitors; add the others to `unmonitored`."""
    asked = sorted((ingress | egress) - unmonitored)
    with contextlib.suppress(DeniedError):
        return switch.power(asked).dbm if asked else {}
    # Many models have monitors on one side, some on single ports: a refusal names none of them.
    found: dict[int, float] = {}
    for side in (egress, ingress - egress):
        ports = sorted(side - unmonitored)
        try:
            found |= switch.power(ports).dbm if ports else {}
        except DeniedError:
            for port in ports:
                try:
                    found |= switch.power([port]).dbm
                except DeniedError:
                    unmonitored.add(port)
    return found


def _of_server(bench: Bench, name: str) -> Iterator[NamedValue]:
    server = bench.servers[name]
    if not isinstance(server, HasNic):
        return
    for nic in bench.testbed.servers[name].nics.values():
        for spec in nic.ports:
            carrier = server.nic.device(spec.netdev).value.carrier
            yield NamedValue(f"{spec.port}.carrier", "up" if carrier else "down")
