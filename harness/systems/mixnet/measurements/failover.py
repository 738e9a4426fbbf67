"""Something fails under all-to-alls: who notices when, which ways are left, when they run again."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy.typing as npt

from lightrig.harness.bench import Fabric
from lightrig.harness.jobs.measure.recovery import Recovery
from lightrig.harness.record import Row, Scalar
from lightrig.harness.systems.mixnet.measurements.exchanges import (
    WrongExchangeError,
    bring_in,
)
from lightrig.harness.systems.mixnet.planning.region import Failures
from lightrig.harness.systems.mixnet.runtime.exchanges import Exchanges
from lightrig.instruments.clock import Clock, Span
from lightrig.testbeds import LightrigError, Plan

POLL = 10_000_000
"""Period at which failures are looked for, in ns."""

NOTICE_TIMEOUT = 30_000_000_000
"""Timeout until a failure is noticed, in ns."""


class UnnoticedError(LightrigError):
    """No carrier and no rank showed a failure."""


@dataclass(frozen=True)
class Failover:
    """One failure, and what followed; all but `failed` and `replanned` after it, in ns.

    Attributes:
        case: what failed, in a word.
        failures: what the controller found.
        plan: that it made without these.
        failed: between which stamps it was made to fail, on the bench's clock.
        noticed: when the controller knew.
        rerouted: when the ways that were left were in use; None where the ranks had ended.
        replanned: how long it took to plan anew until those ways were in use.
        first: when the first all-to-all that began after the failure was complete.
        survived: whether the ranks went on.
    """

    case: str
    failures: Failures
    plan: Plan
    failed: Span
    noticed: Span
    rerouted: Span | None
    replanned: Span
    first: Span | None
    survived: bool


Replan = Callable[[Failures, Plan], Plan]


def under_traffic(
    fabric: Fabric,
    over: Exchanges,
    case: str,
    plan: Plan,
    traffic: npt.ArrayLike,
    fail: Callable[[], object],
    replan: Replan,
    *,
    before: int = 1_000_000_000,
    after: int = 3_000_000_000,
) -> Failover:
    """Let something fail that no rank ends of, under all-to-alls over `plan`, which is in place.

    First the traffic of what failed takes the other way, packets for circuits and the reverse.
    Then the circuits are planned anew: those that are to move are left before they do.

    Raises:
        UnnoticedError: no port told of it.
        WrongExchangeError: values came out wrong.
        CollectiveFailedError: a rank answers no more.
    """
    clock = fabric.bench.clock
    running = over.runner.start_exchange(over.exchange(over.routing(plan), traffic))
    try:
        clock.sleep(before)
        failed = _stamped(clock, fail)
        failures, _ = _noticed(clock, over, plan)
        noticed = clock.now()
        over.route(over.routing(plan, failures))
        rerouted = clock.now()
        clock.sleep(after)
        asked, anew = clock.now(), replan(failures, plan)
        unmoved = {name: each & anew.circuits[name] for name, each in plan.circuits.items()}
        over.route(over.routing(Plan(f"{plan.name} and {anew.name}", unmoved), failures))
        bring_in(fabric, over, anew, failures)
        replanned = clock.now()
        clock.sleep(after)
    finally:
        seen = running.stop()
    if seen.wrong:
        raise WrongExchangeError(f"{seen.wrong} values came out wrong while a {case} failed")
    recovery = Recovery(plan.name, anew.name, failed, Span(noticed, rerouted), seen)
    return Failover(
        case,
        failures,
        anew,
        failed,
        Span(noticed, noticed).since(failed),
        Span(rerouted, rerouted).since(failed),
        Span(replanned - asked, replanned - asked),
        recovery.first_completed(),
        recovery.survived,
    )


def with_a_new_rank(
    fabric: Fabric,
    over: Exchanges,
    case: str,
    plan: Plan,
    traffic: npt.ArrayLike,
    ranks: Sequence[str],
    fail: Callable[[], object],
    replan: Replan,
    backup: Callable[[Failures, Sequence[str]], Sequence[str]],
    *,
    before: int = 1_000_000_000,
) -> Failover:
    """Let a rank end, and begin anew with the ranks that `backup` names, as from a checkpoint.

    Raises what `under_traffic` does.
    """
    clock = fabric.bench.clock
    running = over.runner.start_exchange(over.exchange(over.routing(plan), traffic, ranks))
    try:
        clock.sleep(before)
        failed = _stamped(clock, fail)
        failures, ended = _noticed(clock, over, plan)
        noticed = clock.now()
    finally:
        running.abandon()
    asked, anew = clock.now(), replan(failures, plan)
    routing = bring_in(fabric, over, anew, failures)
    replanned = clock.now()
    new = backup(failures, ended)
    found = over.runner.exchange(over.exchange(routing, traffic, new), warm_up=0, iterations=1)
    done = clock.now()
    if found.wrong:
        raise WrongExchangeError(f"{found.wrong} values came out wrong after a {case} failed")
    return Failover(
        case,
        failures,
        anew,
        failed,
        Span(noticed, noticed).since(failed),
        None,
        Span(replanned - asked, replanned - asked),
        Span(done, done).since(failed),
        False,
    )


def failover_rows(found: Failover, fabric: Fabric, number: int) -> Iterator[Row]:
    """The event as rows: each step after the failure, and whether the ranks went on."""
    name, time = fabric.testbed.name, found.failed.earliest
    conditions: dict[str, Scalar] = {"event": number, "failed": found.case, "plan": found.plan.name}
    alive = int(found.survived)
    yield Row(name, "failover.survived", alive, alive, alive, "1", time, conditions)
    steps = {
        "noticed": found.noticed,
        "rerouted": found.rerouted,
        "replanned": found.replanned,
        "first_collective": found.first,
    }
    for step, span in steps.items():
        if span is not None:
            low, high = span
            yield Row(
                name, f"failover.{step}", (low + high) // 2, low, high, "ns", time, conditions
            )


def _stamped(clock: Clock, act: Callable[[], object]) -> Span:
    asked = clock.now()
    act()
    return Span(asked, clock.now())


def _noticed(clock: Clock, over: Exchanges, plan: Plan) -> tuple[Failures, Sequence[str]]:
    """Return what failed and whose ranks ended, once two readings in a row agree."""
    deadline = clock.now() + NOTICE_TIMEOUT
    before = None
    while clock.now() < deadline:
        found = over.failed(plan), tuple(over.ended())
        if found == before and found != (Failures(), ()):
            return found
        before = found
        clock.sleep(POLL)
    raise UnnoticedError(
        f"nothing told of a failure within {NOTICE_TIMEOUT / 1e9:g} s: every NIC port has its "
        "carrier, and every rank answers"
    )
