"""Optics of a simulated matrix switch: mirrors that move, losses, power monitors."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from lightrig.instruments.clock import Clock, Scheduled, Span
from lightrig.instruments.simulated.world.ambient import Ambient
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.light import LightTrace, Stokes
from lightrig.instruments.simulated.world.randomness import Chance, Stream
from lightrig.instruments.simulated.world.switching_edges import (
    LEVEL_CHANGE,
    SUDDEN_FALL,
    SUDDEN_RISE,
    EdgeStep,
    fall,
    rise,
)
from lightrig.testbeds import Circuit, Delay, SimulatedSwitch

DARK_DBM = -60.0
"""Reading of a monitor without light: the end of its range."""

_DARK_MW = 10 ** (DARK_DBM / 10)
_LEAST_LOSS_DB = 0.3
_SOON_DARK_NS = 2_000_000
_LOSS_C = 25.0
"""Temperature at which a circuit has the loss that was drawn."""
_WARMED_NS = 10_000_000_000
"""Interval at which losses follow the temperature."""
_CROSSTALK_SD_DB = 3.0
"""Spread of crosstalk from pair to pair of ports; chosen, not from a data sheet."""
_HOUR_NS = 3_600_000_000_000

OnLight = Callable[[int, int | None, int], None]
"""Called with an egress, the ingress whose light now leaves there (None: dark), and when."""


@dataclass(frozen=True, slots=True)
class PortFaults:
    """Faults at a switch's ports: excess loss in dB by port, and stuck monitors."""

    losses: Mapping[int, float] = field(default_factory=dict)
    stuck: frozenset[int] = frozenset()


class Matrix:
    """The mirrors and monitors of one simulated switch.

    Args:
        name: the switch's name; its egress ports are subjects of the ground truth.
        truth_of: the true delays and losses.
        launch: returns the power in dBm that enters at an ingress, None without a cable.
        on_light: called at every change of light at an egress.
        arriving: mean power in mW at an ingress between two times, for monitors there.
        faults: lab faults at its ports.
        ambient: temperature around it; None for one that stays at 25 °C.
        detuning: wavelength in nm of the light that enters at an ingress, above 1550 nm.
        polarization: state of the light that enters at an ingress; None where it is unknown.
        on_leak: called with a dark egress, the power in mW that leaves there, and when.
        egress_ports: where crosstalk may leave.

    Attributes:
        egress_of, ingress_of: the circuits, by either port.
        shut: ports with closed shutters.
        clock, detuning, polarization: as given; faults of light and monitors replace them.
        delays: source of the times that a change takes.
    """

    def __init__(
        self,
        name: str,
        truth_of: SimulatedSwitch,
        clock: Clock,
        chance: Chance,
        truth: GroundTruth,
        launch: Callable[[int], float | None],
        on_light: OnLight,
        arriving: Callable[[int, int, int], float] = lambda ingress, start, end: 0.0,
        faults: PortFaults = PortFaults(),
        ambient: Ambient | None = None,
        detuning: Callable[[int], float] = lambda ingress: 0.0,
        polarization: Callable[[int], Stokes | None] = lambda ingress: None,
        on_leak: Callable[[int, float, int], None] = lambda egress, milliwatt, at: None,
        egress_ports: Iterable[int] = (),
    ) -> None:
        self.name = name
        self.egress_of: dict[int, int] = {}
        self.ingress_of: dict[int, int] = {}
        self._truth_of = truth_of
        self.clock = clock
        self._chance = chance
        self.delays = chance.stream(f"{name}/delays")
        self._noise = chance.stream(f"{name}/noise")
        self._truth = truth
        self._launch = launch
        self._on_light = on_light
        self._arriving = arriving
        self._attenuation: dict[int, float] = {}
        self._ceilings: dict[int, Callable[[float], float]] = {}
        self._settles: dict[int, int] = {}
        self.shut: set[int] = set()
        self._traces: dict[int, LightTrace] = {}
        self._planned: dict[int, list[Scheduled]] = {}
        self._losses: dict[Circuit, float] = {}
        self._port_draws: dict[int, float] = {}
        self._windows: dict[int, int] = {}
        self._faults = faults
        self._made = chance.stream(f"{name}/made")
        self._made_db: dict[int, float] = {}
        self._polarized_db: dict[int, float] = {}
        monitor = truth_of.monitor
        self._faithful = not (monitor.offset_db or monitor.drift_db or faults.stuck)
        self._offsets: dict[int, tuple[float, float]] = {}
        self._stuck_at: dict[int, float] = {}
        self._ambient = ambient
        self.detuning = detuning
        self.polarization = polarization
        self._on_leak, self._egress_ports = on_leak, tuple(egress_ports)
        self._leaks: dict[tuple[Circuit, int], float] = {}
        self._axes: dict[Circuit, Stokes] = {}
        self._slopes: dict[Circuit, tuple[float, float]] = {}
        self._rise, self._fall = rise(truth_of.edge), fall(truth_of.edge)
        self._most_pending = 4 * max(len(self._rise), len(self._fall))
        if ambient is not None and truth_of.loss.per_kelvin_db:
            self._follow_temperature()

    # ------------------------------------------------------------------------ mirrors

    def set_switching_time(self, duration: int) -> None:
        """Let every change take `duration` ns from now on, for the light and the reply."""
        soon = Delay(min(duration // 4, _SOON_DARK_NS))
        whole = Delay(duration)
        self._truth_of = replace(self._truth_of, acknowledge=whole, settle=whole, dark=soon)

    def connect(self, circuits: Collection[Circuit]) -> int:
        """Begin to make `circuits`; return the time to the acknowledgement, in ns.

        A port in use is moved: the circuit that it was part of goes dark.
        """
        now = self.clock.now()
        for circuit in circuits:
            if self.egress_of.get(circuit.ingress) == circuit.egress:
                continue
            for port in circuit:
                self._part(port, now)
        for circuit in circuits:
            if self.egress_of.get(circuit.ingress) == circuit.egress:
                continue
            self._make(circuit.egress)
            at = now + self.delays.duration(self._truth_of.settle, len(circuits))
            # The old light must have left this egress before the new one arrives: its loss is
            # planned for a drawn time, which may be later than the drawn settling time.
            at = max(at, self._trace(circuit.egress).settled)
            self._settles[circuit.egress] = at + self._rise[-1].after
            # Only now: in real time the light of a switch before this one may come at any moment,
            # on the clock's thread, and needs to know when these mirrors have settled.
            self.egress_of[circuit.ingress] = circuit.egress
            self.ingress_of[circuit.egress] = circuit.ingress
            power = self._output(circuit)
            if power is not None:
                self._plan(circuit.egress, circuit.ingress, at, power, self._rise)
        return self.delays.duration(self._truth_of.acknowledge, len(circuits))

    def disconnect(self, ports: Iterable[int]) -> int:
        """Begin to disconnect the circuits at `ports`; return the ns to the acknowledgement."""
        now = self.clock.now()
        parted = sum(self._part(port, now) for port in ports)
        return self.delays.duration(self._truth_of.acknowledge, parted)

    def loss(self, circuit: Circuit) -> float:
        """Return the insertion loss of `circuit` in dB at this temperature and wavelength.

        The same for one seed. Repeatability and polarization add a small deviation each time that
        the circuit is made.
        """
        if circuit not in self._losses:
            draw = self._chance.stream(f"{self.name}/loss/{circuit}").normal()
            self._losses[circuit] = self._drawn(circuit, draw)
        spread = self._truth_of.loss
        if not spread.per_kelvin_db and not spread.per_nm_db:
            return self._losses[circuit]
        if circuit not in self._slopes:
            draws = self._chance.stream(f"{self.name}/slopes/{circuit}")
            self._slopes[circuit] = draws.normal(), draws.normal()
        by_kelvin, by_nm = self._slopes[circuit]
        warmer = 0.0 if self._ambient is None else self._ambient.celsius - _LOSS_C
        more = spread.per_kelvin_db * by_kelvin * warmer
        more += spread.per_nm_db * by_nm * self.detuning(circuit.ingress)
        return max(self._losses[circuit] + more, _LEAST_LOSS_DB)

    def sound_loss(self, circuit: Circuit, draws: Stream) -> float:
        """Return the loss of a circuit without faults, made and read once more, in dB."""
        spread, noise = self._truth_of.loss, self._truth_of.monitor.noise_db
        found = self.loss(circuit) - sum(self._faults.losses.get(port, 0.0) for port in circuit)
        found += spread.repeatability_db * draws.normal() + noise * draws.normal() / 2
        return found + spread.polarization_db / 2 * math.erf(draws.normal() / math.sqrt(2))

    def losses(self, circuits: Sequence[Circuit]) -> list[float]:
        """Return the `loss` of each of many circuits, drawn together."""
        new = [circuit for circuit in circuits if circuit not in self._losses]
        begin = f"{self.name}/loss/"
        names = [begin + str(circuit) for circuit in new]
        for circuit, draw in zip(new, self._chance.first_normals(names), strict=True):
            self._losses[circuit] = self._drawn(circuit, draw)
        return [self.loss(circuit) for circuit in circuits]

    def _drawn(self, circuit: Circuit, draw: float) -> float:
        """Return the loss of a circuit as made, in dB, by its standard normal `draw`."""
        spread = self._truth_of.loss
        loss = spread.mean + spread.sd * draw
        if spread.ingress_db or spread.egress_db:
            for port, sd in zip(circuit, (spread.ingress_db, spread.egress_db), strict=True):
                if sd:
                    if port not in self._port_draws:
                        stream = self._chance.stream(f"{self.name}.{port}/loss")
                        self._port_draws[port] = stream.normal()
                    loss += sd * self._port_draws[port]
        loss = max(loss, _LEAST_LOSS_DB)
        excess = self._faults.losses
        return loss + sum(excess.get(port, 0.0) for port in circuit) if excess else loss

    def _make(self, egress: int) -> None:
        """Draw by how much the circuit to `egress` differs from its loss, made this time."""
        spread = self._truth_of.loss
        if not spread.repeatability_db and not spread.polarization_db:
            return
        self._made_db[egress] = spread.repeatability_db * self._made.normal()
        if spread.polarization_db:
            # A random polarization projects evenly onto the axis of greatest loss.
            self._polarized_db[egress] = (
                spread.polarization_db / 2 * math.erf(self._made.normal() / math.sqrt(2))
            )

    def polarization_db(self, circuit: Circuit) -> float:
        """Return by how much the loss of `circuit` exceeds its mean, by its light's polarization.

        Transmission over all states is 1 + d·s, with the Stokes vector s of the light and the
        vector d of the circuit; (1 + |d|) / (1 - |d|) is the polarization dependent loss.
        """
        stokes, whole = self.polarization(circuit.ingress), self._truth_of.loss.polarization_db
        if stokes is None or not whole:
            return self._polarized_db.get(circuit.egress, 0.0)
        if circuit not in self._axes:
            draws = self._chance.stream(f"{self.name}/axis/{circuit}")
            axis = [draws.normal() for _ in range(3)]
            length = math.hypot(*axis)
            self._axes[circuit] = axis[0] / length, axis[1] / length, axis[2] / length
        share = math.tanh(whole * math.log(10) / 20)
        along = sum(a * s for a, s in zip(self._axes[circuit], stokes, strict=True))
        return -10 * math.log10(1 + share * along)

    def _follow_temperature(self) -> None:
        for ingress in tuple(self.egress_of):
            self.relight(ingress)
        at = self.clock.now() + _WARMED_NS
        self.clock.schedule(at, f"{self.name}!temperature", self._follow_temperature)

    def relight(self, ingress: int) -> None:
        """Update the light after a change of the power that enters at `ingress`."""
        egress = self.egress_of.get(ingress)
        if egress is not None:
            self._relight(Circuit(ingress, egress))

    def shutter(self, port: int, *, shut: bool) -> None:
        """Close the shutter of a port, or open it."""
        (self.shut.add if shut else self.shut.discard)(port)
        self._relight_at(port)

    def attenuate(self, egress: int, decibel: float) -> None:
        """Attenuate what leaves at `egress`."""
        self._attenuation[egress] = decibel
        self._relight_at(egress)

    def attenuation(self, egress: int) -> float:
        """Return the attenuation at `egress`, in dB."""
        return self._attenuation.get(egress, 0.0)

    def limit(self, egress: int, ceiling: Callable[[float], float] | None) -> None:
        """Limit the power at `egress` to `ceiling` of the power that enters its circuit, in dBm."""
        if ceiling is None:
            self._ceilings.pop(egress, None)
        else:
            self._ceilings[egress] = ceiling
        self._relight_at(egress)

    def entering(self, ingress: int) -> float | None:
        """Return the power that enters at `ingress` now, in dBm; None in the dark."""
        return self._launch(ingress)

    def level(self, egress: int) -> float:
        """Return the power that leaves at `egress` now, in mW."""
        now = self.clock.now()
        return self._trace(egress).mean(now, now)

    def _relight_at(self, port: int) -> None:
        ingress = port if port in self.egress_of else self.ingress_of.get(port)
        if ingress is not None:
            self.relight(ingress)

    def _relight(self, circuit: Circuit) -> None:
        """Bring the light of a made circuit up to date, once its mirrors have settled."""
        # While mirrors still move, the change is due when they have settled; the arrival that
        # was planned for that moment is replaced, or the light would be announced twice.
        at = max(self.clock.now(), self._settles[circuit.egress])
        trace = self._trace(circuit.egress)
        lit = trace.last > 0
        if lit and trace.settled >= at and self._planned.get(circuit.egress):
            trace.forget_plans(at - 1)
            self._planned[circuit.egress].pop().cancel()
            lit = False
        power = self._output(circuit)
        if power is not None:
            steps = LEVEL_CHANGE if lit else SUDDEN_RISE
            self._plan(circuit.egress, circuit.ingress, at, power, steps)
        elif trace.last > 0:
            self._plan(circuit.egress, None, at, None, SUDDEN_FALL)

    def _output(self, circuit: Circuit) -> float | None:
        """Return the power that `circuit` delivers to its egress, in dBm; None for no light."""
        power = self._launch(circuit.ingress)
        if power is None or not self.shut.isdisjoint(circuit):
            return None
        leaving = power - self.loss(circuit) - self.attenuation(circuit.egress)
        leaving -= self._made_db.get(circuit.egress, 0.0) + self.polarization_db(circuit)
        ceiling = self._ceilings.get(circuit.egress)
        return leaving if ceiling is None else min(leaving, ceiling(power))

    def _part(self, port: int, now: int) -> bool:
        ingress = port if port in self.egress_of else self.ingress_of.get(port)
        if ingress is None:
            return False
        egress = self.egress_of.pop(ingress)
        del self.ingress_of[egress]
        self._trace(egress).forget_plans(now)
        for planned in self._planned.pop(egress, ()):
            planned.cancel()
        if self._trace(egress).mean(now, now) > 0:
            at = now + self.delays.duration(self._truth_of.dark)
            self._plan(egress, ingress, at, None, self._fall)
        return True

    def _plan(
        self,
        egress: int,
        ingress: int | None,
        at: int,
        dbm: float | None,
        steps: tuple[EdgeStep, ...],
    ) -> None:
        """Plan light of `dbm` that comes at `at` in these steps; None for light that goes."""
        trace, up = self._trace(egress), dbm is not None
        level = trace.last if dbm is None else 10 ** (dbm / 10)
        planned = self._planned.setdefault(egress, [])
        for step in steps:
            moment, source = at + step.after, ingress if step.share else None
            trace.plan(moment, level * step.share)
            act = partial(self._arrive, egress, source, moment, up, step.stages)
            planned.append(self.clock.schedule(moment, f"{self.name}.{egress:05d}", act))
        del planned[: -self._most_pending]  # older ones have happened: no more can be pending

    def _arrive(
        self, egress: int, ingress: int | None, at: int, up: bool, stages: tuple[str, ...]
    ) -> None:
        for stage in stages:
            self._truth.note(f"{self.name}.{egress}", stage, up=up, at=Span(at, at))
        self._on_light(egress, ingress, at)
        if self._truth_of.loss.crosstalk_db is not None:
            self._leak(at)

    def crosstalk(self, circuit: Circuit, egress: int) -> float:
        """Return the light at a dark `egress` over that of `circuit`, in dB; the same a seed."""
        mean = self._truth_of.loss.crosstalk_db
        if mean is None:
            return -math.inf
        if (circuit, egress) not in self._leaks:
            draw = self._chance.stream(f"{self.name}/crosstalk/{circuit}/{egress}").normal()
            self._leaks[circuit, egress] = -(mean + _CROSSTALK_SD_DB * draw)
        return self._leaks[circuit, egress]

    def _leak(self, at: int) -> None:
        """Let dark egress ports have the crosstalk of all light that leaves."""
        for egress in self._egress_ports:
            if egress not in self.ingress_of:
                milliwatt = sum(
                    self.level(lit) * 10 ** (self.crosstalk(Circuit(ingress, lit), egress) / 10)
                    for ingress, lit in self.egress_of.items()
                )
                self._on_leak(egress, milliwatt, at)

    # ----------------------------------------------------------------------- monitors

    @property
    def averaging(self) -> int:
        """Averaging window of the monitors, in ns."""
        return self._truth_of.monitor.averaging_ns

    def average(self, port: int, window: int) -> None:
        """Set the averaging window of one port's monitor, in ns."""
        self._windows[port] = window

    def window(self, port: int) -> int:
        """Return the averaging window of the monitor of `port`, in ns."""
        return self._windows.get(port, self._truth_of.monitor.averaging_ns)

    def readings(self, egresses: Iterable[int], ingresses: Iterable[int] = ()) -> list[float]:
        """Return the readings of the monitors of `egresses`, then of `ingresses`, now, in dBm."""
        now = self.clock.now()
        usual = self._truth_of.monitor.averaging_ns
        windows = self._windows
        noise, normal = self._truth_of.monitor.noise_db, self._noise.normal
        shown = []
        egresses, ingresses = tuple(egresses), tuple(ingresses)
        traces = self._traces
        powers = [
            (traces.get(egress) or self._trace(egress)).mean(now - windows.get(egress, usual), now)
            for egress in egresses
        ]
        powers += [
            self._arriving(ingress, now - windows.get(ingress, usual), now) for ingress in ingresses
        ]
        for power in powers:
            if power <= _DARK_MW:
                shown.append(DARK_DBM)
            else:
                shown.append(max(10 * math.log10(power) + noise * normal(), DARK_DBM))
        if self._faithful:
            return shown
        return [
            self._with_errors(port, dbm)
            for port, dbm in zip((*egresses, *ingresses), shown, strict=True)
        ]

    def offset(self, port: int) -> float:
        """Return the error of the monitor of `port` now, in dB."""
        if port not in self._offsets:
            draws = self._chance.stream(f"{self.name}.{port}/monitor")
            monitor = self._truth_of.monitor
            self._offsets[port] = (
                monitor.offset_db * draws.normal(),
                monitor.drift_db * draws.normal(),
            )
        offset, drift = self._offsets[port]
        return offset + drift * self.clock.now() / _HOUR_NS

    def _with_errors(self, port: int, dbm: float) -> float:
        """Apply the errors of a monitor to a reading that has noise only."""
        if dbm > DARK_DBM:
            dbm = max(dbm + self.offset(port), DARK_DBM)
            if port in self._faults.stuck:
                self._stuck_at.setdefault(port, dbm)
        return self._stuck_at.get(port, dbm)

    def _trace(self, egress: int) -> LightTrace:
        if egress not in self._traces:
            self._traces[egress] = LightTrace()
        return self._traces[egress]
