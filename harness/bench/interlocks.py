"""Interlocks: a change after which light can destroy a receiver or harm a switch is refused.

`lightrig check` has judged every transmitter whose greatest power the testbed file states, whatever
circuit is made. What is left is judged here, before anything is sent: changes of circuits, and
settings of instruments that let more light out. The light is that of the switch's monitors, else
what follows from settings, fibers and circuits, through instruments in line and switches in
cascade. A switch must not move a circuit under more than its `switching_power` either. An interlock
that the testbed file overrides is not judged. None of this is a safety device.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from lightrig.harness.bench.light_levels import (
    UNKNOWN_DBM,
    Exposure,
    LightLevels,
    OpenParts,
    damage_dbm,
    is_in_line,
)
from lightrig.harness.statistics.uncertainty import Margin, margin
from lightrig.instruments.core.capabilities import (
    HasLightLevel,
    HasSettings,
    LightSource,
    PowerMonitor,
    SetsLight,
)
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import (
    Circuit,
    LightrigError,
    Plan,
    Port,
    SwitchSpec,
    Testbed,
    TransceiverSpec,
    format_dbm,
)
from lightrig.testbeds.intervals import interval
from lightrig.testbeds.light_paths import LightPath, light_paths

_LIT = frozenset(("light_source", "attenuator"))
"""Kinds any of whose settings may raise light, where the driver does not say which do."""
_DUST_DB = 1e-6
"""Rounding error of a power that is met exactly."""


class InterlockError(LightrigError):
    """A change would bring too much light to a receiver or a switch."""


class Interlocks:
    """The interlocks of a bench's optical switches and instruments."""

    def __init__(self, parts: OpenParts) -> None:
        self._parts = parts
        self._testbed = parts.testbed

    @cached_property
    def _exposure(self) -> Exposure | None:
        overridden = "receiver_damage" in self._testbed.overrides
        return None if overridden else Exposure(self._testbed)

    def check(
        self,
        switch: str,
        before: frozenset[Circuit],
        after: frozenset[Circuit],
        at_once: Mapping[str, frozenset[Circuit]],
    ) -> None:
        """Raise `InterlockError`, with all ports, if a change would meet too much light.

        at_once: circuits that other switches have before or after it. Contacts an instrument only
        where the testbed file states a limit that is not judged without.
        """
        made, removed = after - before, before - after
        self._check_circuits(f"{switch} is not changed", switch, made, removed, after, at_once)

    def _check_circuits(
        self,
        refused: str,
        switch: str,
        made: frozenset[Circuit],
        removed: frozenset[Circuit],
        after: frozenset[Circuit],
        at_once: Mapping[str, frozenset[Circuit]],
        unmeasured: frozenset[int] = frozenset(),
    ) -> None:
        """Raise `InterlockError`, which begins with `refused`, as `check` does.

        unmeasured: ports of which what a monitor reads is not what will come.
        """
        spec = self._testbed.switches[switch]
        exposed = self._exposure.ingress if self._exposure else frozenset()
        destroying = {c for c in made if Port(switch, str(c.ingress)) in exposed}
        switching: frozenset[int] = frozenset()
        if spec.switching_max_dbm is not None and "switching_power" not in self._testbed.overrides:
            switching = frozenset(circuit.ingress for circuit in made | removed)
        ingress = sorted({*(circuit.ingress for circuit in destroying), *switching})
        if not ingress:
            return
        asked = [port for port in ingress if port not in unmeasured]
        measured = self._measured(switch, asked) if asked else {}
        levels = LightLevels(self._parts, {**at_once, switch: after})
        problems: list[str] = []
        for port in ingress:
            for circuit in sorted(c for c in destroying if c.ingress == port):
                fed_anew = self._behind(Port(switch, str(port))) in at_once.keys() - {switch}
                seen = None if fed_anew else measured.get(port)
                problems += self._too_destructive(switch, circuit, levels, seen)
            if port in switching:
                problems += self._too_bright(spec, port, measured.get(port))
        if problems:
            raise self._refusal(refused, problems)

    def _check_opening(self, switch: str, port: int) -> None:
        """Raise `InterlockError` if light that the shutter of `port` blocks must not pass.

        To let light pass to a receiver is judged as to make the circuits of the port.
        """
        circuits = self._parts.switches[switch].circuits()
        ingress, egress = self._testbed.cabling.cabled_ports(switch)
        made = frozenset(c for c in circuits if port in (c.ingress, c.egress))
        refused = f"the shutter of port {port} of {switch} is not opened"
        if foreign := [c for c in made if c.ingress not in ingress or c.egress not in egress]:
            raise InterlockError(
                f"{refused}: {', '.join(map(str, sorted(foreign)))} is there, and one of its ports "
                "is not this testbed's\n  try       disconnect it by hand"
            )
        # Behind a closed shutter a monitor may see less than will come when it is open.
        closed = frozenset((port,))
        try:
            self._check_circuits(refused, switch, made, frozenset(), circuits, {}, closed)
        except InterlockError as error:
            fiber = self._testbed.cabling.fiber_to(Port(switch, str(port)))
            if fiber is None or not self._is_unstated(fiber.source):
                raise
            source = fiber.source.owner
            raise InterlockError(
                f"{error}; `lightrig set` with {source} off before the shutter, in one command, "
                "knows that no light comes"
            ) from error

    def check_setting(self, name: str, setting: str, value: float) -> None:
        """Raise `InterlockError` if `value` of a setting would let too much light at a receiver.

        Of a switch the setting is the shutter of a port; to open it is judged as `check` judges
        the circuits of that port. Contacts instruments only where the light of `name` can exceed
        what a receiver withstands.
        """
        if name in self._parts.switches:
            if value:
                self._check_opening(name, int(setting.rpartition(" ")[2]))
            return
        if self._exposure is None or name not in self._exposure.instruments:
            return
        instrument = self._parts.instruments[name]
        assert isinstance(instrument, HasSettings)
        number = setting.rpartition(" ")[2]
        channels = [int(number)] if number.isdecimal() else [1]
        present = instrument.read_settings(channels)
        if setting not in self.raised(name, present, {setting: value}):
            return
        problems: list[str] = []
        for port in (Port(name, str(channel)) for channel in channels):
            levels = LightLevels(self._parts, {})
            was = levels.leaving(port), levels.leaving(port, in_lanes=True)
            if isinstance(instrument, HasLightLevel):
                wanted = {**present, setting: value}
                levels.set_level(port, instrument.light_level(wanted, int(port.name)))
            else:
                levels.set_level(port, None)
            for sink, lost in levels.receivers(port):
                damage, in_lanes = self._damage(sink)
                leaves = levels.leaving(port, in_lanes=in_lanes)
                if damage is None or leaves <= max(damage + lost, was[in_lanes]) + _DUST_DB:
                    continue
                light = "light of unknown power" if leaves == UNKNOWN_DBM else format_dbm(leaves)
                problems.append(
                    f"{light} from {port} would reach {_destroyed(sink, damage + lost)}"
                )
        if problems:
            shown = f"{value:g}" if not isinstance(value, bool) else "on" if value else "off"
            raise self._refusal(f"{setting} of {name} is not set to {shown}", problems)

    def raised(
        self, name: str, present: Mapping[str, float], wanted: Mapping[str, float]
    ) -> frozenset[str]:
        """Return the settings of an instrument that switch light on or raise it, if changed."""
        instrument = self._parts.instruments[name]
        assert isinstance(instrument, HasSettings)
        if isinstance(instrument, SetsLight):
            return instrument.raises_light(present, wanted)
        if self._testbed.instruments[name].kind not in _LIT:
            return frozenset()
        return frozenset(
            setting
            for setting, value in wanted.items()
            if value is not False
            and (
                setting not in present
                or not instrument.same_setting(setting, present[setting], value)
            )
        )

    def _refusal(self, what: str, problems: list[str]) -> InterlockError:
        return InterlockError(
            f"{what}: "
            + "; ".join(problems)
            + "\n  try       switch the light off, close its shutter, or attenuate it; "
            f"`overrides:` in {self._testbed.path} switches an interlock off, with a reason"
        )

    def _damage(self, sink: Port) -> tuple[float | None, bool]:
        """Return what damages a receiver in dBm, and whether that is of one of its lanes."""
        return damage_dbm(self._testbed, sink), sink.owner not in self._testbed.instruments

    def _too_destructive(
        self, switch: str, circuit: Circuit, levels: LightLevels, measured: float | None
    ) -> Iterator[str]:
        """Yield why light must not pass `circuit`, if so.

        Where a monitor measures it, that counts. Otherwise a light source at the ingress that
        states no `launch:` must be off, whatever it is set to.
        """
        ingress = Port(switch, str(circuit.ingress))
        fiber = self._testbed.cabling.fiber_to(ingress)
        if fiber is None:
            return
        unstated = self._is_unstated(fiber.source)
        for sink, lost in levels.receivers(Port(switch, str(circuit.egress))):
            damage, in_lanes = self._damage(sink)
            if damage is None:
                continue
            destroyed = _destroyed(sink, damage + lost)
            level = levels.entering(ingress, in_lanes=in_lanes)
            if measured is not None:
                apart = levels.entering(ingress) - level if math.isfinite(level) else 0.0
                if measured - apart > damage + lost:
                    light = f"{format_dbm(measured)} at ingress {ingress.name}"
                    yield f"{light} would reach {destroyed}"
                continue
            if level == UNKNOWN_DBM or (unstated and level > -math.inf):
                yield (
                    f"light of {fiber.source}, which is not measured and whose `launch:` is not "
                    f"stated, would reach {destroyed}"
                )
            elif level > damage + lost + _DUST_DB:
                yield (
                    f"up to {format_dbm(level)} at ingress {ingress.name}, by the settings of "
                    f"what lies before it, would reach {destroyed}"
                )

    def _behind(self, sink: Port) -> str | None:
        """Return what the light at `sink` comes from, past instruments in line."""
        fiber = self._testbed.cabling.fiber_to(sink)
        while fiber is not None and is_in_line(self._testbed, fiber.source):
            fiber = self._testbed.cabling.fiber_to(fiber.source)
        return None if fiber is None else fiber.source.owner

    def _is_unstated(self, source: Port) -> bool:
        spec = self._testbed.instruments.get(source.owner)
        return spec is not None and spec.kind == "light_source" and spec.launch_max_dbm is None

    def _too_bright(self, spec: SwitchSpec, ingress: int, measured: float | None) -> Iterator[str]:
        """Yield why a circuit of `ingress` must not be changed now, if so."""
        most = spec.switching_max_dbm
        assert most is not None
        allowed = f"more than the {format_dbm(most)} under which it may be switched"
        if measured is not None:
            if measured > most:
                yield f"ingress {ingress} has {format_dbm(measured)}, {allowed}"
            return
        fiber = self._testbed.cabling.fiber_to(Port(spec.name, str(ingress)))
        if fiber is None or self._emission(fiber.source) is False:
            return
        launched = self._launched(fiber.source)
        if launched is None:
            yield f"ingress {ingress} is not measured, and the power of {fiber.source} not stated"
        elif launched - fiber.loss_db > most:
            yield (
                f"ingress {ingress} is not measured, and {fiber.source} launches up to "
                f"{format_dbm(launched)}{self._assumed(fiber.source)}, {allowed}"
            )

    def _emission(self, source: Port) -> bool | None:
        """Return whether a light source of the bench is on, None for anything else."""
        instrument = self._parts.instruments.get(source.owner)
        spec = self._testbed.instruments.get(source.owner)
        if spec is None or spec.kind != "light_source" or not isinstance(instrument, LightSource):
            return None
        return instrument.emission(int(source.name))

    def _launched(self, source: Port) -> float | None:
        """Return the greatest power that `source` launches into its fiber, None if not stated."""
        if (instrument := self._testbed.instruments.get(source.owner)) is not None:
            return instrument.launch_max_dbm
        transceiver = self._transceiver(source)
        return transceiver.fiber_launch_max_dbm if transceiver is not None else None

    def _assumed(self, source: Port) -> str:
        transceiver = self._transceiver(source)
        return transceiver.assumed_wavelengths if transceiver is not None else ""

    def _transceiver(self, port: Port) -> TransceiverSpec | None:
        if port.owner in self._testbed.instruments or port.owner in self._testbed.optical_switches:
            return None
        return self._testbed.transceiver_of(port)

    def _measured(self, switch: str, ports: list[int]) -> Mapping[int, float]:
        """Return the power at `ports`, empty where the switch has no monitors there.

        A source that was switched just before is seen in full: the reading that counts averages
        over time after the first one alone.
        """
        monitor = self._parts.switches[switch]
        if not isinstance(monitor, PowerMonitor):
            return {}
        try:
            window = monitor.power(ports).window
            self._parts.clock.sleep(window)
            return monitor.power(ports).dbm
        except DeniedError:
            return {}


def _destroyed(sink: Port, most: float) -> str:
    return f"{sink}, whose receiver is destroyed by more than {format_dbm(most)} from there"


class BudgetError(LightrigError):
    """The received power of a path of a plan is certainly below the receiver's sensitivity."""


class BudgetWarning(UserWarning):
    """The received power of a path of a plan may be below the receiver's sensitivity."""


class KnownLoss(NamedTuple):
    """A measured loss and its standard uncertainty, both in dB."""

    value: float
    standard: float


class PowerBudget:
    """The measured losses of a testbed's circuits, and the margins of its plans."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._known: dict[tuple[str, Circuit], KnownLoss] = {}

    def add_measured(self, switch: str, losses: Mapping[Circuit, KnownLoss]) -> None:
        """Add measured losses of circuits of a switch."""
        self._known |= {(switch, circuit): loss for circuit, loss in losses.items()}

    def margins(self, plan: Plan) -> Iterator[tuple[LightPath, Margin]]:
        """Yield the margin of each path of `plan` whose circuits were all measured.

        The launched power is taken as uniform between the transmitter's limits, the sensitivity
        from the transceiver's type, the losses of fibers from the testbed file.
        """
        if not self._known:
            return
        for path in light_paths(self._testbed.cabling, plan):
            sender, receiver = self._transceiver(path.source), self._transceiver(path.sink)
            stages = [self._known.get(crossing) for crossing in path.crossings]
            if sender is None or receiver is None or None in stages:
                continue
            middle = (sender.launch.min + sender.launch.max) / 2
            half = (sender.launch.max - sender.launch.min) / 2
            lost: list[tuple[float, float]] = [stage for stage in stages if stage is not None]
            lost += [(fiber.loss_db, 0.0) for fiber in path.fibers]
            needed = receiver.receive.min, 0.0
            yield path, margin((middle, half / math.sqrt(3)), lost, needed)

    def check(self, plan: Plan) -> None:
        """Refuse a plan without margin; warn of one whose margin is within the uncertainty.

        Raises `BudgetError`, naming each path and its margin.
        """
        missing = []
        for path, found in self.margins(plan):
            ends = found.value - found.expanded, found.value + found.expanded
            left = interval(*ends, "dB", found.value)
            finding = f"{path}: {left.value} left of its power budget (95 % interval {left.ends})"
            if found.closes is None:
                warnings.warn(f"plan {plan.name}: {finding}", BudgetWarning, stacklevel=4)
            elif not found.closes:
                missing.append(f"{finding}; {self._needs(path.sink)}")
        if missing:
            raise BudgetError(
                f"plan {plan.name} is not applied, since its light cannot be received:\n  "
                + "\n  ".join(missing)
                + "\n  try: clean the connectors that a measurement of insertion loss names"
            )

    def _needs(self, sink: Port) -> str:
        kind = self._transceiver(sink)
        assert kind is not None
        return f"{sink} needs {format_dbm(kind.receive.min)}"

    def _transceiver(self, port: Port) -> TransceiverSpec | None:
        if port.owner in self._testbed.instruments:
            return None
        return self._testbed.transceiver_of(port)
