"""Losses of all circuits of one switch, in as few settings as it has ports."""

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lightrig.harness.bench import Fabric
from lightrig.harness.bench.interlocks import KnownLoss
from lightrig.harness.measure.insertion_loss.chains import Chain, Method, shared_components
from lightrig.harness.measure.insertion_loss.check_standards import (
    CheckReading,
    Phase,
    check_components,
    power_budget,
)
from lightrig.harness.measure.insertion_loss.readings import (
    DARK_DBM,
    Numbers,
    Readings,
    Setting,
    beside,
    check_circuits,
    checked_first,
    cyclic_shifts,
    one_by_one,
)
from lightrig.harness.statistics.uncertainty import (
    Budget,
    Component,
    combine,
    pooled,
    readings_needed,
)
from lightrig.instruments.core.capabilities import Restorable
from lightrig.instruments.core.errors import CANNOT, DeniedError
from lightrig.testbeds import Circuit, Plan

TARGETS_DB: Mapping[Method, float] = {"monitors": 0.015, "meter": 0.015, "modules": 0.2}
"""Target noise of a loss after averaging; transceivers are too inaccurate for a lower one."""

FIRST_READINGS, MOST_READINGS = 8, 64
REMADE = 3


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of one circuit.

    Attributes:
        circuit: which.
        value: in dB; where `relative` says why, only to be compared with its like.
        budget: its uncertainty.
        at: when it was read, in ns on the bench's clock.
        relative: why it is no loss against a reference; None where it is one.
    """

    circuit: Circuit
    value: float
    budget: Budget
    at: int
    relative: str | None


@dataclass(frozen=True)
class Losses:
    """Measured losses of one switch.

    Attributes:
        chain: how.
        losses: by circuit; one whose light did not arrive has none.
        dark: circuits whose light did not arrive.
        settings: how many settings that took, `remade` those that were made again.
        readings: how many samples were averaged in each.
        noise: standard deviation of the difference of two readings of one sample, in dB.
        repeatability: standard deviation of a circuit's loss each time that it is made, in dB;
            None where nothing could be made again.
        makings: of each circuit that was made again, the loss of each making, in dB.
        times: when each setting was read, in ns on the bench's clock.
        entered, left: every reading in dBm, of shape (setting, reading, port); NaN where
            nobody looked, or saw no light.
        checks: readings of the check standard, in the order of their times.
    """

    chain: Chain
    losses: Mapping[Circuit, Loss]
    dark: tuple[Circuit, ...]
    settings: int
    remade: int
    readings: int
    noise: Component
    repeatability: Component | None
    makings: Mapping[Circuit, tuple[float, ...]]
    times: tuple[int, ...]
    entered: Numbers
    left: Numbers
    checks: tuple[CheckReading, ...] = ()

    def without(self, circuits: Collection[Circuit]) -> "Losses":
        """Return the losses without those of `circuits`, which are unknown."""
        remaining = {c: loss for c, loss in self.losses.items() if c not in circuits}
        return replace(self, losses=remaining)

    def known(self) -> dict[Circuit, KnownLoss]:
        """Losses against a reference, for the power budget of a plan."""
        return {
            circuit: KnownLoss(loss.value, loss.budget.standard)
            for circuit, loss in self.losses.items()
            if loss.relative is None
        }

    def matrix(self) -> Numbers:
        """The losses in dB, one row an ingress, one column an egress; NaN where there is none."""
        name = self.chain.switch
        return self.matrix_of({f"{name} {c}": loss.value for c, loss in self.losses.items()})

    def matrix_of(self, values: Mapping[str, float]) -> Numbers:
        """Return values by the subjects of their rows as a matrix of this shape."""
        chain = self.chain
        return np.array(
            [
                [values.get(f"{chain.switch} {Circuit(*ends)}", math.nan) for ends in row]
                for row in ([(start, end) for end in chain.egress] for start in chain.ingress)
            ]
        )


def measure_losses(
    fabric: Fabric, chain: Chain, *, target_db: float | None = None, remade: int = REMADE
) -> Losses:
    """Measure every circuit of `chain` once, and those of two settings `remade` times again.

    Other circuits on the switch stay as they are. Light that is needed is switched on, and it
    and all settings are as they were found afterwards.

    target_db: what noise is averaged down to, in dB; None for what the method deserves.

    Raises:
        InstrumentError: an instrument refused or failed.
        NotDoneError: the light did not become steady.
    """
    with lit(chain):
        target = TARGETS_DB[chain.method] if target_db is None else target_db
        return _Measurement(fabric, chain).run(target, remade)


def measure_check_standard(fabric: Fabric, chain: Chain) -> dict[Circuit, float]:
    """Return the loss of each circuit of the check standard by the references of `chain`, in dB.

    The first setting of a loss matrix is made; `fabric` puts back what was found. Raises what
    `measure_losses` does.
    """
    with lit(chain):
        return _Measurement(fabric, chain).check_standard()


@contextlib.contextmanager
def lit(chain: Chain) -> Iterator[None]:
    """Meanwhile the observers of `chain` are ready and its light is on."""
    with contextlib.ExitStack() as stack:
        for observer in chain.observers:
            stack.callback(observer.prepare())
        for source, channel in chain.sources:
            if isinstance(source, Restorable):
                stack.callback(source.snapshot([channel]))
            source.set_wavelength(channel, chain.wavelength_nm)
            source.set_emission(channel, on=True)
        yield


def established_circuits(fabric: Fabric, chain: Chain) -> list[Circuit]:
    """Return the established circuits between cabled ports on the switch of `chain`."""
    ingress, egress = fabric.testbed.working_circuit_ports(chain.switch)
    made = fabric.bench.switches[chain.switch].circuits()
    return [each for each in made if each.ingress in ingress and each.egress in egress]


class _Measurement:
    def __init__(self, fabric: Fabric, chain: Chain) -> None:
        self._fabric = fabric
        self._chain = chain
        self._established = established_circuits(fabric, chain)
        self._readings = Readings(chain, fabric.bench.clock)

    def check_standard(self) -> dict[Circuit, float]:
        """Make the first setting and return the losses of the check standard in it."""
        setting = self._begin()[0]
        return dict(
            self._check("before", setting, self._readings.read(setting, FIRST_READINGS)).losses
        )

    def run(self, target_db: float, remade: int) -> Losses:
        settings = self._begin()
        series = [self._readings.read(settings[0], FIRST_READINGS)]
        noise = self._noise([(settings[0], series[0])])
        self._readings.noise_db = noise.standard
        most = readings_needed(noise.standard, target_db, most=MOST_READINGS)
        checks = [self._check("before", settings[0], series[0])]
        again: list[tuple[Setting, Numbers]] = []
        times = self._readings.times[-1:]
        turns = [settings[n % 2] for n in range(2 * remade)] if len(settings) > 1 else []
        for number, setting in enumerate(settings[1:], 1):
            if turns and len(settings) > 2 and number == (len(settings) + 1) // 2:
                # One of the makings that tell the repeatability, made here: the check standard.
                again += self._again([turns.pop(0)], most)
                checks.append(self._check("during", *again[-1]))
            self._apply(setting)
            series.append(self._readings.read(setting, most))
            times.append(self._readings.times[-1])
        made = list(zip(settings, series, strict=True))
        again += self._again(turns, most)
        if settings[0] in turns:
            checks.append(self._check("after", *again[-2], ago=1))
        noise = self._noise([*made, *again])
        makings = self._makings([*made[:2], *again]) if again else {}
        repeatability = repeatability_of(makings, noise, most)
        first = replace(noise, standard=noise.standard / math.sqrt(FIRST_READINGS))
        # What wanders slowly is in the scatter of all makings, and not in that of the last two.
        brief = repeatability_of({c: each[-2:] for c, each in makings.items()}, noise, most)
        since = check_components(self._chain, checks, first, brief)
        losses: dict[Circuit, Loss] = {}
        dark: list[Circuit] = []
        for (setting, each), at in zip(made, times, strict=True):
            for circuit in setting:
                loss = self._loss(circuit, each, at, noise, repeatability, since)
                if loss is None:
                    dark.append(circuit)
                else:
                    losses[circuit] = loss
        losses = self._against_their_like(losses)
        width = max(len(each) for each in series)
        whole = np.full((len(series), width, len(self._readings.ports)), np.nan)
        for number, each in enumerate(series):
            whole[number, : len(each)] = each
        whole[whole <= DARK_DBM] = np.nan
        entered, left = np.split(whole, [len(self._chain.ingress)], axis=2)
        return Losses(
            chain=self._chain,
            losses=losses,
            dark=tuple(dark),
            settings=len(settings),
            remade=len(again),
            readings=most,
            noise=noise,
            repeatability=repeatability,
            makings=makings,
            times=tuple(times),
            entered=entered,
            left=left,
            checks=tuple(checks),
        )

    # ------------------------------------------------------------------------ settings

    def _begin(self) -> list[Setting]:
        """The settings, the first of which is made."""
        chain = self._chain
        switch = self._fabric.testbed.switches[chain.switch]
        settings = cyclic_shifts(chain.ingress, chain.egress)
        settings = settings if chain.alone else checked_first(settings, switch)
        try:
            self._apply(settings[0])
        except DeniedError as error:
            if error.code != CANNOT:
                raise
            settings = checked_first(one_by_one(self._planned()), switch)
            if not settings or chain.alone:
                raise
            self._apply(settings[0])
        return settings

    def _check(
        self, phase: Phase, setting: Setting, samples: Numbers, *, ago: int = 0
    ) -> CheckReading:
        """Evaluate samples of the first setting, read `ago` settings ago, as check standard."""
        switch = self._fabric.testbed.switches[self._chain.switch]
        used = setting if self._chain.alone else check_circuits(setting, switch)
        lit = [circuit for circuit in used if self._readings.lit(circuit, samples)]
        entering, budgets = dict[int, float](), dict[int, Budget]()
        for ingress, _ in lit:
            of_port = samples[:, self._chain.ingress.index(ingress)]
            shown, plane = float(of_port.mean()), self._chain.planes[ingress]
            if math.isfinite(shown):
                entering[ingress] = shown - plane.correction_db
                budget = power_budget(of_port, plane)
                budgets |= {} if budget is None else {ingress: budget}
        losses = {circuit: self._corrected(circuit, samples) for circuit in lit}
        return CheckReading(phase, self._readings.times[-1 - ago], losses, entering, budgets)

    def _corrected(self, circuit: Circuit, samples: Numbers) -> float:
        planes = self._chain.ends(*circuit)
        value = float(self._readings.lost(circuit, samples).mean())
        return value + planes[1].correction_db - planes[0].correction_db

    def _planned(self) -> set[Circuit]:
        """The circuits of the testbed's plans that can be measured."""
        name = self._chain.switch
        plans = self._fabric.plans.values()
        return {
            circuit
            for plan in plans
            for circuit in plan.circuits.get(name, ())
            if circuit.ingress in self._chain.ingress and circuit.egress in self._chain.egress
        }

    def _apply(self, setting: Setting) -> None:
        name = self._chain.switch
        plan = Plan(f"losses of {name}", {name: beside(setting, self._established)})
        self._fabric.apply(plan, check_budget=False)  # light without a receiver is measured too

    def _again(self, settings: Sequence[Setting], count: int) -> list[tuple[Setting, Numbers]]:
        again = []
        for setting in settings:
            self._apply(setting)
            again.append((setting, self._readings.read(setting, count)))
        return again

    def _against_their_like(self, losses: dict[Circuit, Loss]) -> dict[Circuit, Loss]:
        """Make losses relative to the median of the ingress where the input power is unknown."""
        unknown = [n for n in self._chain.launched if self._chain.planes[n].relative]
        for ingress in unknown:
            siblings = {c: loss for c, loss in losses.items() if c.ingress == ingress}
            middle = (
                float(np.median([loss.value for loss in siblings.values()])) if siblings else 0.0
            )
            losses |= {c: replace(loss, value=loss.value - middle) for c, loss in siblings.items()}
        return losses

    # -------------------------------------------------------------------------- losses

    def _noise(self, made: Sequence[tuple[Setting, Numbers]]) -> Component:
        """Of one reading of a loss, whatever its circuit."""
        groups = [
            self._readings.lost(circuit, samples)
            for setting, samples in made
            for circuit in setting
            if self._readings.lit(circuit, samples)
        ]
        return pooled(groups, "noise") if groups else Component("noise", 0.0)

    def _makings(self, made: Sequence[tuple[Setting, Numbers]]) -> dict[Circuit, tuple[float, ...]]:
        """The mean loss of each making of each circuit, uncorrected."""
        means: dict[Circuit, tuple[float, ...]] = {}
        for setting, samples in made:
            for circuit in setting:
                if self._readings.lit(circuit, samples):
                    mean = float(self._readings.lost(circuit, samples).mean())
                    means[circuit] = (*means.get(circuit, ()), mean)
        return means

    def _loss(
        self,
        circuit: Circuit,
        samples: Numbers,
        at: int,
        noise: Component,
        repeatability: Component | None,
        since: Sequence[Component],
    ) -> Loss | None:
        if not self._readings.lit(circuit, samples):
            return None
        planes = self._chain.ends(*circuit)
        value = self._corrected(circuit, samples)
        mean = Component("noise", noise.standard / math.sqrt(len(samples)), noise.degrees)
        parts = [mean, *([repeatability] if repeatability else [])]
        relative = self._chain.relative(*circuit)
        if relative is None:
            parts += [part for plane in planes for part in plane.components]
            parts += shared_components(planes[0].of, planes[1].of)
            parts += since
        return Loss(circuit, value, combine(parts), at, relative)


def repeatability_of(
    makings: Mapping[Circuit, tuple[float, ...]], noise: Component, readings: int
) -> Component | None:
    """Of one making of a circuit; what noise leaves in a mean is taken off."""
    if not makings:
        return None
    found = pooled(makings.values(), "repeatability")
    variance = found.standard**2 - noise.standard**2 / readings
    return Component("repeatability", math.sqrt(max(variance, 0.0)), found.degrees)
