"""Check standards: fixed circuits measured before, during and after the losses of their switch.

What they lost when the references were taken, or before the first of the others, is the center line
of a control chart (NIST/SEMATECH e-Handbook of Statistical Methods, 2.1.2 and 2.2). A shift beyond
the testbed's limit is one of a meter, or of the light, and in every loss of the switch.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.measure.insertion_loss.chains import Chain, Plane, shared_components
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.uncertainty import Budget, Component, combine
from lightrig.testbeds import Circuit, format_db
from lightrig.testbeds.plans import circuit_subject

Phase: TypeAlias = Literal["before", "during", "after"]

_NORMAL_MAD = 1.4826
"""Standard deviation over median absolute deviation, of a normal distribution."""

_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, of many normal samples."""

_FEWEST_CHANGES = 3
"""Circuits from which on most of them are no single one."""

_LEAST_SCATTER = 4
"""Circuits from which on the scatter of their shifts is estimated."""

FAULTY_DB = 0.3
"""Change of one circuit that is a fault of it: less is no reason to walk to the lab."""

_SINCE = frozenset({"drift", "source"})
"""Components of a reading that differ from what they were when the references were taken."""

_SAME_LIGHT_DB = 0.25
"""Difference of two powers that may be the same: the errors of their references are in it."""

_CHANCE = 0.05
"""Probability with which a healthy lab's check standard shows a component of its own."""

_STANDS_OUT = 3.0
"""Standard deviations beyond which a circuit is unlike the others."""


@dataclass(frozen=True, slots=True)
class CheckReading:
    """Check standard, measured once.

    Attributes:
        phase: relation to the other losses of the switch.
        at: when, in ns on the bench's clock.
        losses: corrected loss of each of its circuits, in dB.
        entering: corrected power at each of its ingress ports that has an observer, in dBm.
        budgets: of these powers, by ingress; none without a reference.
    """

    phase: Phase
    at: int
    losses: Mapping[Circuit, float]
    entering: Mapping[int, float]
    budgets: Mapping[int, Budget] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shift:
    """Median shift of the check standard's circuits.

    Attributes:
        reading: when it was shifted.
        against: with what it was compared, in words.
        value: change of the loss, in dB. half: half its 95 % interval.
        entering: change of what enters by the observers there, in dB; None where nothing says.
    """

    reading: CheckReading
    against: str
    value: float
    half: float
    entering: float | None

    def exceeds(self, limit_db: float) -> bool:
        """Whether the shift is beyond the limit for certain."""
        return abs(self.value) - self.half > limit_db


def power_budget(samples: npt.NDArray[np.float64], plane: Plane) -> Budget | None:
    """Return the budget of the mean of a monitor's readings in dB; None without a reference.

    Nothing cancels in a power, as it does in a loss: the calibration of the meter is in it.
    """
    if plane.of is None or samples.size < 2:
        return None
    noise = float(samples.std(ddof=1)) / math.sqrt(samples.size)
    parts = [Component("noise", noise, samples.size - 1), *plane.components]
    return combine([*parts, *shared_components(plane.of, None)])


def shifts(
    chain: Chain,
    readings: Sequence[CheckReading],
    noise: Component,
    repeatability: Component | None,
    *,
    beside: Collection[Circuit] = (),
) -> Iterator[Shift]:
    """Yield the shift of each reading from the references, or else from the first reading.

    noise: of one reading's mean. repeatability: of one making. beside: circuits that are misread,
    and left out. The median leaves a few dirty ports without effect; its interval is by the
    scatter of the circuits, or by the budget of a difference where that is more.
    """
    first = readings[0]
    center, levels, against = first.losses, first.entering, "before"
    if standards := _standards(chain, first.losses):
        center, against = standards, "references"
        levels = {ingress: dbm for ingress, (dbm, _) in chain.entering.items()}
    for reading in readings if standards else readings[1:]:
        used = [c for c in reading.losses if c in center and c not in beside]
        if not used:
            continue
        changes = np.array([reading.losses[c] - center[c] for c in used])
        entering = [
            reading.entering[c.ingress] - levels[c.ingress]
            for c in used
            if c.ingress in reading.entering and c.ingress in levels
        ]
        yield Shift(
            reading,
            against,
            float(np.median(changes)),
            _half(changes, chain if standards else None, used, noise, repeatability),
            float(np.median(entering)) if entering else None,
        )


def changes(
    chain: Chain,
    readings: Sequence[CheckReading],
    noise: Component,
    repeatability: Component | None,
    *,
    beside: Collection[Circuit] = (),
) -> dict[Circuit, tuple[float, Budget]]:
    """Return by how much each circuit lost more since the references than most others, in dB.

    Arguments are those of `shifts`. Fewer than three circuits are compared with no other.
    """
    center = {c: db for c, db in _standards(chain, readings[0].losses).items() if c not in beside}
    more = {
        circuit: math.fsum(one.losses[circuit] for one in seen) / len(seen) - db
        for circuit, db in center.items()
        if (seen := [one for one in readings if circuit in one.losses])
    }
    if not more:
        return {}
    several = len(more) >= _FEWEST_CHANGES
    usual = float(np.median(list(more.values()))) if several else 0.0
    # Of the mean of the readings, of one at the references, and of the median of the circuits.
    share = math.sqrt((1 + 1 / len(readings)) * (1 + several * math.pi / 2 / len(more)))
    found = {}
    for circuit, db in more.items():
        ends = chain.ends(*circuit)
        drifts = (part for plane in ends for part in plane.components)
        of = (plane.of for plane in ends)
        parts = [
            *(
                Component(one.name, share * one.standard, one.degrees)
                for one in (noise, repeatability)
                if one is not None
            ),
            *(part for part in drifts if part.name in _SINCE),
            # Light of another wavelength than at the references loses more or less, by what they
            # state.
            *(part for part in shared_components(*of) if part.name == "wavelength"),
        ]
        found[circuit] = db - usual, combine(parts)
    return found


def _standards(chain: Chain, circuits: Collection[Circuit]) -> dict[Circuit, float]:
    """Return the losses of circuits, in dB, that the references state of them."""
    found: dict[Circuit, float] = {}
    for circuit in circuits:
        first, second = (plane.of for plane in chain.ends(*circuit))
        if first is not None and first is second:
            value = first.checks.get(circuit_subject(chain.switch, circuit))
            found |= {} if value is None else {circuit: value}
    return found


def _half(
    changes: npt.NDArray[np.float64],
    referenced: Chain | None,
    used: Sequence[Circuit],
    noise: Component,
    repeatability: Component | None,
) -> float:
    """Return half the 95 % interval of a median of changes."""
    count = changes.size
    share = (_MEDIAN if count > 2 else 1.0) / math.sqrt(count)
    parts = [
        Component(one.name, math.sqrt(2) * share * one.standard, one.degrees)
        # Repeatability has a shift between makings in it: the scatter of many circuits has not.
        for one in (noise, *([repeatability] if count < _LEAST_SCATTER else []))
        if one is not None
    ]
    if referenced is not None:
        drifts = [
            part.standard**2
            for circuit in used
            for plane in referenced.ends(*circuit)
            for part in plane.components
            if part.name == "drift"
        ]
        parts.append(Component("drift", share * math.sqrt(math.fsum(drifts) / count)))
    half = combine(parts).expanded
    if count >= _LEAST_SCATTER:
        scatter = _NORMAL_MAD * float(np.median(np.abs(changes - np.median(changes))))
        half = max(half, combine([Component("scatter", share * scatter, count - 1)]).expanded)
    return half


def check_components(
    chain: Chain,
    readings: Sequence[CheckReading],
    noise: Component,
    repeatability: Component | None,
) -> list[Component]:
    """Return what a loss is uncertain by since the references, as the check standard shows it.

    "check standard": the greatest median change of its circuits, of few the greatest of each,
    beyond what noise, repeatability and drift explain. It is not corrected, so that its size is its
    uncertainty (GUM, F.2.4.5). "meter scatter": by how much the circuits differ from their median
    beyond the same, such as by monitors that wander. Either is 0 where chance explains it at 5 %,
    since the part beyond would widen the losses of a healthy lab. Circuits that stand out by more
    than a fault would are none of it. Without references there are none.

    Arguments are those of `shifts`.
    """
    center = _standards(chain, readings[0].losses)
    changed = [
        {c: one.losses[c] - db for c, db in center.items() if c in one.losses} for one in readings
    ]
    changed = [one for one in changed if one]
    if not changed:
        return []
    middles = [float(np.median([*one.values()])) for one in changed]
    few = len(center) < _LEAST_SCATTER
    sizes = [abs(db) for one in changed for db in one.values()] if few else map(abs, middles)
    of_noise = 2 * math.fsum(one.standard**2 for one in (noise, repeatability) if one)
    explained = of_noise + _drifts(chain, center)
    # The variance of a median is greater than that of a mean by pi / 2.
    least = explained if few else explained * math.pi / 2 / len(center)
    found = [Component("check standard", _beyond(max(sizes) ** 2, least, 1))]
    apart = [
        {c: db - middle for c, db in one.items()}
        for one, middle in zip(changed, middles, strict=True)
    ]
    means = {c: float(np.mean([one[c] for one in apart if c in one])) for c in center}
    usual = _NORMAL_MAD * float(np.median(np.abs([*means.values()])))
    alike = [c for c, db in means.items() if abs(db) <= max(FAULTY_DB, _STANDS_OUT * usual)]
    if len(alike) >= _LEAST_SCATTER:
        squares = [one[c] ** 2 for one in apart for c in alike if c in one]
        degrees = len(alike) - 1
        # One median is taken off all circuits of a reading.
        seen = math.fsum(squares) / len(squares) * len(alike) / degrees
        beyond = _beyond(seen, of_noise + _drifts(chain, alike), degrees)
        found.append(Component("meter scatter", beyond, degrees))
    return found


def _beyond(variance: float, explained: float, degrees: int) -> float:
    """Return the standard uncertainty of what is not explained; 0 where that may be chance."""
    by_chance = float(scipy.special.chdtri(degrees, _CHANCE)) / degrees
    if variance <= explained * by_chance:
        return 0.0
    return math.sqrt(variance - explained)


def _drifts(chain: Chain, circuits: Collection[Circuit]) -> float:
    """Return the mean variance of the circuits' losses by the drift that references state."""
    planes = (plane for c in circuits for plane in chain.ends(*c))
    parts = (part for plane in planes for part in plane.components if part.name == "drift")
    return math.fsum(part.standard**2 for part in parts) / len(circuits)


def sentence(chain: Chain, shift: Shift, limit_db: float) -> str:
    """Return which meter shifted by how much, and what follows."""
    egress = "monitors at egress ports" if chain.method == "monitors" else _METERS[chain.method]
    since = (
        "when its references were taken"
        if shift.against == "references"
        else "before the first loss"
    )
    if shift.entering is None:
        who = f"the {egress} show {_change(-shift.value)}, or as much more light enters,"
    else:
        leaving = shift.entering - shift.value
        inside = abs(shift.entering) <= limit_db, abs(leaving) <= limit_db
        who = {
            (True, False): f"the {egress} show {_change(leaving)}",
            (False, True): f"the monitors at ingress ports show {_change(shift.entering)}",
        }.get(
            inside,
            f"the monitors at ingress ports show {_change(shift.entering)}, and the {egress} "
            f"{_change(leaving)},",
        )
    doubt = "" if is_of_meter(shift, limit_db) else f"; {_CAUSES}"
    return (
        f"check standard: {shift.reading.phase} the losses {who} than {since}, beyond the limit of "
        f"{format_db(limit_db)}{doubt}; the losses of this switch are void: take the references "
        "again"
    )


_CAUSES = (
    "meters have shifted or take another range, connectors were mated anew, or the light has "
    "another polarization or temperature: nothing read here tells which"
)


def is_of_meter(shift: Shift, limit_db: float) -> bool:
    """Whether nothing but meters at ingress ports explains a shift.

    What enters is shown to have changed by as much as the loss, and what leaves has not: neither
    light nor a connector does that. Meters at egress ports that shift look like connectors behind
    the ingress that were mated anew.
    """
    return (
        shift.entering is not None
        and abs(shift.entering) > limit_db
        and abs(shift.entering - shift.value) <= limit_db
    )


def power_changes(chain: Chain, readings: Sequence[CheckReading]) -> dict[int, float]:
    """Return by how much what enters has changed since the references, by ingress, in dB."""
    found = {}
    for ingress, (level, _) in chain.entering.items():
        seen = [one.entering[ingress] for one in readings if ingress in one.entering]
        if seen:
            found[ingress] = math.fsum(seen) / len(seen) - level
    return found


def swapped_ingresses(
    chain: Chain, readings: Sequence[CheckReading], since: Mapping[Circuit, float]
) -> list[tuple[int, int]]:
    """Return the pairs of ingress ports whose monitors show each other's light.

    Each shows what is launched into the other, and the losses of both have changed by as much:
    where fibers were swapped instead, the losses have not.

    since: by how much the loss of each circuit has changed since the references, in dB.
    """
    changed = power_changes(chain, readings)
    of_loss = {circuit.ingress: db for circuit, db in since.items()}
    wrong = [
        port
        for port, db in changed.items()
        if abs(db) > FAULTY_DB and abs(of_loss.get(port, 0.0) - db) < _SAME_LIGHT_DB
    ]

    def exchanged(port: int, seen: int) -> float:
        """Return what the monitor of `seen` differs by from what `port` should get, in dB."""
        raw = changed[seen] + chain.entering[seen][0] + chain.planes[seen].correction_db
        return abs(raw - chain.planes[port].correction_db - chain.entering[port][0])

    tried = {pair: max(exchanged(*pair), exchanged(*pair[::-1])) for pair in combinations(wrong, 2)}
    found: list[tuple[int, int]] = []
    for pair, apart in sorted(tried.items(), key=lambda item: item[1]):
        if apart < _SAME_LIGHT_DB and {*pair}.isdisjoint(port for one in found for port in one):
            found.append(pair)
    return found


def changed_sentence(
    circuit: Circuit, change: float, entering: float | None, limit_db: float
) -> str:
    """Return what may have changed a circuit of the check standard, and what follows."""
    where = f"at ingress {circuit.ingress} or egress {circuit.egress}"
    if entering is not None and abs(entering) <= limit_db:
        where = f"at egress {circuit.egress}"
    elif entering is not None and abs(entering - change) <= limit_db:
        where = f"at ingress {circuit.ingress}"
    return (
        "check standard: so much more than most others does it lose since its references were "
        f"taken, beyond the limit of {format_db(limit_db)}: {where} a meter has shifted or takes "
        "another range, a connector was mated anew, or the light's polarization is another one; "
        "the losses of that port are left out: take its references again"
    )


_METERS = {"meter": "power meters", "modules": "receiving transceivers"}


def _change(db: float) -> str:
    return f"{format_db(abs(db))} {'more' if db > 0 else 'less'}"


def _of_budget(budget: Budget) -> dict[str, Scalar]:
    """Return each component's standard uncertainty, and what they come to, as conditions."""
    found: dict[str, Scalar] = {
        f"{part.name.replace(' ', '_')}_db": abs(part.contribution) for part in budget.components
    }
    found |= {
        f"{part.name.replace(' ', '_')}_degrees": part.degrees
        for part in budget.components
        if part.evaluation == "A"
    }
    degrees = {"degrees": budget.degrees} if math.isfinite(budget.degrees) else {}
    return {**found, **degrees, "factor": budget.factor, "expanded_db": budget.expanded}


def check_rows(
    switch: str,
    readings: Sequence[CheckReading],
    found: Sequence[Shift],
    limit_db: float,
    conditions: Mapping[str, Scalar],
) -> Iterator[Row]:
    """Rows of the control chart: each loss and each power of the check standard, and each shift."""
    for one in readings:
        stated = {**conditions, "phase": one.phase}
        for circuit, db in one.losses.items():
            yield Row(
                circuit_subject(switch, circuit),
                "check_standard.loss",
                *(db,) * 3,
                "dB",
                one.at,
                stated,
            )
        for ingress, dbm in one.entering.items():
            budget = one.budgets.get(ingress)
            of_power = stated if budget is None else {**stated, **_of_budget(budget)}
            low, high = (
                None if budget is None else dbm + side * budget.expanded for side in (-1, 1)
            )
            name = f"{switch}.{ingress}"
            yield Row(name, "check_standard.power", dbm, low, high, "dBm", one.at, of_power)
    for shift in found:
        ends = shift.value - shift.half, shift.value + shift.half
        of_shift: dict[str, Scalar] = {
            "phase": shift.reading.phase,
            "against": shift.against,
            "limit_db": limit_db,
        }
        of_shift["void"] = shift.exceeds(limit_db)
        at = shift.reading.at
        yield Row(
            switch, "check_standard.shift", shift.value, *ends, "dB", at, {**conditions, **of_shift}
        )
