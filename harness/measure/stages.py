"""Stages of one reconfiguration, of every switch, egress and NIC port; as rows.

Where light is simulated there is ground truth: then closure and the cost of time stamps are rows
too.
"""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.closure import closure_row
from lightrig.harness.measure.loss_windows import LossWindow, SteadyLoss
from lightrig.harness.measure.measured import Measured, NothingMeasuredError
from lightrig.harness.quantities.declarations import PORT_EXCESS
from lightrig.harness.record import Row, Scalar, SharedConditions
from lightrig.harness.statistics.binomial import clopper_pearson
from lightrig.harness.statistics.closure import judge_bounds
from lightrig.harness.statistics.unlike_ports import by_event_and_port, unlike_ports
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import ClockStatus, LinkEvent
from lightrig.instruments.core.errors import ClockError
from lightrig.instruments.core.stages import (
    CARRIER_DOWN,
    CARRIER_UP,
    DATAGRAMS_LOST,
    FIRST_DATAGRAM,
    STAGES,
    EventStage,
    StageName,
    Watch,
    stage_of,
)
from lightrig.instruments.named_tuples import new_tuple
from lightrig.testbeds import Port
from lightrig.testbeds.plans import direction_subject

if TYPE_CHECKING:
    from lightrig.harness.report.event_timeline import Picture
    from lightrig.instruments.simulated.world.ground_truth import GroundTruth

_ENDLESS = Span(sys.maxsize, sys.maxsize)


class Seen(NamedTuple):
    """One stage of one subject: a switch, an egress or a NIC port.

    `at` is on the bench's clock, and so is `point`: the most likely moment, where that is known
    better than by the middle of `at`.
    """

    subject: str
    stage: StageName
    at: Span
    point: int | None = None


class Flap(NamedTuple):
    """A later loss of carrier at a NIC port, whose link had come up in the same event.

    Attributes:
        port: the port.
        down: when its carrier went, on the bench's clock.
        up: when it was back; None where that was not seen.
    """

    port: str
    down: Span
    up: Span | None

    def within(self, began: Span, ended: Span) -> bool:
        """Whether the flap may lie in an interruption, and is over."""
        return (
            self.up is not None
            and self.down.latest >= began.earliest
            and self.up.earliest <= ended.latest
        )


@dataclass(frozen=True)
class Reconfiguration:
    """Observation of one change of plan.

    Attributes:
        plan: the name of the plan that was applied.
        moved: how many circuits were made.
        sent: between which stamps the commands were written.
        seen: every stage of every subject.
        missing: subject and stage of what had to come and was not seen.
        reading_gap: the longest time between two readings of a switch's monitors, in ns.
        windows: each direction's interruption of datagrams.
        watched: until when the light of each switch and the ports of each server were watched,
            by name: see `Watch.until`.
        flaps: later losses of carrier.
        set_aside: whether no limit judges it: the simulation was late in it, or a clock tells no
            times of it.
        before: the plan that was in place, where it and `plan` are plans of the testbed.
        late_monitors: by how many ns monitors were late at least, by switch, where light went after
            the carriers that it carries.
        clocks: status of the servers' clocks, by server, where their kernels tell it.
        unseen: subject and stage of what happened, or may have, while nobody looked. Of the event
            as a whole such a stage is unknown: its last subject may be the one that was not seen.
        clock_error: why a server's clock tells no times of it; nothing else is known then.
        steady: what directions of links lost, or had overtaken, besides interruptions.
        slow: why a watch was too slow to see all, by what was read.
        simulated: whether anything that took part was.
    """

    plan: str
    moved: int
    sent: Span
    seen: tuple[Seen, ...]
    missing: tuple[tuple[str, StageName], ...]
    reading_gap: int = 0
    windows: tuple[LossWindow, ...] = ()
    watched: Mapping[str, Span] = field(default_factory=dict)
    flaps: tuple[Flap, ...] = ()
    set_aside: bool = False
    before: str | None = None
    late_monitors: dict[str, int] = field(default_factory=dict)
    clocks: Mapping[str, ClockStatus] = field(default_factory=dict)
    unseen: tuple[tuple[str, StageName], ...] = ()
    clock_error: ClockError | None = None
    steady: tuple[SteadyLoss, ...] = ()
    slow: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False

    def conditions(self, number: int) -> dict[str, Scalar]:
        """Conditions of the rows of this event: its number, and between which plans it was."""
        between = {} if self.before is None else {"before": self.before, "after": self.plan}
        return {"event": number, **between}

    def watch_of(self, stage: EventStage, subject: str) -> Watch:
        """Return for how long a subject was watched; an acknowledgement is awaited."""
        if stage.signal == "acknowledged":
            return Watch(self.sent.earliest, _ENDLESS)
        known = self._watches
        if subject not in known:
            until = self.watched.get(subject.partition(".")[0], _ENDLESS)
            known[subject] = Watch(self.sent.earliest, until)
        return known[subject]

    @cached_property
    def _watches(self) -> dict[str, Watch]:
        """By subject, of stages that are not awaited."""
        return {}

    def spans_flaps(self, port: str, began: Span, ended: Span) -> int:
        """Return how many later flaps of a port lie in an interruption."""
        if not self.flaps:
            return 0
        return sum(flap.port == port and flap.within(began, ended) for flap in self.flaps)

    def after(self, at: Span) -> Span:
        """Latency of `at` after the command, not below zero."""
        earliest, latest = at[0] - self.sent[1], at[1] - self.sent[0]
        return new_tuple(Span, (earliest if earliest > 0 else 0, latest if latest > 0 else 0))

    @cached_property
    def seen_after(self) -> tuple[Span, ...]:
        """For each of `seen`, how long after the command it happened."""
        return tuple([self.after(seen.at) for seen in self.seen])

    @cached_property
    def _numbers_of_stages(self) -> dict[StageName, list[int]]:
        """Places in `seen` of each stage that is known of the event as a whole."""
        found: dict[StageName, list[int]] = {seen.stage: [] for seen in self.seen}
        for number, seen in enumerate(self.seen):
            found[seen.stage].append(number)
        for _, stage in self.unseen:
            found.pop(stage, None)
        return found

    def stages(self) -> Mapping[StageName, Span]:
        """Each stage of the event as a whole (see `EventStage`), after the command."""
        return self._stages

    @cached_property
    def _stages(self) -> dict[StageName, Span]:
        after, whole = self.seen_after, {}
        for stage, numbers in self._numbers_of_stages.items():
            pick = max if STAGES[stage].up else min
            whole[stage] = Span(
                pick([after[n].earliest for n in numbers]), pick([after[n].latest for n in numbers])
            )
        return whole

    def points_after(self) -> Sequence[int]:
        """For each of `seen`, the most likely time after the command."""
        return self._points_after

    @cached_property
    def _points_after(self) -> Sequence[int]:
        sent = sum(self.sent) // 2
        found = []
        for seen, (earliest, latest) in zip(self.seen, self.seen_after, strict=True):
            if seen.point is None:
                found.append((earliest + latest) // 2)
            else:
                point = seen.point - sent
                found.append(earliest if point < earliest else latest if point > latest else point)
        return found

    def points(self) -> dict[StageName, int]:
        """Most likely time of each stage of the event as a whole."""
        points, found = self._points_after, {}
        for stage, numbers in self._numbers_of_stages.items():
            pick = max if STAGES[stage].up else min
            found[stage] = pick([points[n] for n in numbers])
        return found

    def measured(self, stage: str = "") -> Measured:
        """Return when a stage of the event as a whole was over, after the command, in ns.

        stage: by default the last one that was seen. The ends are bounds of this one event: they
        say nothing of the next. Raises `NothingMeasuredError` for one that was not seen.
        """
        found, points = self.stages(), self.points()
        latest = sorted(found, key=lambda name: points[name])[-1:]
        name: Any = stage or next(iter(latest), "")
        if name not in found:
            seen = ", ".join(found) or "none"
            sentence = f"the change to {self.plan} has no stage {name!r}; seen: {seen}"
            raise NothingMeasuredError(sentence)
        quantity, (low, high) = f"reconfiguration.{name}", found[name]
        ends = "bounds of this event"
        return Measured(quantity, self.plan, points[name], low, high, "ns", 1, self.simulated, ends)

    @property
    def value(self) -> float:
        """Until its last stage was over, in ns."""
        return self.measured().value

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of `value`, in ns."""
        return self.measured().interval

    n: ClassVar[int] = 1
    unit: ClassVar[str] = "ns"

    def plot(self) -> Picture:
        """Return the report's timeline of the event."""
        from lightrig.harness.report.event_timeline import event_timeline  # noqa: PLC0415

        return event_timeline(self)

    def _repr_html_(self) -> str:
        """Return the event for a notebook: its last stage, and the timeline."""
        shown = self.measured()._repr_html_() if self.stages() else "nothing was seen"
        return f"{shown}{self.plot().html}"

    def outages(self) -> Sequence[Outage]:
        """Return each port's time without carrier, and without datagrams, that is over."""
        return self._outages

    @cached_property
    def _outages(self) -> Sequence[Outage]:
        found = []
        for kind in OUTAGES:
            ends = {seen.subject: seen.at for seen in self.seen if seen.stage == kind.up.name}
            losses = {seen.subject: seen.at for seen in self.seen if seen.stage == kind.down.name}
            for subject, lost in losses.items():
                if subject in ends:
                    flaps = self.spans_flaps(subject, lost, ends[subject])
                    length = _not_negative(ends[subject].since(lost))
                    found.append(new_tuple(Outage, (subject, kind, length, flaps)))
        return found


class OutageKind(NamedTuple):
    """From which stage until which a port is without service."""

    signal: Literal["carrier", "datagram"]
    down: EventStage
    up: EventStage


OUTAGES = (
    OutageKind("carrier", CARRIER_DOWN, CARRIER_UP),
    OutageKind("datagram", DATAGRAMS_LOST, FIRST_DATAGRAM),
)


class Outage(NamedTuple):
    """One port's time without service.

    Attributes:
        subject: the port.
        kind: of which service.
        length: in ns.
        flaps: how many later flaps of its carrier lie in it.
    """

    subject: str
    kind: OutageKind
    length: Span
    flaps: int


def rows(event: Reconfiguration, fabric: Fabric, number: int) -> Iterator[Row]:
    """The event as rows: each stage as a whole, each subject's own, and the outages."""
    time, conditions = event.sent.earliest, SharedConditions(event.conditions(number))
    by_flaps: dict[int | None, SharedConditions] = {None: conditions}

    def row(
        subject: str, quantity: str, span: Span, flaps: int | None = None, point: int | None = None
    ) -> Row:
        earliest, latest = span
        middle = (earliest + latest) // 2 if point is None else point
        if flaps is not None and flaps not in by_flaps:
            by_flaps[flaps] = SharedConditions({**conditions, "flaps": flaps})
        return Row(subject, quantity, middle, earliest, latest, "ns", time, by_flaps[flaps])

    points = event.points()
    for stage, span in event.stages().items():
        yield row(fabric.testbed.name, f"reconfiguration.{stage}", span, point=points[stage])
    every = zip(event.seen, event.seen_after, event.points_after(), strict=True)
    for (subject, stage, _, _), (earliest, latest), point in every:
        yield Row(subject, stage, point, earliest, latest, "ns", time, conditions)
    for outage in event.outages():
        yield row(outage.subject, f"outage.{outage.kind.signal}", outage.length, outage.flaps)
    for steady in event.steady:
        yield from _steady_rows(steady, time, conditions)
    for flap in event.flaps:
        least, most = (flap.up or event.watched[flap.port.partition(".")[0]]).since(flap.down)
        least, end = max(least, 0), max(most, 0) if flap.up is not None else None
        middle = least if end is None else (least + end) // 2
        yield Row(flap.port, "outage.flap", middle, least, end, "ns", time, conditions)
    for owner, until in event.watched.items():
        watched = row(owner, "watched", event.after(until))
        clock = event.clocks.get(owner)
        if clock is not None:
            watched = replace(watched, conditions={**conditions, **clock.conditions()})
        yield watched


def _steady_rows(steady: SteadyLoss, time: int, conditions: dict[str, Scalar]) -> Iterator[Row]:
    """Rows of what a direction loses all the time, with a 95 % interval, and of reordering."""
    subject = direction_subject(steady.sender, steady.receiver, steady.sender)
    n = steady.lost + steady.received
    if steady.lost:
        low, high = clopper_pearson(steady.lost, n, 0.95)
        share = steady.lost / n
        counts = {**conditions, "lost": steady.lost, "n": n}
        yield Row(subject, "datagrams.loss", share, low, high, "1", time, counts)
    if steady.late:
        late, of = steady.late, {**conditions, "depth": steady.depth, "n": n}
        yield Row(subject, "datagrams.reordered", late, late, late, "1", time, of)


def closure_rows(event: Reconfiguration, fabric: Fabric, number: int) -> Iterator[Row]:
    """Share of the intervals of each stage, and of each outage, that contain the ground truth.

    Where the truth is only known within bounds (a change in the kernel), the two intervals must
    overlap. What was seen and did not happen is contained in nothing, and so is a change of a
    carrier that happened while it was watched and was not seen, or an interval of the event as a
    whole that excludes the last, or first, true moment of all ports, seen or not.
    """
    truth = fabric.bench.truth
    if truth is None:
        return
    inside: defaultdict[str, list[bool]] = defaultdict(list)
    moments, written = TrueMoments(event, truth), _first_write(event, truth)
    out = frozenset(map(str, fabric.testbed.out.ports))
    virtual = fabric.bench.clock.virtual
    for (subject, name, at, _), after in zip(event.seen, event.seen_after, strict=True):
        stage = STAGES[name]
        # In real time the reply needs a moment from the switch to us, in virtual time none.
        if name == "acknowledged" and not virtual:
            continue
        true = moments(stage, subject)
        if true or truth.knows(subject, stage.signal):
            inside[name].append(overlaps(true, at))
            if written is not None and true:
                late = [moment.since(written) for moment in true]
                inside["latency"].append(overlaps(late, after))
    for of_all, after in event.stages().items():
        judged = of_all != "acknowledged" or virtual
        whole = moments.whole(STAGES[of_all], out) if judged else None
        if whole is not None and not overlaps([whole.since(event.sent)], after):
            inside[of_all].append(False)
    for unseen in _unseen_carriers(event, fabric, truth):
        inside[unseen].append(False)
    for outage in event.outages():
        subject, kind = outage.subject, outage.kind
        if truth.knows(subject, kind.signal):
            lengths = true_outages(subject, kind, moments)
            inside[f"outage_{kind.signal}"].append(overlaps(lengths, outage.length))
    for flap in event.flaps:
        if truth.knows(flap.port, CARRIER_UP.signal):
            inside["outage_flap"].append(_happened(flap, event, truth))
    for of_rows, found in inside.items():
        verdict = judge_bounds(found)
        yield closure_row(
            fabric.testbed.name, f"closure.{of_rows}", verdict, event.sent.earliest, number
        )


class TrueMoments:
    """When stages truly may have been in an event, each looked up once."""

    def __init__(self, event: Reconfiguration, truth: GroundTruth) -> None:
        self._event, self._truth = event, truth
        self._known: defaultdict[StageName, dict[str, tuple[Watch, tuple[Span, ...]]]]
        self._known = defaultdict(dict)

    def __call__(self, stage: EventStage, subject: str) -> tuple[Span, ...]:
        """Return when a stage of a subject may have been, see `GroundTruth.moments_of`."""
        of_stage = self._known[stage.name]
        found = of_stage.get(subject)
        if found is None:
            watch = self._event.watch_of(stage, subject)
            found = of_stage[subject] = watch, self._truth.moments_of(stage, subject, watch)
        return found[1]

    def whole(self, stage: EventStage, out: Collection[str]) -> Span | None:
        """Return the true moment of a stage of the event as a whole, over all that are watched.

        out: ports that are out of service, which nothing watches.

        A change that may have been before the command, or too late for the watch to see it, bounds
        it from one side alone. None where no change is certain.
        """
        up, of_stage = stage.up, self._known[stage.name]
        possible, certain = list[int](), list[int]()
        for subject in self._truth.subjects(stage.signal):
            if subject in out:
                continue
            if subject not in of_stage:
                # Without an end: of an owner that nobody watched.
                until_then = self._event.watch_of(stage, subject).until
                if until_then is _ENDLESS and stage.subject != "switch":
                    continue
                self(stage, subject)
            (since, (until, _)), moments = of_stage[subject]
            sure = None
            for earliest, latest in moments:
                possible.append(latest if up else earliest)
                if earliest >= since and latest <= until:
                    # Of several it is one: interruptions of equal length may count.
                    if up:
                        sure = earliest if sure is None or earliest < sure else sure
                    else:
                        sure = latest if sure is None or latest > sure else sure
            if sure is not None:
                certain.append(sure)
        if not certain:
            return None
        if up:
            return Span(max(certain), max(possible))
        return Span(min(possible), min(certain))


def _unseen_carriers(
    event: Reconfiguration, fabric: Fabric, truth: GroundTruth
) -> Iterator[StageName]:
    """Yield the stage of each carrier that for certain changed in an event, and was not seen."""
    stages = (CARRIER_DOWN, CARRIER_UP)
    names = [stage.name for stage in stages]
    seen = {(subject, stage) for subject, stage, _, _ in event.seen if stage in names}
    for port in [str(spec.port) for spec in fabric.testbed.working_ports]:
        for stage in stages:
            if (port, stage.name) not in seen and truth.knows(port, stage.signal):
                watch = event.watch_of(stage, port)
                changes = truth.all_moments(stage.signal, port, watch, up=stage.up)
                if any(
                    one.earliest >= watch.since and one.latest <= watch.until.earliest
                    for one in changes
                ):
                    yield stage.name


def _first_write(event: Reconfiguration, truth: GroundTruth) -> Span | None:
    """Return when the first command was written; None where that is all the same to `sent`."""
    if not truth.knows("harness", "written"):
        return None
    found = truth.first("harness", "written", up=True, since=event.sent.earliest)
    return found if found is not None and found.latest <= event.sent.latest else None


def true_outages(subject: str, kind: OutageKind, moments: TrueMoments) -> list[Span]:
    """Return how long a port was truly without service; nothing if it never was."""
    downs, ups = moments(kind.down, subject), moments(kind.up, subject)
    if len(downs) == len(ups) == 1:  # nearly always
        return [ups[0].since(downs[0])] if ups[0].latest >= downs[0].earliest else []
    return [up.since(down) for down, up in product(downs, ups) if up.latest >= down.earliest]


def _happened(flap: Flap, event: Reconfiguration, truth: GroundTruth) -> bool:
    """Whether the carrier truly went and came at the moments of a flap."""
    watch = event.watch_of(CARRIER_UP, flap.port)
    downs, ups = (
        truth.all_moments(CARRIER_UP.signal, flap.port, watch, up=up) for up in (False, True)
    )
    return overlaps(downs, flap.down) and (flap.up is None or overlaps(ups, flap.up))


def overlaps(true: Sequence[Span], seen: Span) -> bool:
    """Whether any of the true moments or durations may be what was seen."""
    earliest, latest = seen
    for one in true:  # noqa: SIM110  # some hundreds an event: no generator
        if one.latest >= earliest and one.earliest <= latest:
            return True
    return False


def cost_rows(event: Reconfiguration, fabric: Fabric, number: int) -> Iterator[Row]:
    """From the kernel's change of a carrier to the harness's stamp of it, in ns.

    The kernel's change lies between the request that caused it and its acknowledgement;
    the upper bound counts from the request.
    """
    truth = fabric.bench.truth
    if truth is None or fabric.bench.clock.virtual:
        return
    moments = TrueMoments(event, truth)
    for seen in event.seen:
        stage = STAGES[seen.stage]
        if stage not in (CARRIER_DOWN, CARRIER_UP):
            continue
        for true in moments(stage, seen.subject)[:1]:
            cost = Span(seen.at.latest - true.latest, seen.at.latest - true.earliest)
            yield _duration(seen.subject, "harness.carrier_stamp", cost, event, number)


def cross_check_rows(
    checks: Iterable[tuple[Port, LinkEvent]], event: Reconfiguration, number: int
) -> Iterator[Row]:
    """Delay of netlink behind the fast path for the same carrier event, in ns."""
    seen = {(one.subject, one.stage): one.at for one in event.seen}
    for port, announced in checks:
        stage = stage_of("carrier", up=announced.up)
        at = seen.get((str(port), stage.name))
        if at is not None and announced.at.latest >= at.earliest:
            delay = Span(announced.at.latest - at.latest, announced.at.latest - at.earliest)
            yield _duration(str(port), "harness.netlink_delay", delay, event, number)


def _not_negative(span: Span) -> Span:
    return span if span.earliest >= 0 else Span(0, max(span.latest, 0))


def _duration(subject: str, quantity: str, span: Span, event: Reconfiguration, number: int) -> Row:
    lower, upper = max(span.earliest, 0), max(span.latest, 0)
    time = event.sent.earliest
    return Row(subject, quantity, (lower + upper) // 2, lower, upper, "ns", time, {"event": number})


PORT_ERROR = 0.01
"""Chance that any port of a test is named where all are alike."""

STATISTIC = "median over events of its time less the median of the other ports"


class PortTimes:
    """Bounds of each stage of each port after the command, by event."""

    def __init__(self) -> None:
        self._ports: defaultdict[StageName, list[str]] = defaultdict(list)
        self._numbers: defaultdict[StageName, array[float]] = defaultdict(lambda: array("d"))

    def add(self, event: Reconfiguration, number: int) -> None:
        """Add an event of that number."""
        for seen, (earliest, latest) in zip(event.seen, event.seen_after, strict=True):
            self._ports[seen.stage].append(seen.subject)
            self._numbers[seen.stage].extend((number, earliest, latest))

    def rows(self, at: int) -> Iterator[Row]:
        """Yield a row for each port and stage that differ from the others'. at: now, in ns."""
        for stage, subjects in self._ports.items():
            events, low, high = (self._numbers[stage][place::3] for place in range(3))
            ports, tables = by_event_and_port(events, subjects, low, high)
            for found in unlike_ports(*tables, error=PORT_ERROR / len(self._ports)):
                stated: dict[str, Scalar] = {
                    "stage": stage,
                    "statistic": STATISTIC,
                    "share": found.excess / found.usual,
                    "others_ms": found.usual / 1e6,
                    "events": found.n,
                    "confidence": found.confidence,
                }
                ends = found.excess, found.lower, found.upper
                yield Row(ports[found.port], PORT_EXCESS, *ends, "ns", at, stated)
