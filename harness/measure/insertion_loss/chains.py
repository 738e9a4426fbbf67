"""Measurement chains for insertion loss: the observers on both sides of each switch.

The most accurate observers of each switch are used: monitors at its egress ports, else a power
meter with bench sources, else the power readings of the transceivers on both sides.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from lightrig.harness.bench import Bench
from lightrig.harness.measure.insertion_loss.observers import (
    Channels,
    Modules,
    Monitors,
    Observer,
    has_module,
)
from lightrig.harness.statistics.uncertainty import Component
from lightrig.instruments.clock import wall_time
from lightrig.instruments.core.capabilities import (
    LightSource,
    OpticalSwitch,
    PowerMeter,
    PowerMonitor,
)
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import Circuit, LightrigError, Port
from lightrig.testbeds.references import References, ReferenceSet

Method: TypeAlias = Literal["monitors", "meter", "modules"]

MODULE_DB = 3.0
"""Accuracy of a transceiver's power reading, ± dB (SFF-8472, SFF-8636)."""

SOURCE_DB = 0.01 / math.sqrt(3) * math.sqrt(2)
"""Standard uncertainty, in dB, of a bench source between its reference and a reading.

Each time its light is switched on it is stable within ±0.01 dB, as data sheets of lasers state.
"""

SOURCE_NM = 1550.0
"""Wavelength of bench sources where no transceiver determines it."""


class NothingToMeasureError(LightrigError):
    """Raised when no insertion loss can be measured on a testbed; states why."""


@dataclass(frozen=True, slots=True)
class Plane:
    """Corrections and uncertainties of the readings at one port of a switch.

    Attributes:
        correction_db: subtracted from a reading.
        components: its uncertainties, apart from noise.
        of: the set of references that the correction comes from.
        relative: why a reading says nothing of the power itself; None where it does.
    """

    correction_db: float = 0.0
    components: tuple[Component, ...] = ()
    of: ReferenceSet | None = None
    relative: str | None = None


@dataclass(frozen=True)
class Chain:
    """One switch, and who sees its light.

    Attributes:
        switch: its name.
        method: how its egress ports are read.
        ingress, egress: the ports that can be measured.
        observers: who reads them.
        launched: power in dBm at the ingress ports without an observer.
        planes: what is known of each port's readings.
        wavelength_nm: of the light, or of most of it.
        sources: light that is to be switched on meanwhile, with its channel.
        entering: power in dBm that should enter at ingress ports that are read as well.
        paired: by ingress and egress, the planes of references that were taken with one meter,
            where they are not those in `planes`, or better known together than each by itself.
        most_dbm: greatest power that the switch's monitors show, where the testbed states it.
        alone: whether one circuit is measured, without the check standard.
    """

    switch: str
    method: Method
    ingress: tuple[int, ...]
    egress: tuple[int, ...]
    observers: tuple[Observer, ...]
    launched: Mapping[int, float]
    planes: Mapping[int, Plane]
    wavelength_nm: float
    sources: tuple[tuple[LightSource, int], ...] = ()
    entering: Mapping[int, tuple[float, Plane]] = field(default_factory=dict)
    paired: Mapping[tuple[int, int], tuple[Plane, Plane]] = field(default_factory=dict)
    most_dbm: float | None = None
    alone: bool = False

    def of_ports(self, ingress: Iterable[int], egress: Iterable[int]) -> "Chain":
        """Return the chain of some of its ports alone."""
        measured = tuple(ingress)
        return replace(
            self,
            ingress=measured,
            egress=tuple(egress),
            launched={n: level for n, level in self.launched.items() if n in measured},
            entering={n: level for n, level in self.entering.items() if n in measured},
        )

    def ends(self, ingress: int, egress: int) -> tuple[Plane, Plane]:
        """Planes of the two ports of a circuit, their references of one meter if possible."""
        apart = self.planes[ingress], self.planes[egress]
        return self.paired.get((ingress, egress), apart)

    def relative(self, ingress: int, egress: int) -> str | None:
        """Reason for which the loss between two ports is only relative; None where it is not."""
        return self.planes[ingress].relative or self.planes[egress].relative

    def of_circuit(self, circuit: Circuit) -> "Chain":
        """The same, narrowed to the two ports of one circuit."""
        ingress, egress = (circuit.ingress,), (circuit.egress,)
        launched = {n: dbm for n, dbm in self.launched.items() if n in ingress}
        entering = {n: found for n, found in self.entering.items() if n in ingress}
        return replace(
            self,
            ingress=ingress,
            egress=egress,
            launched=launched,
            entering=entering,
            alone=True,
        )


def chains(bench: Bench, references: References) -> list[Chain]:
    """The chain of each switch of `bench` that has one; raises `NothingToMeasureError`."""
    found, why = [], []
    for name in bench.switches:
        chain = _Builder(bench, name, references).chain()
        if isinstance(chain, Chain):
            found.append(chain)
        else:
            why.append(chain)
    if not found:
        raise NothingToMeasureError("; ".join(why) or "the testbed has no optical switch")
    return found


class _Builder:
    def __init__(self, bench: Bench, name: str, references: References) -> None:
        self._bench = bench
        self._name = name
        self._references = references
        self._today = wall_time().date()
        cabling = bench.testbed.cabling
        ingress, egress = bench.testbed.working_circuit_ports(name)
        self._from = {n: cabling.transmitter(name, n) for n in sorted(ingress)}
        self._to = {n: cabling.receiver(name, n) for n in sorted(egress)}

    def chain(self) -> Chain | str:
        """The best chain, or why there is none."""
        none = (
            f"{self._name} has no power monitors at cabled egress ports, no light source leads "
            "to a meter through it, and no transceivers at its fibers can be asked"
        )
        return self._by_monitors() or self._by_meter() or self._by_modules() or none

    # ----------------------------------------------------------------------- monitors

    def _by_monitors(self) -> Chain | None:
        switch = self._bench.switches[self._name]
        monitored = monitored_ports(switch, [*self._from, *self._to])
        egress = [n for n in self._to if n in monitored]
        ingress = list(self._from)
        if not (egress and ingress) or not isinstance(switch, PowerMonitor):
            return None
        wavelength = self._wavelength(ingress)
        planes = {n: self._offset(Port(self._name, str(n)), self._name, wavelength) for n in egress}
        launched: dict[int, float] = {}
        entering: dict[int, tuple[float, Plane]] = {}
        for n in ingress:
            level, plane = self._launch(Port(self._name, str(n)), wavelength)
            if n in monitored:
                planes[n] = self._offset(Port(self._name, str(n)), self._name, wavelength)
                entering |= {n: (level, plane)} if plane.relative is None else {}
            else:
                planes[n], launched[n] = plane, level
        watched = Monitors(switch, [n for n in (*ingress, *egress) if n in monitored])
        sources = {n: Port(self._name, str(n)) for n in launched}
        channels = {n: Port(self._name, str(n)) for n in egress}
        return Chain(
            switch=self._name,
            method="monitors",
            ingress=tuple(ingress),
            egress=tuple(egress),
            observers=(watched,),
            launched=launched,
            planes=planes,
            wavelength_nm=wavelength,
            sources=self._sources(ingress),
            entering=entering,
            paired=self._paired(sources, launched, planes, channels, wavelength),
            most_dbm=self._bench.testbed.switches[self._name].monitor_max_dbm,
        )

    # -------------------------------------------------------------------------- meter

    def _by_meter(self) -> Chain | None:
        channels: dict[str, dict[int, int]] = {}
        for n, port in self._to.items():
            if port and self._kind(port) == "power_meter":
                channels.setdefault(port.owner, {})[int(port.name)] = n
        ingress = [n for n, p in self._from.items() if p and self._kind(p) == "light_source"]
        if not channels or not ingress:
            return None
        wavelength = self._wavelength(ingress)
        planes, launched = {}, {}
        from_ports = {n: source for n in ingress if (source := self._from[n]) is not None}
        for n, source in from_ports.items():
            launched[n], planes[n] = self._launch(source, wavelength)
        observers: list[Observer] = []
        at: dict[int, Port] = {}
        cabling = self._bench.testbed.cabling
        for name, ports in channels.items():
            meter: PowerMeter = self._bench.instruments[name]  # type: ignore[assignment]
            observers.append(Channels(meter, ports, wavelength))
            for channel, n in ports.items():
                at[n] = Port(name, str(channel))
                plane = self._offset(
                    Port(name, str(channel)), name, wavelength, lost_db=self._fiber_db(n)
                )
                further = [Component("source", SOURCE_DB, distribution="rectangular")]
                fiber = cabling.fiber_from(Port(self._name, str(n)))
                if fiber is not None and fiber.uncertainty_db:
                    further.append(Component("fiber", fiber.uncertainty_db))
                planes[n] = replace(plane, components=(*plane.components, *further))
        egress = tuple(n for ports in channels.values() for n in ports.values())
        return Chain(
            switch=self._name,
            method="meter",
            ingress=tuple(ingress),
            egress=tuple(sorted(egress)),
            observers=tuple(observers),
            launched=launched,
            planes=planes,
            wavelength_nm=wavelength,
            sources=self._sources(ingress),
            paired=self._paired(from_ports, launched, planes, at, wavelength),
        )

    # ------------------------------------------------------------------------ modules

    def _by_modules(self) -> Chain | None:
        sends = {n: p for n, p in self._from.items() if p and has_module(self._bench, p)}
        receives = {n: p for n, p in self._to.items() if p and has_module(self._bench, p)}
        if not sends or not receives:
            return None
        half = Component("module", MODULE_DB / math.sqrt(3), distribution="rectangular")
        cabling = self._bench.testbed.cabling
        planes = {}
        for n in sends:
            fiber = cabling.fiber_to(Port(self._name, str(n)))
            planes[n] = Plane(fiber.loss_db if fiber else 0.0, (half,))
        planes |= {n: Plane(-self._fiber_db(n), (half,)) for n in receives}
        watched = Modules(self._bench, sends, receives)
        return Chain(
            switch=self._name,
            method="modules",
            ingress=tuple(sends),
            egress=tuple(receives),
            observers=(watched,),
            launched={},
            planes=planes,
            wavelength_nm=self._wavelength(sends),
        )

    # ------------------------------------------------------------------------- inside

    def _kind(self, port: Port) -> str | None:
        spec = self._bench.testbed.instruments.get(port.owner)
        return spec.kind if spec else None

    def _fiber_db(self, egress: int) -> float:
        fiber = self._bench.testbed.cabling.fiber_from(Port(self._name, str(egress)))
        return fiber.loss_db if fiber else 0.0

    def _wavelength(self, ingress: Iterable[int]) -> float:
        """Most common wavelength of the transmitters; bench sources are set to `SOURCE_NM`."""
        testbed = self._bench.testbed
        known = []
        for n in ingress:
            port = self._from[n]
            nic = port is not None and port.owner in testbed.servers
            kind = testbed.transceiver_of(port) if port and nic else None
            known += [kind.wavelength_nm] if kind else []
        return max(sorted(set(known)), key=known.count, default=SOURCE_NM)

    def _sources(self, ingress: Iterable[int]) -> tuple[tuple[LightSource, int], ...]:
        found = []
        for n in ingress:
            port = self._from[n]
            if port and self._kind(port) == "light_source":
                source: LightSource = self._bench.instruments[port.owner]  # type: ignore[assignment]
                found.append((source, int(port.name)))
        return tuple(found)

    def _launch(self, port: Port, wavelength: float) -> tuple[float, Plane]:
        found = self._references.find("launch", port, wavelength, self._today)
        if isinstance(found, str):
            return 0.0, Plane(relative=found)
        return found.value, Plane(0.0, _components(found.of, found.days), found.of)

    def _paired(
        self,
        sources: Mapping[int, Port],
        launched: Mapping[int, float],
        planes: Mapping[int, Plane],
        channels: Mapping[int, Port],
        wavelength: float,
    ) -> dict[tuple[int, int], tuple[Plane, Plane]]:
        """Planes of circuits whose launch was taken with the meter of the egress's reference.

        sources: where the launch of each ingress was taken. channels: where the offset of each
        egress was.
        """
        found = {}
        for leaving, channel in channels.items():
            egress = planes[leaving]
            for entering, source in sources.items():
                ingress = planes[entering]
                if egress.of is None or ingress.of is None:
                    continue
                launch = self._references.find(
                    "launch", source, wavelength, self._today, beside=egress.of
                )
                if not isinstance(launch, str) and launch.of is not ingress.of:
                    components = _components(launch.of, launch.days)
                    # The loss is launched power less what leaves, and `launched` is the other
                    # meter's: its excess over this one's is taken off.
                    correction = launched[entering] - launch.value
                    ingress = Plane(correction, components, launch.of)
                both = ingress, egress
                base = egress.of.base if ingress.of is egress.of else None
                if base is not None and (source == base[0] or channel == base[1]):
                    both = _of_one_connection(ingress), _of_one_connection(egress)
                found[entering, leaving] = both
        return found

    def _offset(self, port: Port, owner: str, wavelength: float, *, lost_db: float = 0.0) -> Plane:
        found = self._references.find("offset", port, wavelength, self._today)
        if isinstance(found, str):
            return Plane(-lost_db, relative=found)
        serial = self._bench.identities[owner].serial
        if not any(each.endswith(f"serial {serial}") for each in found.of.instruments):
            return Plane(
                -lost_db,
                relative=f"the reference {found.of.name} of {port} was taken of another "
                f"instrument than the one that is there, serial {serial}",
            )
        return Plane(found.value - lost_db, _components(found.of, found.days), found.of)


def _of_one_connection(plane: Plane) -> Plane:
    """Return a plane whose references have one connection of three in their difference."""
    parts = (
        replace(part, standard=part.standard / math.sqrt(3)) if part.name == "reference" else part
        for part in plane.components
    )
    return replace(plane, components=tuple(parts))


def _components(of: ReferenceSet, days: int) -> tuple[Component, ...]:
    parts = (("reference", of.each_db), ("drift", of.drift_db * days))
    return tuple(Component(name, db) for name, db in parts if db)


def shared_components(
    entering: ReferenceSet | None, leaving: ReferenceSet | None
) -> list[Component]:
    """Uncertainty components of two references in a loss.

    The calibration error of one meter is in both and cancels; those of two meters do not.
    """
    sets = [each for each in (entering, leaving) if each is not None]
    parts = [
        Component("linearity", max((each.linearity_db for each in sets), default=0.0)),
        Component("polarization", max((each.polarization_db for each in sets), default=0.0)),
        Component("wavelength", max((each.wavelength_db for each in sets), default=0.0)),
    ]
    if entering is None or leaving is None or not entering.shares_meter(leaving):
        parts += [Component("meter calibration", each.common_db) for each in sets]
    return [part for part in parts if part.standard]


def monitored_ports(switch: OpticalSwitch, ports: Iterable[int]) -> frozenset[int]:
    """Return the subset of `ports` that have a power monitor."""
    if not isinstance(switch, PowerMonitor):
        return frozenset()
    stated: Callable[[], frozenset[int]] | None = getattr(switch, "monitored", None)
    if stated is not None:
        return stated() & frozenset(ports)
    return frozenset(port for port in ports if _answers(switch, port))


def _answers(monitor: PowerMonitor, port: int) -> bool:
    try:
        monitor.power([port])
    except DeniedError:
        return False
    return True
