"""A job on a link whose light is cut for a time: what becomes of the job, and what it costs.

The switch itself cuts the light: it takes the circuits of one link away and makes them again. So
the fault is the same on hardware, and routes stay as they are meanwhile.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.links import LINK_TIMEOUT, LinkObservation
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row, Scalar
from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.streams import StreamState
from lightrig.testbeds import Circuit, LightrigError, Link, Plan

Outcome: TypeAlias = Literal["unharmed", "stalled, then went on", "error", "hang", "wrong result"]

_STEADY = 300_000_000
"""Time for which the job runs before its light is cut, in ns."""
_LOOK_AGAIN = 20_000_000


class NoFaultError(LightrigError):
    """No carrier was seen to go, so nothing was cut."""


class Job(Protocol):
    """A job that runs on a link until it is stopped."""

    def state(self) -> StreamState:
        """Return what has become of it so far."""

    def stop(self) -> StreamState:
        """End it; return what has become of it."""


@dataclass(frozen=True)
class Survival:
    """Effect of one cut of a link's light on the job on it.

    Attributes:
        outcome: in one word.
        asked: how long the circuits were to be away, in ns.
        dark: bounds of the time without carrier, of the port where it was longest, in ns.
        lost, back: when the first carrier went and the last came back, on the bench's clock.
        stall: duration of the exchange that lasted longest, in ns, by the sender's clock; of one
            that has not ended, its duration until it was given up or failed.
        usual: the longest one before the cut, in ns; 0 where each was shorter than 1 ms.
        exchanges, wrong: how many ended, and how many of these had a wrong answer.
        error: the job's error; empty without.
    """

    outcome: Outcome
    link: Link
    plan: str
    asked: int
    dark: Span
    lost: Span
    back: Span
    stall: int
    usual: int
    exchanges: int
    wrong: int
    error: str

    @property
    def went_on(self) -> bool:
        """Whether the job went on by itself, with right results."""
        return self.outcome in ("unharmed", "stalled, then went on")


def measure_survival(
    fabric: Fabric,
    links: LinkObservation,
    recording: Recording,
    job: Job,
    plan: Plan,
    link: Link,
    *,
    cut: int,
    timeout: int = 60_000_000_000,
) -> Survival:
    """Cut `link` of `plan`, which is in place, under a job; record what became of the job.

    job: runs on the link. cut: how long the circuits are away, in ns. timeout: how
    long after the light has come back the job may take to go on, in ns.

    Raises `NoFaultError`, `LinksDownError`, and `InstrumentError` where switch or server fails.
    """
    found = job_under_cut(fabric, links, job, plan, link, cut=cut, timeout=timeout)
    recording.record(survival_rows(found, recording.next_event()))
    return found


def job_under_cut(
    fabric: Fabric,
    links: LinkObservation,
    job: Job,
    plan: Plan,
    link: Link,
    *,
    cut: int,
    timeout: int,
) -> Survival:
    """Cut `link` under `job`, which has been started on it; see `measure_survival`."""
    clock, ports = fabric.bench.clock, (link.a, link.b)
    clock.sleep(_STEADY)
    before = job.state()
    with links.observing() as event:
        sent = _apply(fabric, without_link(fabric, plan, link))
        lost = links.lost(ports, sent.earliest, LINK_TIMEOUT)
        if lost.keys() != set(ports):
            raise NoFaultError(f"{link}: the circuits were taken away, and a carrier stayed")
        clock.sleep(max(min(at.earliest for at in lost.values()) + cut - clock.now(), 0))
        _apply(fabric, plan)
        links.await_up(ports, LINK_TIMEOUT)
        back = {
            port: change.at
            for port, change in event.changes
            if change.stage == "carrier" and change.up and port in lost
        }
    after = _watched(job, clock, max(back.values()), timeout)
    dark = max((back[port].since(lost[port]) for port in ports), key=sum)
    stall, outcome = _judged(before, after, min(lost.values()), max(back.values()), clock.now())
    usual = max(before.durations, default=0)
    done = after.exchanges - before.exchanges
    wrong = after.wrong - before.wrong
    moments = min(lost.values()), max(back.values())
    return Survival(
        outcome, link, plan.name, cut, dark, *moments, stall, usual, done, wrong, after.error
    )


def _apply(fabric: Fabric, plan: Plan) -> Span:
    transition = fabric.prepare(plan, check_budget=False)
    sent = transition.begin()
    transition.acknowledged()
    transition.verify()
    return sent


def without_link(fabric: Fabric, plan: Plan, link: Link) -> Plan:
    """Return `plan` without the circuits of one of its links, in both directions."""
    left = {}
    for switch, circuits in plan.circuits.items():
        remaining = {
            each
            for each in circuits
            if link in fabric.testbed.links(_with(plan, switch, circuits - {each}))
        }
        left[switch] = frozenset(remaining)
    return Plan(f"{plan.name} without {link}", left)


def _with(plan: Plan, switch: str, circuits: frozenset[Circuit]) -> Plan:
    return Plan(plan.name, {**plan.circuits, switch: circuits})


def _watched(job: Job, clock: Clock, back: Span, timeout: int) -> StreamState:
    """Return the job's last state: once it has failed, gone on, or exceeded `timeout`."""
    while True:
        state = job.state()
        went_on = state.began.earliest > back.latest
        if went_on or state.error or clock.now() > back.latest + timeout:
            return job.stop() if not went_on else _stopped_later(job, clock)
        clock.sleep(_LOOK_AGAIN)


def _stopped_later(job: Job, clock: Clock) -> StreamState:
    """Return the state of a job that went on, a while later: a wrong answer may follow."""
    clock.sleep(_STEADY)
    return job.stop()


def _judged(
    before: StreamState, after: StreamState, lost: Span, back: Span, now: int
) -> tuple[int, Outcome]:
    """Return the longest exchange that met the cut, in ns, and the outcome."""
    met = [
        duration
        for (began, ended), duration in zip(after.slow, after.durations, strict=True)
        if ended.latest >= lost.earliest and began.earliest <= back.latest
    ]
    if after.wrong > before.wrong:
        return max(met, default=0), "wrong result"
    if after.failed is not None:
        return max(after.failed.earliest - after.began.latest, 0), "error"
    if after.began.latest <= back.latest:
        return now - after.began.latest, "hang"
    stall = max(met, default=0)
    usual = max(before.durations, default=0)
    return stall, "stalled, then went on" if stall > usual else "unharmed"


def survival_rows(found: Survival, number: int) -> Iterator[Row]:
    """The event as rows, each with its outcome."""
    conditions: dict[str, Scalar] = {
        "event": number,
        "plan": found.plan,
        "fault": "link cut",
        "asked_ns": found.asked,
        "outcome": found.outcome,
        "exchanges": found.exchanges,
        "wrong": found.wrong,
        "usual_ns": found.usual,
    }
    if found.error:
        conditions["error"] = found.error
    subject, time = str(found.link), found.lost.earliest
    least, most = found.dark
    yield Row(subject, "survival.dark", (least + most) // 2, least, most, "ns", time, conditions)
    for quantity, value, unit in (
        ("survival.stall", found.stall, "ns"),
        ("survival.went_on", int(found.went_on), "1"),
    ):
        yield Row(subject, quantity, value, value, value, unit, time, conditions)
