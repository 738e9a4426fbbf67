"""A job under a fault that is made with light: what becomes of the job, and what it costs.

The switch itself makes the fault: it takes circuits away, or swaps them, and makes them again. So
the fault is the same on hardware, and routes stay as they are meanwhile.
"""

import itertools
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, Protocol, TypeAlias, get_args

from lightrig.harness.bench import Fabric
from lightrig.harness.jobs.measure.light_faults import Fault, FaultKind, dark_plans
from lightrig.harness.jobs.measure.link_use import LinkCounters
from lightrig.harness.jobs.measure.round_phase import RoundPhase, median_round
from lightrig.harness.measure.links import LINK_TIMEOUT, UNSEEN, LinkObservation
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.slow_watch import slow_watch
from lightrig.harness.record import Row, Scalar
from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import LinkEvent
from lightrig.instruments.jobs.core.streams import StreamState
from lightrig.testbeds import LightrigError, Link, Plan, Port

Outcome: TypeAlias = Literal[
    "unharmed",
    "slower, then as before",
    "stalled, then went on",
    "re-formed",
    "parted",
    "error",
    "hang",
    "wrong result",
    "not felt: other link",
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
NOT_FELT: Outcome = "not felt: other link"

PacketLoss: TypeAlias = Callable[[Collection[Port], float], Span]
"""Makes the kernels of some ports lose a share of the packets that they receive; returns when."""

RECOVERY = 60_000_000_000
"""Time after the light has come back in which a job may go on, in ns."""

_STEADY = 300_000_000
"""Time for which a job is watched once it has gone on, in ns."""
_STALL = 200_000_000
"""Least time of a round that stood still, in ns: TCP's least retransmission timeout on Linux."""
_WINDOW, _AS_BEFORE = 5, 0.95
"""The rate is back once so many rounds in a row took no longer than before, but for 5 %."""
_LOOK_AGAIN = 20_000_000
_REROUTED = "routes over the links left"
_BACK = "command to bring the circuits back"
_CAUSES = {
    "acknowledged": "command",
    "carrier lost": "command",
    _REROUTED: "carrier lost",
    "first retransmission": "carrier lost",
    "carrier back": _BACK,
    "routes as before": "carrier back",
    "packets lost no more": "packets lost",
    "rate back to 95 %": "first result",
}
"""Of each moment that another one causes, that one."""


class NoFaultError(LightrigError):
    """No carrier was seen to go, so nothing was cut."""


class WatchedJob(Protocol):
    """A job that runs on a link until it is stopped."""

    def state(self) -> StreamState:
        """Return what has become of it so far."""

    def stop(self) -> StreamState:
        """End it; return what has become of it."""


@dataclass(frozen=True)
class Survival:
    """Effect of one fault on the job on it.

    Attributes:
        outcome: in one word.
        dark: bounds of the time without carrier, of the port where it was longest, in ns; 0 where
            the light stayed.
        lost, back: when the first carrier went and the last came back, on the bench's clock.
        stall: duration of the exchange that lasted longest, in ns, by the sender's clock; of one
            that has not ended, its duration until it was given up or failed.
        usual: the longest one before the cut, in ns; 0 where each was shorter than 1 ms.
        exchanges, wrong: how many ended, and how many of these had a wrong answer.
        error: the job's error; empty without.
        groups: the ranks that went on, in the groups in which they did; empty where unknown.
        moments: what happened when, in order, on the bench's clock.
        phase: how many median rounds had passed since the last result when the first carrier went;
            None where rounds are unknown.
        stalls: for how long any exchange that met the fault stood still, in ns; of a flap, that of
            all its cuts together.
        used: whether the job used the link before the fault; None where no port counted bytes.
    """

    outcome: Outcome
    fault: Fault
    plan: str
    dark: Span
    lost: Span
    back: Span
    stall: int
    usual: int
    exchanges: int
    wrong: int
    error: str
    groups: tuple[tuple[str, ...], ...]
    moments: dict[str, Span]
    phase: float | None = None
    stalls: int = 0
    used: bool | None = None

    @property
    def went_on(self) -> bool:
        """Whether the job went on by itself, with right results."""
        return self.outcome in (*OUTCOMES[:3], NOT_FELT)

    @property
    def duration(self) -> int:
        """Time without carrier, in ns; where the light stayed, the time that was asked for."""
        return sum(self.dark) // 2 or self.fault.what.duration

    @property
    def began(self) -> int:
        """The first moment of the fault, on the bench's clock."""
        return min(at.earliest for at in (self.lost, *self.moments.values()))


def measure_survival(
    fabric: Fabric,
    links: LinkObservation,
    recording: Recording,
    job: WatchedJob,
    plan: Plan,
    link: Link,
    *,
    cut: int,
    timeout: int = RECOVERY,
) -> Survival:
    """Cut `link` of `plan`, which is in place, under a job; record what became of the job.

    job: runs on the link. cut: how long the circuits are away, in ns. timeout: how
    long after the light has come back the job may take to go on, in ns.

    Raises `NoFaultError`, `LinksDownError`, and `InstrumentError` where switch or server fails.
    """
    fault = Fault(FaultKind("cut", cut), link)
    found = job_under_fault(fabric, links, job, plan, fault, timeout=timeout)
    recording.record(survival_rows(found, recording.next_event()))
    return found


def job_under_fault(
    fabric: Fabric,
    links: LinkObservation,
    job: WatchedJob,
    plan: Plan,
    fault: Fault,
    *,
    timeout: int = RECOVERY,
    lose: PacketLoss | None = None,
    reform: Callable[[], WatchedJob] | None = None,
    reroute: Callable[[Iterable[Link]], object] | None = None,
    phase: RoundPhase | None = None,
    drawn: bool = False,
) -> Survival:
    """Make `fault` under `job`, which has been started on `plan`; see `measure_survival`.

    lose: makes the ports lose a share of the packets that they receive; for dimming.
    reform: starts the job anew after an error, once the light is back; without it nothing does.
    reroute: leads packets over links alone: over those that are left as soon as a carrier is lost,
        and over those of the plan once all are back; without it routes stay.
    phase: of a round at which the light is to go; without it the moment is the drawn one.
    drawn: the place of the fault was drawn: a link that the job does not use gives way to one that
        it does.
    """
    clock = fabric.bench.clock
    began = clock.now()
    counters = LinkCounters(fabric.bench, fabric.links(plan))
    clock.sleep(max(began + fault.after - clock.now(), 0))
    use = counters.use()
    if drawn and use.uses(fault.link) is False:
        fault = replace(fault, link=use.used[0])
    before = job.state()
    if phase is not None:
        clock.sleep(phase.wait(before, clock.now()))
    if fault.what.kind == "dim":
        made = _dimmed(fabric, plan, fault, lose)
    else:
        made = _darkened(fabric, links, plan, fault, reroute)
    if phase is not None and "carrier lost" in made.moments:
        phase.delays.append(max(made.lost.earliest - made.moments["command"].earliest, 0))
    after = _watched(job, clock, made.back, timeout)
    met = _met(after, made.lost, made.back)
    stall, outcome = _judged(before, after, met, made, clock.now())
    used = use.uses(fault.link)
    if outcome == "unharmed" and used is False:
        outcome = NOT_FELT
    moments = made.moments | _moments_of(before, after, made)
    again = _first_result(reform(), clock, timeout) if reform and outcome == "error" else None
    if again is not None:
        outcome, moments["first result after re-forming"] = "re-formed", again
    return Survival(
        outcome,
        fault,
        plan.name,
        made.dark,
        made.lost,
        made.back,
        stall,
        max(before.durations, default=0),
        after.exchanges - before.exchanges,
        after.wrong - before.wrong,
        after.error,
        tuple(tuple(sorted(group)) for group in sorted(after.groups, key=sorted)),
        _in_order(moments),
        _phase_of(before, after, made.lost),
        max(stall, _stood_still(after, made.lost, made.back)),
        used,
    )


class _Made(NamedTuple):
    """A fault that has been made, and is over: see `Survival`."""

    dark: Span
    lost: Span
    back: Span
    moments: dict[str, Span]


def _phase_of(before: StreamState, after: StreamState, lost: Span) -> float | None:
    """Return how many median rounds had passed since the last end when a carrier went."""
    usual = median_round(before)
    ends = [at.latest for at in after.ends if at.latest <= lost.earliest]
    return (lost.earliest - ends[-1]) / usual if usual and ends else None


def _dimmed(fabric: Fabric, plan: Plan, fault: Fault, lose: PacketLoss | None) -> _Made:
    if lose is None:
        raise NoFaultError("dimming needs servers whose kernels can lose packets")
    clock, ports = fabric.bench.clock, fault.ports(fabric.testbed, plan)
    try:
        lost = lose(ports, fault.what.loss)
        clock.sleep(max(lost.latest + fault.what.duration - clock.now(), 0))
    finally:
        back = lose(ports, 0.0)
    return _Made(Span(0, 0), lost, back, {"packets lost": lost, "packets lost no more": back})


def _darkened(
    fabric: Fabric,
    links: LinkObservation,
    plan: Plan,
    fault: Fault,
    reroute: Callable[[Iterable[Link]], object] | None,
) -> _Made:
    """Take light away by the switches, and bring `plan` back."""
    clock, moments = fabric.bench.clock, dict[str, Span]()
    dark, present = fault.ports(fabric.testbed, plan), fabric.links(plan)
    ends = dark | {fault.link.a, fault.link.b}
    with links.observing() as event:
        until = 0
        for place, (wanted, duration) in enumerate(dark_plans(fabric, plan, fault)):
            sent, acknowledged = _apply(fabric, wanted)
            until = max(until, sent.earliest) + duration
            if not place:
                moments |= {"command": sent, "acknowledged": acknowledged}
                allowed = 0 if fault.switched else LINK_TIMEOUT
                lost = links.lost(dark, sent.earliest, allowed)
                if lost.keys() != dark and not fault.switched:
                    stayed = {port.owner for port in dark - lost.keys()}
                    for server in sorted(event.slow().keys() & stayed):
                        slow = slow_watch(event.slow()[server], UNSEEN, f"{server}'s ports")
                        raise NoFaultError(f"{fault.link}: {slow}")
                    raise NoFaultError(f"{fault.link}: circuits were taken away, a carrier stayed")
                if reroute:
                    left = [each for each in present if dark.isdisjoint((each.a, each.b))]
                    moments[_REROUTED] = _done(clock, partial(reroute, left))
                until = min([at.earliest for at in lost.values()] or [sent.latest]) + duration
            clock.sleep(max(until - clock.now(), 0))
        moments[_BACK], there = _apply(fabric, plan)
        links.await_up(ends, LINK_TIMEOUT)
        if reroute:
            moments["routes as before"] = _done(clock, partial(reroute, present))
        carriers = [(p, c) for p, c in event.changes if c.stage == "carrier" and p in dark]
    without = {port: _time_without(change for p, change in carriers if p == port) for port in dark}
    back = [change.at for _, change in carriers if change.up]
    if lost:
        moments["carrier lost"] = min(lost.values())
    if back:
        moments["carrier back"] = max(back)
    began, ended = moments.get("carrier lost", moments["command"]), max([there, *back])
    return _Made(max(without.values(), key=sum), began, ended, moments)


def _done(clock: Clock, work: Callable[[], object]) -> Span:
    """Do some work; return from when to when."""
    before = clock.now()
    work()
    return Span(before, clock.now())


def _time_without(changes: Iterable[LinkEvent]) -> Span:
    """Return bounds of the time without carrier of one port, all of its losses together."""
    lost: Span | None = None
    least = most = 0
    for change in changes:
        if not change.up:
            lost = lost or change.at
        elif lost is not None:
            one, lost = change.at.since(lost), None
            least, most = least + one.earliest, most + one.latest
    return Span(least, most)


def _apply(fabric: Fabric, plan: Plan) -> tuple[Span, Span]:
    transition = fabric.prepare(plan, check_budget=False)
    sent = transition.begin()
    acknowledged = transition.acknowledged()
    transition.verify()
    return sent, acknowledged


def _in_order(moments: Mapping[str, Span]) -> dict[str, Span]:
    """Return moments as they came; where bounds overlap, what caused another comes before it."""

    def key(name: str) -> tuple[int, int]:
        cause = _CAUSES.get(name)
        seen = (moments[name].earliest, 0)
        if cause is None or cause not in moments:
            return seen
        before, place = key(cause)
        return max(seen, (before, place + 1))

    return dict(sorted(moments.items(), key=lambda each: (key(each[0]), each[1])))


def _moments_of(before: StreamState, after: StreamState, made: _Made) -> dict[str, Span]:
    """Return when kernel and application noticed the fault, and when they were as before."""
    lost, back, found = made.lost, made.back, dict[str, Span]()
    if again := [at for at in after.retransmitted if at.latest >= lost.earliest]:
        found["first retransmission"] = again[0]
    if warned := [at for at in after.warned if at.latest >= lost.earliest]:
        found["first warning of the library"] = warned[0]
    if after.failed is not None:
        found["error"] = after.failed
    if after.reformed:
        dark = [at for at in after.reformed if at.latest < back.earliest]
        found["re-formed"] = (dark or after.reformed)[-1]
        if dark and len(dark) < len(after.reformed):
            found["re-formed again"] = after.reformed[-1]
    # Over other links the job may go on in the dark.
    possible = made.moments.get(_REROUTED, back)
    if ends := [at for at in after.ends if at.latest > possible.latest]:
        found["first result"] = ends[0]
    usual = [b.latest - a.latest for a, b in itertools.pairwise(before.ends)]
    if len(usual) >= _WINDOW:
        limit = statistics.median(usual) * _WINDOW / _AS_BEFORE
        for first, last in zip(ends, ends[_WINDOW:], strict=False):
            if last.latest - first.latest <= limit:
                found["rate back to 95 %"] = last
                break
    return found


def _first_result(job: WatchedJob, clock: Clock, timeout: int) -> Span | None:
    """Return when a job that was started anew had its first right result; None without one."""
    deadline = clock.now() + timeout
    while not (state := job.state()).error and clock.now() < deadline:
        if state.exchanges:
            break
        clock.sleep(_LOOK_AGAIN)
    job.stop()
    return state.ends[0] if state.ends and not state.wrong and not state.error else None


def _watched(job: WatchedJob, clock: Clock, back: Span, timeout: int) -> StreamState:
    """Return the job's last state: once it has failed, gone on, or exceeded `timeout`."""
    while True:
        state = job.state()
        went_on = state.began.earliest > back.latest
        if went_on or state.error or clock.now() > back.latest + timeout:
            return job.stop() if not went_on else _stopped_later(job, clock)
        clock.sleep(_LOOK_AGAIN)


def _stopped_later(job: WatchedJob, clock: Clock) -> StreamState:
    """Return the state of a job that went on, a while later: a wrong answer may follow."""
    clock.sleep(_STEADY)
    return job.stop()


def _met(after: StreamState, lost: Span, back: Span) -> list[int]:
    """Return the durations, in ns, of the exchanges that met the fault."""
    return [
        duration
        for (began, ended), duration in zip(after.slow, after.durations, strict=True)
        if ended.latest >= lost.earliest and began.earliest <= back.latest
    ]


def _stood_still(after: StreamState, lost: Span, back: Span) -> int:
    """Return for how long any exchange that met the fault stood still, in ns.

    What several ranks stood still for at the same time counts once.
    """
    total = until = 0
    for (began, ended), duration in sorted(zip(after.slow, after.durations, strict=True)):
        if duration < _STALL or ended.latest < lost.earliest or began.earliest > back.latest:
            continue
        total += max(ended.latest - max(began.latest, until), 0)
        until = max(until, ended.latest)
    return total


def _judged(
    before: StreamState, after: StreamState, met: Sequence[int], made: _Made, now: int
) -> tuple[int, Outcome]:
    """Return the longest exchange that met the fault, in ns, and the outcome."""
    if after.wrong > before.wrong:
        return max(met, default=0), "wrong result"
    if after.failed is not None:
        return max(after.failed.earliest - after.began.latest, 0), "error"
    if after.began.latest <= made.back.latest:
        return now - after.began.latest, "hang"
    stall = max(met, default=0)
    if len(after.groups) > 1:
        return stall, "parted"
    if after.reformed:
        return stall, "re-formed"
    usual = max(before.durations, default=0)
    if stall <= usual:
        return stall, "unharmed"
    return stall, "stalled, then went on" if stall >= _STALL else "slower, then as before"


def survival_rows(found: Survival, number: int) -> Iterator[Row]:
    """The event as rows, each with its outcome."""
    conditions: dict[str, Scalar] = {
        "event": number,
        "plan": found.plan,
        "fault": str(found.fault.what),
        "asked_ns": found.fault.what.duration,
        "outcome": found.outcome,
        "exchanges": found.exchanges,
        "wrong": found.wrong,
        "usual_ns": found.usual,
    }
    if found.error:
        conditions["error"] = found.error
    subject, time = str(found.fault.link), found.lost.earliest
    least, most = found.dark
    yield Row(subject, "survival.dark", (least + most) // 2, least, most, "ns", time, conditions)
    for quantity, value, unit in (
        ("survival.stall", found.stall, "ns"),
        ("survival.went_on", int(found.went_on), "1"),
    ):
        yield Row(subject, quantity, value, value, value, unit, time, conditions)
