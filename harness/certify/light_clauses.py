"""Clauses on light: reports and words against it, its times, its losses."""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy

from lightrig.harness.certify.inputs import undecided_if_old
from lightrig.harness.certify.requirements import Requirement
from lightrig.harness.certify.subject import DecidedError, Outcome, Subject, Verdict, listed
from lightrig.harness.measure.insertion_loss.chains import Chain
from lightrig.harness.measure.insertion_loss.faults import check_shifts, find_faults
from lightrig.harness.measure.insertion_loss.matrix import Losses, lit, measure_losses
from lightrig.harness.measure.insertion_loss.readings import DARK_DBM, cyclic_shifts
from lightrig.harness.measure.insertion_loss.rows import factory_rows
from lightrig.harness.measure.slow_watch import LATE_WINDOWS, longest_blind, slow_watch
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import BlocksPorts, FactoryCalibrated
from lightrig.testbeds import Circuit

SETTLED_DB = 0.5
"""Distance from the final power within which a circuit is done (SAI's proposal for OCS)."""

APART_DB = 30.0
"""Least distance of an egress without a circuit from the weakest with one."""

FINAL_READINGS, FINAL_NS = 8, 500_000_000
"""Readings of a final power, and the time in ns before the first."""

_BLOCKED_PORTS = 3
_MAKINGS = 6


def acknowledged_light(subject: Subject, requirement: Requirement) -> Outcome:
    """Compare light right after acknowledgements with the final light."""
    chain = subject.chain()
    ports, leaving = ports_of(subject, chain)
    most = min(len(ports), len(leaving))
    first: list[tuple[Circuit, float]] = []
    window = max(observer.read().window for observer in chain.observers)
    blind = 0
    final: list[list[float]] = []
    subject.apply([])
    with lit(chain):
        for count in sorted({1, min(2, most), max(most // 2, 1), most}):
            for shift in (0, 1) if count == most else (0,):
                made = [Circuit(ports[i], leaving[(i + shift) % count]) for i in range(count)]
                new, late = _observe(subject, chain, made)
                blind = max(blind, late)
                first += [(circuit, powers[0]) for circuit, powers in new.items()]
                final += [powers[1:] for powers in new.values()]
                if count < most:
                    subject.apply([])
        found = judge_light(first, np.array(final), requirement.risk)
        found = undecided_if_old(subject, chain, found)
    # Light that was read late may have come late.
    slow = slow_watch(blind, LATE_WINDOWS * window, "light after an acknowledgement")
    if slow and found.verdict == "pass":
        return replace(found, verdict="inconclusive", reason=slow)
    return found


def _observe(
    subject: Subject, chain: Chain, made: Collection[Circuit]
) -> tuple[Mapping[Circuit, list[float]], int]:
    """Make circuits; return of each new one the first power after the acknowledgement, then more.

    An average ends at its reading, so the first is taken one averaging window after the word. The
    second value is by how many ns it was read later than that.
    """
    clock = subject.fabric.bench.clock
    window = max(observer.read().window for observer in chain.observers)
    change = subject.fabric.prepare(subject.plan(made), check_budget=False)
    change.begin()
    due = change.acknowledged().latest + window
    clock.sleep(max(due - clock.now(), 0))
    late = longest_blind([Span(due, due), Span(clock.now(), clock.now())])
    readings = [read(chain)]
    change.verify()
    for _ in range(FINAL_READINGS):
        clock.sleep(max(window, FINAL_NS) if len(readings) == 1 else window)
        readings.append(read(chain))
    made_now = change.changes[subject.name].add
    return {c: [each[c.egress] for each in readings] for c in made_now}, late


def forced_block(subject: Subject, requirement: Requirement) -> Outcome:
    """Block egress ports one after the other, and free them."""
    switch = subject.switch
    if not isinstance(switch, BlocksPorts):
        return Outcome("not tested", "the driver has no block of ports")
    made = subject.pairs_of(1)
    subject.apply(made)
    before = switch.circuits()
    ports = [c.egress for c in made]
    blocked_before = [port for port, passes in switch.shutters(ports).items() if not passes]
    tried = [port for port in ports if port not in blocked_before][:_BLOCKED_PORTS]
    try:
        chain: Chain | None = subject.chain()
        note = "states and light"
    except DecidedError as unseen:
        chain, note = None, f"states alone: {unseen.outcome.reason}"
    try:
        if chain is None:
            found = next(filter(None, (_block(subject, switch, p, before) for p in tried)), None)
        else:
            with lit(chain):
                subject.sleep(FINAL_NS)
                found = _block_in_light(subject, switch, chain, tried, before)
    finally:
        switch.set_shutters(tried, is_open=True)
    if found is not None and chain is not None and "dBm" in found.reason:
        with lit(chain):
            return undecided_if_old(subject, chain, found)
    return found or Outcome("pass", f"blocked and freed, {note}", n=len(tried))


def _block_in_light(
    subject: Subject,
    switch: BlocksPorts,
    chain: Chain,
    tried: Collection[int],
    before: frozenset[Circuit],
) -> Outcome | None:
    watched = [port for port in subject.egress if port in chain.egress]
    for port in tried:
        levels = levels_of(subject, chain)
        if (found := _block(subject, switch, port, before)) is not None:
            return found
        blocked = levels_of(subject, chain)
        if levels[port] > DARK_DBM and blocked[port] > max(DARK_DBM, levels[port] - APART_DB):
            return Outcome("fail", f"blocked egress {port} passes {blocked[port]:.1f} dBm")
        switch.set_shutters([port], is_open=True)
        subject.sleep(FINAL_NS)
        freed = levels_of(subject, chain)
        for seen in watched:
            for now in (freed,) if seen == port else (blocked, freed):
                if levels[seen] > DARK_DBM and abs(now[seen] - levels[seen]) > SETTLED_DB:
                    change = f"{levels[seen]:.2f} to {now[seen]:.2f} dBm"
                    return Outcome("fail", f"egress {seen} goes from {change} with {port}'s block")
    return None


def _block(
    subject: Subject, switch: BlocksPorts, port: int, before: frozenset[Circuit]
) -> Outcome | None:
    """Block a port; return the failure where it is not reported so, or a circuit changes."""
    switch.set_shutters([port], is_open=False)
    subject.sleep(FINAL_NS)
    if switch.shutters([port])[port]:
        return Outcome("fail", f"egress {port} is blocked, and not reported so")
    made = subject.switch.circuits()
    if made != before:
        return Outcome("fail", f"a block of {port} leaves {listed(made)}, not {listed(before)}")
    return None


def repeatability(subject: Subject, requirement: Requirement) -> Outcome:
    """Make two settings in turn and compare the levels of each circuit."""
    chain = subject.chain()
    ingress, egress = ports_of(subject, chain)
    settings = cyclic_shifts(ingress, egress)[:2]
    if len(settings) < 2:
        return Outcome("not applicable", "no two settings of the cabled ports")
    window = max(observer.read().window for observer in chain.observers)
    made: dict[Circuit, list[list[float]]] = {}
    with lit(chain):
        for _ in range(_MAKINGS):
            for setting in settings:
                subject.apply(setting)
                subject.sleep(FINAL_NS)
                seen = []
                for _ in range(FINAL_READINGS):
                    subject.sleep(window)
                    seen.append(read(chain))
                for circuit in setting:
                    levels = [each[circuit.egress] for each in seen]
                    made.setdefault(circuit, []).append(levels)
    readings = np.array([each for each in made.values() if np.mean(each) > DARK_DBM])
    if not len(readings):
        return Outcome("not tested", "no light enters at the cabled ports")
    value, low, high = repeatability_of(readings, requirement.risk)
    limit = subject.profile.repeatability_db
    verdict: Verdict = "inconclusive"
    if limit is None:
        verdict = "not applicable"
    elif high <= limit:
        verdict = "pass"
    elif low > limit:
        verdict = "fail"
    word = "no limit in this profile" if limit is None else f"limit {limit:g} dB"
    reason = f"standard deviation over {_MAKINGS} makings of {len(readings)} circuits; {word}"
    return Outcome(verdict, reason, value, (low, high), "dB", readings.shape[0] * _MAKINGS)


def repeatability_of(readings: Any, risk: float) -> tuple[float, float, float]:
    """Return the standard deviation between makings, in dB, and its interval.

    Args:
        readings: levels in dBm, of shape (circuit, making, reading).
        risk: the probability that the interval misses it.
    """
    circuits, makings, count = readings.shape
    noise = float(readings.var(axis=2, ddof=1).mean()) / count
    between = float(readings.mean(axis=2).var(axis=1, ddof=1).mean())
    degrees = circuits * (makings - 1)
    ends = [
        degrees * between / float(scipy.special.chdtri(degrees, beyond))
        for beyond in (risk / 2, 1 - risk / 2)
    ]
    value, low, high = (math.sqrt(max(each - noise, 0.0)) for each in (between, *ends))
    return value, low, high


def factory_losses(subject: Subject, requirement: Requirement) -> Outcome:
    """Measure all losses and compare them with those that the switch states."""
    if not isinstance(subject.switch, FactoryCalibrated):
        return Outcome("not tested", "the switch states no factory losses")
    losses = _losses(subject)
    numbers = [row.value for row in factory_rows(losses, subject.fabric.bench, {})]
    if not numbers:
        return Outcome("not tested", "no loss against a reference at the factory's wavelength")
    limit = float(scipy.special.ndtri(1 - requirement.risk / (2 * len(numbers)))) / 2
    worst = max(numbers)
    reason = f"greatest En number; with {len(numbers)} circuits up to {limit:.2f} is chance"
    return Outcome("pass" if worst <= limit else "fail", reason, worst, None, "1", len(numbers))


def drift(subject: Subject, requirement: Requirement) -> Outcome:
    """Measure all losses, and those of the first setting again during and after."""
    losses = _losses(subject)
    found = check_shifts(losses, find_faults(losses, subject.fabric.testbed))
    if not found:
        return Outcome("not tested", "no light enters at the cabled ports, or it is one setting")
    limit = subject.fabric.testbed.switches[subject.name].check_standard.limit_db
    verdict: Verdict = "inconclusive"
    if any(each.exceeds(limit) for each in found):
        verdict = "fail"
    elif all(abs(each.value) + each.half <= limit for each in found):
        verdict = "pass"
    worst = max(found, key=lambda each: abs(each.value))
    stated = ", ".join(f"{each.reading.phase} {each.value:+.3f} dB" for each in found)
    measured = losses.losses.values()
    kind = "relative losses" if any(each.relative for each in measured) else "losses"
    values = [each.value for each in measured]
    widest = max(each.budget.expanded for each in measured)
    reason = (
        f"limit {limit:g} dB; against the {worst.against}: {stated}; {len(values)} {kind} from "
        f"{min(values):.2f} dB to {max(values):.2f} dB, each within {widest:.2f} dB (k = 2) or less"
    )
    interval = worst.value - worst.half, worst.value + worst.half
    return Outcome(verdict, reason, worst.value, interval, "dB", len(found))


def _losses(subject: Subject) -> Losses:
    """Return the losses of all circuits between ports of the trial."""
    chain = subject.chain()
    return measure_losses(subject.fabric, chain.of_ports(*ports_of(subject, chain)))


def levels_of(subject: Subject, chain: Chain, readings: int = FINAL_READINGS) -> dict[int, float]:
    """Return the mean of readings of each egress port, in dBm, a window apart."""
    window = max(observer.read().window for observer in chain.observers)
    seen = []
    for _ in range(readings):
        subject.sleep(window)
        seen.append(read(chain))
    return {port: float(np.mean([each[port] for each in seen])) for port in chain.egress}


def read(chain: Chain) -> dict[int, float]:
    """Return one reading of all ports of a chain, in dBm."""
    return {port: dbm for each in chain.observers for port, dbm in each.read().dbm.items()}


def ports_of(subject: Subject, chain: Chain) -> tuple[list[int], list[int]]:
    """Return the ports of the trial whose light is read; raises `DecidedError` for none."""
    ingress = [each for each in subject.ingress if each in chain.ingress]
    egress = [each for each in subject.egress if each in chain.egress]
    if not ingress or not egress:
        raise DecidedError(Outcome("not tested", "no light is read at the ports of this trial"))
    return ingress, egress


def judge_light(first: list[tuple[Circuit, float]], final: Any, risk: float) -> Outcome:
    """Judge first readings against `final`, of shape (circuit, reading)."""
    levels = final.mean(axis=1) if len(first) else np.array([])
    lit_ports = {c.ingress for (c, _), level in zip(first, levels, strict=True) if level > DARK_DBM}
    if not lit_ports:
        return Outcome("not tested", "no light enters at the cabled ports")
    judged = [i for i, (circuit, _) in enumerate(first) if circuit.ingress in lit_ports]
    for i in judged:
        if levels[i] <= DARK_DBM:
            return Outcome("fail", f"{first[i][0]} was acknowledged and stays dark")
    n, m = len(judged), final.shape[1]
    spread = math.sqrt(float(final[judged].var(axis=1, ddof=1).mean()))
    factor = float(scipy.special.stdtrit(n * (m - 1), 1 - risk / (2 * n)))
    uncertainty = factor * spread * math.sqrt(1 + 1 / m)
    worst = max(judged, key=lambda i: abs(first[i][1] - levels[i]))
    value = abs(first[worst][1] - float(levels[worst]))
    interval = (max(value - uncertainty, 0.0), value + uncertainty)
    verdict: Verdict = "inconclusive"
    if interval[1] <= SETTLED_DB:
        verdict = "pass"
    elif interval[0] > SETTLED_DB:
        verdict = "fail"
    reason = f"greatest distance from the final power, of {first[worst][0]}"
    return Outcome(verdict, reason, value, interval, "dB", n)
