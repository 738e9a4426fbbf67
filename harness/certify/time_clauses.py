"""Clauses on the time that light takes after a command, in ms."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy

from lightrig.harness.certify.light_clauses import (
    FINAL_NS,
    SETTLED_DB,
    levels_of,
    ports_of,
    read,
)
from lightrig.harness.certify.requirements import Requirement
from lightrig.harness.certify.subject import Outcome, Subject, Verdict
from lightrig.harness.measure.insertion_loss.chains import Chain
from lightrig.harness.measure.insertion_loss.matrix import lit
from lightrig.harness.measure.insertion_loss.readings import DARK_DBM
from lightrig.harness.measure.slow_watch import LATE_WINDOWS, longest_blind, slow_watch
from lightrig.harness.statistics.sequential import SequentialTest
from lightrig.instruments.clock import Span
from lightrig.testbeds import Circuit

_TIMED, _SHORTEST_WATCH = 5, 300_000_000
_MOST_CHANGES = 150
_CYCLES = 6


@dataclass(frozen=True)
class StageTimes:
    """Bounds in ms from the command, one pair for each circuit that was made, by stage.

    `slow` are the reasons why changes could not be watched closely.
    """

    dark: list[tuple[float, float]] = field(default_factory=list)
    first_light: list[tuple[float, float]] = field(default_factory=list)
    settled: list[tuple[float, float]] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)


def settling(subject: Subject, requirement: Requirement) -> Outcome:
    """Time the light of changes of 1, N/2 and N circuits."""
    chain = subject.chain()
    ingress, egress = ports_of(subject, chain)
    most = min(len(ingress), len(egress))
    found: dict[int, StageTimes] = {}
    with lit(chain):
        for count in sorted({1, max(most // 2, 1), most}):
            times = found[count] = StageTimes()
            straight = [Circuit(ingress[i], egress[i]) for i in range(most)]
            moved = [Circuit(ingress[i], egress[(i + 1) % count]) for i in range(count)]
            turned = [*moved, *straight[count:]] if count > 1 else straight[1:]
            subject.apply(turned)
            subject.sleep(FINAL_NS)
            for index in range(_TIMED):
                time_change(subject, chain, (straight, turned)[index % 2], times)
    settled = [each for times in found.values() for each in times.settled]
    if not settled:
        return Outcome("not tested", "no light enters at the cabled ports")
    worst = max(settled, key=lambda each: each[1])
    limit = subject.profile.settling_ms
    verdict: Verdict = "inconclusive"
    if limit is None:
        verdict = "not applicable"
    elif worst[1] <= limit:
        verdict = "pass"
    elif max(low for low, _ in settled) > limit:
        verdict = "fail"
    stated = "; ".join(_described(count, times) for count, times in found.items())
    if verdict == "inconclusive":
        stated = "; ".join([*[s for times in found.values() for s in times.slow][:1], stated])
    if not math.isfinite(worst[1]):
        never = f"not settled {worst[0]:.0f} ms after the command; {stated}"
        return Outcome("fail", never, worst[0], None, "ms", len(settled))
    word = "no limit in this profile" if limit is None else f"limit {limit:g} ms"
    return Outcome(verdict, f"{word}; {stated}", worst[1], worst, "ms", len(settled))


def time_change(
    subject: Subject, chain: Chain, setting: Collection[Circuit], times: StageTimes
) -> None:
    """Make a setting and add to `times` those of the light of its new circuits, in order.

    A circuit whose light has not settled when the watch ends has no upper bound (infinite); one
    without light has none of the times.
    """
    clock = subject.fabric.bench.clock
    change = subject.fabric.prepare(subject.plan(setting), check_budget=False)
    window = max(observer.read().window for observer in chain.observers)
    before = read(chain)
    length = max(_SHORTEST_WATCH, round(2e6 * (subject.profile.settling_ms or 0)))
    sent = change.begin()
    readings: list[tuple[int, int, dict[int, float]]] = []
    while not readings or readings[-1][0] < sent.latest + length:  # one begins after it
        clock.sleep(window // 4)
        asked = clock.now()
        seen = read(chain)
        readings.append((asked - window, clock.now(), seen))
    blind = longest_blind(Span(begun + window, ended) for begun, ended, _ in readings)
    if slow := slow_watch(blind, LATE_WINDOWS * window, "light"):
        times.slow.append(slow)
    change.acknowledged()
    change.verify()
    final = levels_of(subject, chain)

    def bounds(index: int) -> tuple[float, float]:
        """Return when reading `index` came to be, in ms: after the one before it had begun."""
        low = readings[index - 1][0] if index else sent.earliest
        return max(low - sent.latest, 0) / 1e6, (readings[index][1] - sent.earliest) / 1e6

    here = change.changes[subject.name]
    for circuit in here.add:
        port = circuit.egress
        if final[port] <= DARK_DBM:
            continue
        off = [i for i, r in enumerate(readings) if abs(r[2][port] - final[port]) > SETTLED_DB]
        if not off:
            times.settled.append(bounds(0))
            continue
        settled = min(off[-1] + 1, len(readings) - 1)
        low, high = bounds(settled)
        times.settled.append((low, math.inf if off[-1] == len(readings) - 1 else high))
        dark = [i for i, r in enumerate(readings) if r[2][port] <= DARK_DBM]
        if dark and dark[-1] + 1 < len(readings):
            times.first_light.append(bounds(dark[-1] + 1))
        if dark and before[port] > DARK_DBM:
            times.dark.append(bounds(dark[0]))


def _described(count: int, times: StageTimes) -> str:
    parts = [
        f"{name} at most {max(high for _, high in found):.0f} ms"
        for name, found in (
            ("dark", times.dark),
            ("first light", times.first_light),
            ("settled", times.settled),
        )
        if found
    ]
    return f"{count} circuit{'s' if count > 1 else ''}: {', '.join(parts) or 'no light'}"


def slow_share(subject: Subject, requirement: Requirement) -> Outcome:
    """Time changes of one circuit until few or many of them are known to be slow."""
    limit = subject.profile.settling_ms
    if limit is None:
        return Outcome("not applicable", "no limit in this profile")
    chain = subject.chain()
    ingress, egress = ports_of(subject, chain)
    if len(egress) < 2:
        return Outcome("not applicable", "fewer than two cabled ports on a side")
    test = SequentialTest(good=0.01, bad=0.1, alpha=requirement.risk, beta=requirement.risk)
    times = StageTimes()
    verdict: Verdict = "inconclusive"
    with lit(chain):
        subject.apply([Circuit(ingress[0], egress[1])])
        subject.sleep(FINAL_NS)
        while verdict == "inconclusive" and len(times.settled) < _MOST_CHANGES:
            n = len(times.settled)
            time_change(subject, chain, [Circuit(ingress[0], egress[n % 2])], times)
            if len(times.settled) == n:
                return Outcome("not tested", "no light enters at the cabled ports")
            surely = sum(low > limit for low, _ in times.settled)
            perhaps = sum(high > limit for _, high in times.settled)
            if test.decide(surely, n + 1) == "reject":
                verdict = "fail"
            elif test.decide(perhaps, n + 1) == "accept":
                verdict = "pass"
    n = len(times.settled)
    reason = (
        f"{surely} of {n} changes took longer than {limit:g} ms, {perhaps - surely} more may have"
    )
    if verdict == "inconclusive":
        reason = "; ".join([reason, *times.slow[:1]])
    return Outcome(verdict, reason, perhaps / n, None, "1", n)


def settling_by_move(subject: Subject, requirement: Requirement) -> Outcome:
    """Compare changes to near and far egress ports, and after the same and another circuit."""
    chain = subject.chain()
    ingress, egress = ports_of(subject, chain)
    if len(ingress) < 2 or len(egress) < 5:
        return Outcome("not applicable", "fewer than two or five cabled ports on the sides")
    groups = {name: StageTimes() for name in ("near", "far", "after another")}
    here, near, far = (Circuit(ingress[0], egress[i]) for i in (0, 1, -1))
    beside, turned = (Circuit(ingress[1], egress[i]) for i in (2, 3))
    with lit(chain):
        subject.apply([here, beside])
        subject.sleep(FINAL_NS)
        for _ in range(_CYCLES):
            for name, setting in (
                ("near", [near, beside]),
                ("near", [here, beside]),
                ("far", [far, beside]),
                ("far", [here, beside]),
                ("", [here, turned]),
                ("after another", [near, turned]),
                ("", [near, beside]),
                ("after another", [here, beside]),
            ):
                time_change(subject, chain, setting, groups.get(name, StageTimes()))
    if not all(times.settled for times in groups.values()):
        return Outcome("not tested", "no light enters at the cabled ports")
    bounds = np.concatenate([times.settled for times in groups.values()])
    if slow := next((each for times in groups.values() for each in times.slow), ""):
        return Outcome("inconclusive", slow, n=len(bounds))
    if not np.isfinite(bounds).all():
        return Outcome("fail", "a circuit does not settle", n=len(bounds))
    half = float((bounds[:, 1] - bounds[:, 0]).mean())  # of each of the two that are compared
    middles = {name: np.mean(times.settled, axis=1) for name, times in groups.items()}
    shifts = {
        name: shift_of(middles[name], middles["near"], requirement.risk / 2)
        for name in ("far", "after another")
    }
    stated = "; ".join(
        f"{name} {value:+.1f} ms ({low - half:+.1f} to {high + half:+.1f})"
        for name, (value, low, high) in shifts.items()
    )
    value, low, high = max(shifts.values(), key=lambda each: abs(each[0]))
    limit = subject.profile.even_ms
    verdict: Verdict = "inconclusive"
    if limit is None:
        verdict = "not applicable"
    elif all(-limit <= low - half and high + half <= limit for _, low, high in shifts.values()):
        verdict = "pass"
    elif any(low - half > limit or high + half < -limit for _, low, high in shifts.values()):
        verdict = "fail"
    word = "no limit in this profile" if limit is None else f"limit {limit:g} ms"
    reason = f"{word}; longer than near ones by: {stated}"
    return Outcome(verdict, reason, value, (low - half, high + half), "ms", len(bounds))


def shift_of(one: Sequence[float], two: Sequence[float], risk: float) -> tuple[float, float, float]:
    """Return the shift from `two` to `one` and its interval, after Hodges and Lehmann.

    The interval is that of Mann and Whitney's test by its normal approximation; it misses the
    shift with a probability of about `risk`.
    """
    n, m = len(one), len(two)
    differences = np.sort(np.subtract.outer(one, two).ravel())
    spread = math.sqrt(n * m * (n + m + 1) / 12)
    outside = max(math.floor(n * m / 2 - float(scipy.special.ndtri(1 - risk / 2)) * spread), 0)
    low, high = differences[outside], differences[-1 - outside]
    return float(np.median(differences)), float(low), float(high)
