"""Clauses on optics that need instruments beside the switch, by the measurements of the harness."""

import math
from collections.abc import Callable, Collection, Sequence

from lightrig.harness.certify.inputs import undecided_if_old
from lightrig.harness.certify.light_clauses import (
    FINAL_NS,
    FINAL_READINGS,
    SETTLED_DB,
    ports_of,
    read,
)
from lightrig.harness.certify.requirements import Requirement
from lightrig.harness.certify.subject import DecidedError, Outcome, Subject, Verdict
from lightrig.harness.measure import switch_optics, switching_times
from lightrig.harness.measure.insertion_loss.chains import Chain
from lightrig.harness.measure.insertion_loss.matrix import lit
from lightrig.harness.measure.insertion_loss.readings import DARK_DBM
from lightrig.harness.measure.path_changes import NotLoggedError
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.switch_optics import NoMeterPathError
from lightrig.harness.measure.switch_optics.crosstalk import LEAST_DB
from lightrig.harness.measure.switch_optics.crosstalk import crosstalk as crosstalk_of
from lightrig.harness.record import Row
from lightrig.instruments.core.capabilities import SimultaneousLogs

FULL_DB = 10.0
"""Distance from a circuit's light within which that of another egress is no crosstalk."""

_CHANGES = 10

Bounds = tuple[float, float]


def crosstalk(subject: Subject, requirement: Requirement) -> Outcome:
    """Bound crosstalk by meters behind a laser, else by what sees the light."""
    try:
        rows = _recorded(subject, switch_optics.measure_crosstalk, "crosstalk")
    except NoMeterPathError:
        chain = subject.chain()
        with lit(chain):
            try:
                found = _crosstalk_in(subject, chain)
            except DecidedError as decided:
                return undecided_if_old(subject, chain, decided.outcome)
        note = f"by {chain.method}"
    else:
        found, note = _bounds(rows), "by power meters behind a laser"
    greatest = max(found)  # by the lower bound
    if greatest[0] > 0:
        reason = f"an egress gets more light than that of the circuit; {note}"
        return Outcome("fail", reason, greatest[1], greatest, "dB", len(found))
    if greatest[0] > -FULL_DB:
        reason = f"an egress that is not asked for gets the light of a circuit; {note}"
        return Outcome("fail", reason, greatest[1], greatest, "dB", len(found))
    return judged(subject, "crosstalk", found, "dB", note)


def _crosstalk_in(subject: Subject, chain: Chain) -> list[Bounds]:
    """Return bounds on the crosstalk of each circuit, made alone, at each other egress, in dB."""
    _, egress = ports_of(subject, chain)
    window = max(observer.read().window for observer in chain.observers)

    def levels() -> dict[int, list[float]]:
        subject.sleep(FINAL_NS)
        seen = []
        for _ in range(FINAL_READINGS):
            subject.sleep(window)
            seen.append(read(chain))
        return {port: [each[port] for each in seen] for port in chain.egress}

    subject.apply([])
    dark = levels()
    found = []
    for circuit in subject.pairs:
        if circuit.egress not in egress:
            continue
        subject.apply([circuit])
        seen = levels()
        wanted = seen[circuit.egress]
        is_dark = max(wanted) <= DARK_DBM
        least = DARK_DBM if is_dark else max(max(wanted) - FULL_DB, DARK_DBM)
        full = [
            port  # on any port of the switch that is watched, whoever uses it
            for port, powers in seen.items()
            if port != circuit.egress and min(powers) > max(least, max(dark[port]) + SETTLED_DB)
        ]
        if full:
            begun = (
                f"the egress of {circuit} is dark, and" if is_dark else f"{circuit} is alone, and"
            )
            stated = f"{begun} light leaves egress {', '.join(map(str, full))}"
            raise DecidedError(Outcome("fail", stated))
        if is_dark:
            continue  # no light enters
        for port in egress:
            if port == circuit.egress:
                continue
            if min(seen[port]) <= max(dark[port]):  # what is shown in the dark bounds it
                found.append((LEAST_DB, max(seen[port]) - min(wanted)))
                continue
            value, components, factor = crosstalk_of(wanted, seen[port], dark[port])
            half = factor * math.hypot(*(part.standard for part in components))
            found.append((value - half, value + half))
    if not found:
        raise DecidedError(Outcome("not tested", "no light enters, or no egress is left dark"))
    return found


def rise(subject: Subject, requirement: Requirement) -> Outcome:
    """Record changes between two plans with an oscilloscope."""
    scopes = [
        each
        for each in subject.fabric.bench.instruments.values()
        if isinstance(each, SimultaneousLogs)
    ]
    if not scopes:
        return Outcome("not tested", "needs an oscilloscope behind two egress ports")
    first, second = subject.plans_of(2)[:2]
    rows: list[Row] = []
    recording = Recording(rows.extend)
    plans = first, second
    try:
        switching_times.measure_switching(subject.fabric, recording, scopes[0], plans, _CHANGES)
    except NotLoggedError as error:
        return Outcome("not tested", f"needs an oscilloscope behind two egress ports: {error}")
    names = ("rise", "fall", "bounce", "time")
    found = {
        name: [(low / 1e6, high / 1e6) for low, high in _bounds(rows, f"switching.{name}")]
        for name in names
    }
    note = ", ".join(f"{name} at most {max(found[name])[1]:.2f} ms" for name in names)
    outcomes = [
        judged(subject, f"switching.{name}", found[name], "ms", note, 1e6)
        for name in ("rise", "time")
    ]
    limited = [each for each in outcomes if each.verdict != "not applicable"]
    order = ("fail", "inconclusive", "pass")
    return min(limited, key=lambda each: order.index(each.verdict), default=outcomes[-1])


def wavelength_dependence(subject: Subject, requirement: Requirement) -> Outcome:
    """Measure losses over wavelengths, behind a tunable laser."""
    return _optics(
        subject,
        switch_optics.measure_wavelength_dependence,
        "wavelength_dependent_loss",
        "a tunable laser and a power meter",
    )


def polarization_dependence(subject: Subject, requirement: Requirement) -> Outcome:
    """Measure losses over states of polarization, behind a controller of it."""
    return _optics(
        subject,
        switch_optics.measure_polarization_dependence,
        "polarization_dependent_loss",
        "a laser, a polarization controller and a power meter",
    )


def _optics(subject: Subject, measure: Callable[..., None], quantity: str, needed: str) -> Outcome:
    try:
        found = _bounds(_recorded(subject, measure, quantity))
    except NoMeterPathError:
        return Outcome("not tested", f"needs {needed} at the switch")
    return judged(subject, quantity, found, "dB", "greatest of all circuits")


def _recorded(subject: Subject, measure: Callable[..., None], quantity: str) -> list[Row]:
    """Return what `measure` records of `quantity` on this switch."""
    rows: list[Row] = []
    measure(subject.fabric, Recording(rows.extend), switch=subject.name)
    return [row for row in rows if row.quantity == quantity]


def _bounds(rows: Collection[Row], quantity: str | None = None) -> list[Bounds]:
    return [
        (
            row.value if row.lower is None else row.lower,
            row.value if row.upper is None else row.upper,
        )
        for row in rows
        if quantity is None or row.quantity == quantity
    ]


def judged(
    subject: Subject,
    quantity: str,
    found: Sequence[Bounds],
    unit: str,
    note: str,
    scale: float = 1.0,
) -> Outcome:
    """Judge bounds by the value of the testbed's limit, which is `scale` times theirs.

    The value is the greatest upper bound.
    """
    worst = max(found, key=lambda each: each[1])
    limit = subject.fabric.testbed.limits.get(quantity)
    verdict: Verdict = "inconclusive"
    word = f"the testbed file has no limit on {quantity}"
    if limit is None:
        verdict = "not applicable"
    else:
        most = limit.value / scale
        word = f"limit {most:g} {unit}"
        if worst[1] <= most:
            verdict = "pass"
        elif max(low for low, _ in found) > most:
            verdict = "fail"
    return Outcome(verdict, f"{word}; {note}", worst[1], worst, unit, len(found))
