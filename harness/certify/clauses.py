"""The clauses: each tries one requirement on one switch. Power is in dBm, differences in dB."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import stats

from lightrig.harness.bench import Fabric
from lightrig.harness.certify.requirements import Profile, Requirement
from lightrig.harness.measure.insertion_loss.chains import (
    Chain,
    NothingToMeasureError,
    chains,
)
from lightrig.harness.measure.insertion_loss.matrix import lit
from lightrig.harness.measure.insertion_loss.readings import DARK_DBM
from lightrig.harness.measure.insertion_loss.references import references_of
from lightrig.harness.measure.insertion_loss.settings import cyclic_shifts
from lightrig.instruments.core.capabilities import OpticalSwitch
from lightrig.instruments.core.errors import CANNOT, DeniedError
from lightrig.testbeds import Circuit, Plan

Verdict: TypeAlias = Literal["pass", "fail", "inconclusive", "not applicable", "not tested"]

SETTLED_DB = 0.5
"""Distance from the final power within which a circuit is done (SAI's proposal for OCS)."""

_ABSENT = 9999
"""Port that no switch has, for switches that do not state their size."""
_REPEATS, _FINAL_READINGS, _FINAL_NS, _PAUSE_NS = 5, 8, 500_000_000, 100_000_000


@dataclass(frozen=True)
class Outcome:
    """Verdict on a clause; `value` and `interval` are in `unit`, from `n` samples."""

    verdict: Verdict
    reason: str
    value: float | None = None
    interval: tuple[float, float] | None = None
    unit: str = ""
    n: int = 0


@dataclass(frozen=True)
class Subject:
    """A switch that is tried, on the cabled ports of its testbed alone."""

    fabric: Fabric
    name: str
    profile: Profile
    ingress: list[int] = field(init=False)
    egress: list[int] = field(init=False)

    def __post_init__(self) -> None:
        ingress, egress = self.fabric.testbed.cabling.cabled_ports(self.name)
        object.__setattr__(self, "ingress", sorted(ingress))
        object.__setattr__(self, "egress", sorted(egress))

    @property
    def switch(self) -> OpticalSwitch:
        """The driver."""
        return self.fabric.bench.switches[self.name]

    @property
    def size(self) -> tuple[int, int] | None:
        """Numbers of ingress and egress ports as the switch states them; None where it does not."""
        query: Callable[[], tuple[int, int]] | None = getattr(self.switch, "size", None)
        return None if query is None else query()

    def plan(self, circuits: Collection[Circuit]) -> Plan:
        """Return a plan of these circuits and no others on the testbed's ports of the switch."""
        return Plan("certification", {self.name: frozenset(circuits)})

    def apply(self, circuits: Collection[Circuit]) -> None:
        """Bring the testbed's ports of the switch to `circuits`; light is not judged.

        Waits before that, since modules that are still switching refuse the next change.
        """
        self.fabric.bench.clock.sleep(_PAUSE_NS)
        self.fabric.apply(self.plan(circuits), check_budget=False)

    def settings(self) -> list[Collection[Circuit]]:
        """Return three shifts of all ports, or settings of plans where the switch is not able to.

        Raises `DeniedError` where there are no such plans; one setting may be made.
        """
        shifts = cyclic_shifts(self.ingress, self.egress)[:3]
        try:
            self.apply(shifts[0])
        except DeniedError as error:
            plans = self.fabric.plans.values()
            planned = [each.circuits[self.name] for each in plans if self.name in each.circuits]
            if error.code != CANNOT or not planned:
                raise
            return list(planned[:3])
        return list(shifts)

    def attempt(self, circuits: Collection[Circuit]) -> DeniedError | None:
        """Ask for `circuits`, whatever is there; return the refusal, None where acknowledged.

        Notes before that these circuits, and none of those there, may be what is left.
        """
        ports = {*self.ingress, *self.egress}
        valid = frozenset(each for each in circuits if ports.issuperset(each))
        before = self.switch.circuits()
        self.fabric.note_change(self.name, before, valid)
        try:
            self.switch.change([], circuits).done()
        except DeniedError as error:
            return error
        return None

    def absent(self) -> int:
        """Return the number of a port that the switch does not have, on either side."""
        return _ABSENT if self.size is None else sum(self.size) + 1


def identity(subject: Subject, requirement: Requirement) -> Outcome:
    """Ask for identity and size several times."""
    spec = subject.fabric.testbed.switches[subject.name]
    described = (spec.ingress_count, spec.egress_count)
    first = subject.fabric.bench.identities[subject.name]
    for _ in range(_REPEATS):
        stated, size = subject.switch.identity(), subject.size
        fields = (stated.manufacturer, stated.model, stated.serial, stated.firmware)
        if not all(fields) or stated != first:
            return Outcome("fail", f"stated {stated}, before {first}")
        if size is not None and size != described:
            return Outcome("fail", f"states {size[0]}x{size[1]} ports, described {described}")
    ports = "ports as described" if subject.size else "it has no query for its ports"
    return Outcome("pass", f"{first}; {ports}", n=_REPEATS)


def port_model(subject: Subject, requirement: Requirement) -> Outcome:
    """Make three settings and compare what is reported."""
    settings = subject.settings()
    for setting in settings:
        subject.apply(setting)
        for made in (subject.switch.circuits(), subject.switch.circuits()):
            ours = {c for c in made if c.ingress in subject.ingress and c.egress in subject.egress}
            if ours != set(setting):
                return Outcome("fail", f"reports {_listed(ours)}, not {_listed(setting)}")
            ports = [("in", c.ingress) for c in made] + [("out", c.egress) for c in made]
            if len(ports) != len(set(ports)):
                return Outcome("fail", f"a port is in two circuits of {_listed(made)}")
    return Outcome("pass", "reported as asked, no port in two circuits", n=len(settings))


def refusals(subject: Subject, requirement: Requirement) -> Outcome:
    """Ask for circuits at ports that do not exist, and at one in use."""
    if min(len(subject.ingress), len(subject.egress)) < 2:
        return Outcome("not applicable", "fewer than two cabled ports on a side")
    (one, two), (near, far) = subject.ingress[:2], subject.egress[:2]
    present, absent = Circuit(one, near), subject.absent()
    for bad in (Circuit(absent, far), Circuit(two, absent)):
        subject.apply([present])
        before = subject.switch.circuits()
        denied = subject.attempt([bad])
        if (found := _judge(bad, denied, subject.switch.circuits(), [before])) is not None:
            return found
    subject.apply([present])
    before, wanted = subject.switch.circuits(), Circuit(one, far)
    denied, after = subject.attempt([wanted]), subject.switch.circuits()
    expected = before if denied else before - {present} | {wanted}
    if after != expected:
        answer = f"denied ({denied.code})" if denied else "acknowledged"
        return Outcome("fail", f"{wanted} was {answer}, and leaves {_listed(after)}")
    used = f"refused ({denied.code})" if denied else "moved"
    return Outcome("pass", f"ports that do not exist are refused, a port in use is {used}", n=3)


def batch(subject: Subject, requirement: Requirement) -> Outcome:
    """Ask for a batch with a bad circuit in its middle."""
    pairs = [Circuit(*each) for each in zip(subject.ingress, subject.egress, strict=False)][:5]
    if len(pairs) < 3:
        return Outcome("not applicable", "fewer than three cabled ports on a side")
    middle = len(pairs) // 2
    valid = [*pairs[:middle], *pairs[middle + 1 :]]
    bad = Circuit(pairs[middle].ingress, subject.absent())
    subject.apply([])
    before = subject.switch.circuits()
    allowed = [before, before | set(valid)] if subject.profile.partial_batches else [before]
    denied = subject.attempt([*pairs[:middle], bad, *pairs[middle + 1 :]])
    after = subject.switch.circuits()
    if (found := _judge(bad, denied, after, allowed)) is not None:
        return found
    left = "unchanged" if after == before else "with all valid circuits made"
    return Outcome("pass", f"refused, the circuits {left}", n=1)


def _judge(
    bad: Circuit,
    denied: DeniedError | None,
    after: frozenset[Circuit],
    allowed: Collection[frozenset[Circuit]],
) -> Outcome | None:
    """Return why a request with the circuit `bad` was not refused as it has to be, if so."""
    if denied is None:
        return Outcome("fail", f"{bad}, whose port does not exist, is acknowledged")
    if denied.code == CANNOT:
        return Outcome("not tested", f"the driver sends no such request: {denied.text}")
    if after not in allowed:
        return Outcome("fail", f"{bad} is denied ({denied.code}), and leaves {_listed(after)}")
    return None


def acknowledged_light(subject: Subject, requirement: Requirement) -> Outcome:
    """Compare light right after acknowledgements with the final light."""
    try:
        found = chains(subject.fabric.bench, references_of(subject.fabric.bench))
    except NothingToMeasureError as error:
        return Outcome("not tested", str(error))
    chain = next((each for each in found if each.switch == subject.name), None)
    if chain is None or chain.method == "modules":
        return Outcome("not tested", "no monitor and no meter sees the light of this switch")
    ports = [each for each in subject.ingress if each in chain.ingress]
    leaving = [each for each in subject.egress if each in chain.egress]
    most = min(len(ports), len(leaving))
    first: list[tuple[Circuit, float]] = []
    final: list[list[float]] = []
    subject.apply([])
    with lit(chain):
        for count in sorted({1, min(2, most), max(most // 2, 1), most}):
            for shift in (0, 1) if count == most else (0,):
                made = [Circuit(ports[i], leaving[(i + shift) % count]) for i in range(count)]
                new = _observe(subject, chain, made)
                first += [(circuit, powers[0]) for circuit, powers in new.items()]
                final += [powers[1:] for powers in new.values()]
                if count < most:
                    subject.apply([])
    return _judge_light(first, np.array(final), requirement.risk)


def _observe(
    subject: Subject, chain: Chain, made: Collection[Circuit]
) -> Mapping[Circuit, list[float]]:
    """Make circuits; return of each new one the first power after the acknowledgement, then more.

    An average ends at its reading, so the first is taken one averaging window after the word.
    """
    clock = subject.fabric.bench.clock
    window = max(observer.read().window for observer in chain.observers)
    change = subject.fabric.prepare(subject.plan(made), check_budget=False)
    change.begin()
    clock.sleep(max(change.acknowledged().latest + window - clock.now(), 0))
    readings = [_read(chain)]
    change.verify()
    for _ in range(_FINAL_READINGS):
        clock.sleep(max(window, _FINAL_NS) if len(readings) == 1 else window)
        readings.append(_read(chain))
    return {c: [each[c.egress] for each in readings] for c in change.changes[subject.name].add}


def _read(chain: Chain) -> dict[int, float]:
    return {port: dbm for each in chain.observers for port, dbm in each.read().dbm.items()}


def _judge_light(first: list[tuple[Circuit, float]], final: Any, risk: float) -> Outcome:
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
    factor = float(stats.t.ppf(1 - risk / (2 * n), n * (m - 1)))
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


def _listed(circuits: Collection[Circuit]) -> str:
    return ", ".join(map(str, sorted(circuits))) or "no circuit"


CLAUSES: Mapping[str, Callable[[Subject, Requirement], Outcome]] = {
    each.__name__: each for each in (identity, port_model, refusals, batch, acknowledged_light)
}
"""By the `code` of requirements."""
