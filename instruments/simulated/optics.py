"""The light inside a simulated matrix switch: mirrors that move, losses, power monitors."""

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable

from instruments.clock import Clock, Scheduled, Span
from instruments.simulated.randomness import Chance
from instruments.simulated.truth import Truth
from testbeds import Circuit, SimulatedSwitch

DARK_DBM = -60.0
"""What a monitor shows where there is no light: the end of its range."""

_DARK_MW = 10 ** (DARK_DBM / 10)
_LEAST_LOSS_DB = 0.3
_KEPT_NS = 2_000_000_000
_TRIMMED_FROM = 32


class LightTrace:
    """The power at one egress over time, what is already planned included."""

    def __init__(self) -> None:
        self._times = [0]
        self._levels = [0.0]

    def plan(self, at: int, milliwatt: float) -> None:
        """From `at` on the power is `milliwatt`, until something later is planned."""
        self._times.append(at)
        self._levels.append(milliwatt)
        if len(self._times) > _TRIMMED_FROM:
            old = max(bisect_right(self._times, at - _KEPT_NS) - 1, 0)
            del self._times[:old]
            del self._levels[:old]

    @property
    def settled(self) -> int:
        """When the last change that is planned has happened."""
        return self._times[-1]

    def forget_plans(self, now: int) -> None:
        """Drop what was planned for after `now`."""
        keep = bisect_right(self._times, now)
        del self._times[keep:]
        del self._levels[keep:]

    def mean(self, start: int, end: int) -> float:
        """Mean power in mW from `start` to `end`; before the first change it was as it was then."""
        if self._times[-1] <= start:
            return self._levels[-1]
        index = max(bisect_right(self._times, end) - 1, 0)
        if index == 0 or self._times[index] <= start:
            return self._levels[index]
        energy, until = 0.0, end
        while until > start:
            since = max(self._times[index], start) if index else start
            energy += self._levels[index] * (until - since)
            until = since
            index -= 1
        return energy / (end - start)


OnLight = Callable[[int, int | None, int], None]
"""Called with an egress, the ingress whose light now leaves there (None: dark), and when."""


class Matrix:
    """The mirrors and monitors of one simulated switch.

    Args:
        name: the switch's name; its egress ports are subjects of the truth.
        truth_of: the latent delays and losses.
        launch: power in dBm that enters at an ingress, None where nothing is cabled.
        on_light: told of every change of light at an egress, when it happens.
    """

    def __init__(
        self,
        name: str,
        truth_of: SimulatedSwitch,
        clock: Clock,
        chance: Chance,
        truth: Truth,
        launch: Callable[[int], float | None],
        on_light: OnLight,
    ) -> None:
        self.name = name
        self.egress_of: dict[int, int] = {}
        self.ingress_of: dict[int, int] = {}
        self._is = truth_of
        self._clock = clock
        self._chance = chance
        self._delays = chance.stream(f"{name}/delays")
        self._noise = chance.stream(f"{name}/noise")
        self._truth = truth
        self._launch = launch
        self._on_light = on_light
        self._traces: dict[int, LightTrace] = {}
        self._planned: dict[int, list[Scheduled]] = {}
        self._losses: dict[Circuit, float] = {}

    # ------------------------------------------------------------------------ mirrors

    def connect(self, circuits: Collection[Circuit]) -> int:
        """Start moving light onto `circuits`; returns in how many ns the switch says done.

        A port in use is moved: whatever it was part of goes dark.
        """
        now = self._clock.now()
        for circuit in circuits:
            if self.egress_of.get(circuit.ingress) == circuit.egress:
                continue
            for port in circuit:
                self._part(port, now)
        for circuit in circuits:
            if self.egress_of.get(circuit.ingress) == circuit.egress:
                continue
            self.egress_of[circuit.ingress] = circuit.egress
            self.ingress_of[circuit.egress] = circuit.ingress
            at = now + self._delays.duration(self._is.settle, len(circuits))
            power = self._launch(circuit.ingress)
            if power is not None:
                at = max(at, self._trace(circuit.egress).settled)  # the old light goes first
                self._plan(circuit.egress, circuit.ingress, at, power - self.loss(circuit))
        return self._delays.duration(self._is.acknowledge, len(circuits))

    def disconnect(self, ports: Iterable[int]) -> int:
        """Start parting whatever `ports` are part of; returns in how many ns that is done."""
        now = self._clock.now()
        parted = sum(self._part(port, now) for port in ports)
        return self._delays.duration(self._is.acknowledge, parted)

    def loss(self, circuit: Circuit) -> float:
        """The insertion loss of `circuit` in dB, always the same for one seed."""
        if circuit not in self._losses:
            draw = self._chance.stream(f"{self.name}/loss/{circuit}").normal()
            loss = self._is.loss.mean + self._is.loss.sd * draw
            self._losses[circuit] = max(loss, _LEAST_LOSS_DB)
        return self._losses[circuit]

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
            self._plan(egress, None, now + self._delays.duration(self._is.dark), None)
        return True

    def _plan(self, egress: int, ingress: int | None, at: int, dbm: float | None) -> None:
        self._trace(egress).plan(at, 0.0 if dbm is None else 10 ** (dbm / 10))

        def happen() -> None:
            moment = Span(at, at)
            self._truth.note(f"{self.name}.{egress}", "light", up=ingress is not None, at=moment)
            self._on_light(egress, ingress, at)

        self._planned.setdefault(egress, []).append(
            self._clock.schedule(at, f"{self.name}.{egress:05d}", happen)
        )
        del self._planned[egress][:-4]

    # ----------------------------------------------------------------------- monitors

    @property
    def averaging(self) -> int:
        """The monitors' averaging window in ns."""
        return self._is.monitor.averaging_ns

    def readings(self, egresses: Iterable[int]) -> list[float]:
        """What the monitors of `egresses` show now, in dBm."""
        now = self._clock.now()
        start = now - self._is.monitor.averaging_ns
        noise, normal = self._is.monitor.noise_db, self._noise.normal
        shown = []
        for egress in egresses:
            power = self._trace(egress).mean(start, now)
            if power <= _DARK_MW:
                shown.append(DARK_DBM)
            else:
                shown.append(max(10 * math.log10(power) + noise * normal(), DARK_DBM))
        return shown

    def _trace(self, egress: int) -> LightTrace:
        if egress not in self._traces:
            self._traces[egress] = LightTrace()
        return self._traces[egress]
