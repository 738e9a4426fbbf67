"""Error rates of limits: sample plans of two stages, bit errors in bursts, losses, light.

Wrong passes with the truth at the limit, wrong fails with the truth at 0.8 of it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import signal, special

from lightrig.harness.statistics.bursts import GateErrors, judge_gates
from lightrig.harness.statistics.limits import judge
from lightrig.harness.statistics.sample_plans import two_stage_plan
from lightrig.harness.statistics.uncertainty import Component, combine, pooled
from lightrig.harness.statistics.verdicts import Outcome, judge_maximum, judge_plan
from lightrig.testbeds import Limit

LIMIT_SHARES = ((1.0, "pass"), (0.8, "fail"))
"""The truth as a share of the limit, and the verdict that is wrong there."""

_BITS = 10**12
_POLL_MS = 10.0


class Case(NamedTuple):
    """One line: statistic, condition, nominal rate, number of errors, repetitions."""

    statistic: str
    condition: str
    nominal: float
    errors: int
    repetitions: int


def cases() -> Iterator[Case]:
    """Yield every line."""
    for share, wrong in LIMIT_SHARES:
        outcome: Any = wrong
        nominal = 0.05 if share == 1 else 0.01
        where = "at the limit" if share == 1 else f"at {share:g} of the limit"
        condition = f"{where}, wrong {wrong}"
        for q in (0.5, 0.9, 0.95):
            name = f"limit on a {'median' if q == 0.5 else f'p{q * 100:g}'}, two stages"
            for kind, draw in (("exact", 0.0), ("polled", _POLL_MS)):
                decide = _plan(q, share, draw)
                yield _case(name, f"{kind}, {condition}", nominal, decide, outcome, 4000)
        for follow in (0.3, 0.6):
            decide = _following(follow, share)
            full = f"{condition}, events that follow each other by {follow:g}, more of them taken"
            yield _case("limit on a p95, two stages", full, nominal, decide, outcome, 4000)
        for mean in (1, 2, 4, 10, 30):
            decide = _bursts(mean, share)
            full = f"{condition}, mean burst {mean}, about 40 looks with errors"
            yield _case("limit on a bit error ratio, bursts", full, nominal, decide, outcome, 4000)
        decide, nominal = _loss(share), min(nominal, 0.025)
        yield _case("limit on a loss", f"one circuit, {condition}", nominal, decide, outcome, 4000)


def _case(
    name: str,
    condition: str,
    nominal: float,
    decide: Callable[[], Outcome],
    wrong: Outcome,
    repetitions: int,
) -> Case:
    errors = sum(decide() == wrong for _ in range(repetitions))
    return Case(name, condition, nominal, errors, repetitions)


def _plan(q: float, share: float, poll: float) -> Callable[[], Outcome]:
    """Lognormal times of sd 0.1 whose quantile q is `share` of a limit of 100 ms."""
    random = np.random.default_rng(round(1000 * q) + round(100 * share) + round(poll))
    limit = 100.0
    middle = math.log(share * limit) - 0.1 * float(special.ndtri(q))
    plan = two_stage_plan(1 - q, 0.05)

    def decide() -> Outcome:
        values = random.lognormal(middle, 0.1, plan[-1].samples)
        phase = random.random(values.size) * poll
        low = np.floor((values - phase) / poll) * poll + phase if poll else values
        for look in plan:
            taken = slice(look.samples)
            found = judge_plan(low[taken], low[taken] + poll, limit, q, plan, 0.95)
            if found.outcome != "not enough data":
                return found.outcome
        return "not enough data"

    return decide


def _following(follow: float, share: float) -> Callable[[], Outcome]:
    """As `_plan`, of a process of the first order; taken as a test takes them."""
    random = np.random.default_rng(round(100 * follow) + round(100 * share))
    limit = Limit("reconfiguration.carrier_up", "upper", 0.95, 100.0, "ms", 0.95)
    middle = math.log(share * limit.value) - 0.1 * float(special.ndtri(0.95))
    plan = two_stage_plan(0.05, 0.05)
    most = plan[-1].samples

    def decide() -> Outcome:
        steps = random.normal(size=most) * math.sqrt(1 - follow**2)
        steps[0] /= math.sqrt(1 - follow**2)
        values = np.exp(middle + 0.1 * signal.lfilter([1], [1, -follow], steps))
        taken = plan[0].samples
        while True:
            found = judge(limit, values[:taken], values[:taken], plan)
            if found.outcome != "not enough data" or not found.needed:
                return found.outcome
            taken += found.needed
            if taken > most:
                return found.outcome

    return decide


def _bursts(mean: float, share: float) -> Callable[[], Outcome]:
    """One gate whose looks hold bursts of geometric size."""
    random = np.random.default_rng(round(10 * mean) + round(100 * share))
    bursts = 40

    def decide() -> Outcome:
        limit = bursts * mean / _BITS / share
        per_look = random.poisson(bursts / 200, 200)
        added = [int(random.geometric(1 / mean, number).sum()) for number in per_look]
        gate = GateErrors.of_looks(_BITS, np.cumsum(added).tolist())
        return judge_gates([gate], limit).outcome

    return decide


def _loss(share: float) -> Callable[[], Outcome]:
    """A loss by sixteen readings and a reference, against a limit of 1 dB."""
    random = np.random.default_rng(round(100 * share) + 7)

    def decide() -> Outcome:
        readings = share + random.normal(0, 0.05, 16)
        noise = pooled([readings], "noise")
        value = float(readings.mean()) + random.normal(0, 0.04)
        half = combine(
            [Component("noise", noise.standard / 4, noise.degrees), Component("reference", 0.04)]
        ).expanded
        return judge_maximum([value - half], [value + half], 1.0).outcome

    return decide
