"""One reconfiguration, from the command on the wire to traffic on the new links."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from lightrig.harness.bench import Bench, Fabric, Transition
from lightrig.harness.measure.light import LightWatch, take_all, watch_until_complete
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.record import Row
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LinkEvent, PowerMonitor
from lightrig.testbeds import LightrigError, Plan, Port

EventStage: TypeAlias = Literal[
    "acknowledged",
    "los",
    "datagrams_lost",
    "firmware_down",
    "carrier_down",
    "signal_recovered",
    "firmware_up",
    "carrier_up",
    "first_datagram",
]
"""Stages of a reconfiguration, in their usual order."""

OF_LINK: dict[tuple[str, bool], EventStage] = {
    ("datagram", False): "datagrams_lost",
    ("firmware", False): "firmware_down",
    ("carrier", False): "carrier_down",
    ("firmware", True): "firmware_up",
    ("carrier", True): "carrier_up",
    ("datagram", True): "first_datagram",
}
_ENDS: frozenset[EventStage] = frozenset(
    ("acknowledged", "signal_recovered", "firmware_up", "carrier_up", "first_datagram")
)


class IncompleteError(LightrigError):
    """Something that a reconfiguration must bring about was not seen in time."""


class Seen(NamedTuple):
    """One stage of one subject: a switch, an egress or a NIC port.

    `at` is on the bench's clock.
    """

    subject: str
    stage: EventStage
    at: Span


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
    """

    plan: str
    moved: int
    sent: Span
    seen: tuple[Seen, ...]
    missing: tuple[tuple[str, EventStage], ...]
    reading_gap: int = 0

    def after(self, at: Span) -> Span:
        """Latency of `at` after the command, not below zero."""
        earliest, latest = at[0] - self.sent[1], at[1] - self.sent[0]
        return Span(earliest if earliest > 0 else 0, latest if latest > 0 else 0)

    @cached_property
    def seen_after(self) -> tuple[Span, ...]:
        """For each of `seen`, how long after the command it happened."""
        return tuple(self.after(seen.at) for seen in self.seen)

    def stages(self) -> dict[EventStage, Span]:
        """Each stage of the event as a whole, after the command.

        What comes up counts when the last subject has it, what goes down when the first
        has lost it.
        """
        spans: dict[EventStage, list[Span]] = {}
        for seen, after in zip(self.seen, self.seen_after, strict=True):
            spans.setdefault(seen.stage, []).append(after)
        whole = {}
        for stage, parts in spans.items():
            pick = max if stage in _ENDS else min
            whole[stage] = Span(
                pick(part.earliest for part in parts), pick(part.latest for part in parts)
            )
        return whole

    def outages(self) -> Iterator[tuple[str, str, Span]]:
        """Port, kind (`carrier` or `datagram`) and length of each outage, in ns."""
        moments = {(seen.subject, seen.stage): seen.at for seen in self.seen}
        pairs: tuple[tuple[str, EventStage, EventStage], ...] = (
            ("carrier", "carrier_down", "carrier_up"),
            ("datagram", "datagrams_lost", "first_datagram"),
        )
        for kind, down, up in pairs:
            for (subject, stage), lost in moments.items():
                recovered = moments.get((subject, up))
                if stage == down and recovered is not None:
                    length = recovered.since(lost)
                    yield subject, kind, Span(max(length.earliest, 0), max(length.latest, 0))


def reconfigure(
    fabric: Fabric,
    plan: Plan,
    links: LinkObservation,
    *,
    light_timeout: int = 5_000_000_000,
    link_timeout: int = 60_000_000_000,
) -> Reconfiguration:
    """Apply `plan` and watch light, links and datagrams until everything is back.

    The switches are read before, and read back after; timeouts are in ns.

    Raises:
        NotDoneError: a switch said done and is not.
        InstrumentError: an instrument refused or failed.
    """
    links.begin()
    transition = fabric.prepare(plan)
    watches = _light_watches(fabric.bench, transition)
    take_all(fabric.bench, watches.values())
    sent = transition.begin()
    watch_until_complete(fabric.bench, list(watches.values()), light_timeout)
    acknowledged = transition.acknowledged()
    transition.verify()
    rising = rising_ports(fabric, transition)
    changes, unfinished = links.changes(rising, sent.earliest, link_timeout)

    changed = [name for name, change in transition.changes.items() if change.add or change.remove]
    seen = [Seen(name, "acknowledged", acknowledged) for name in changed]
    for name, watch in watches.items():
        seen += [Seen(f"{name}.{e}", "los", at) for e, at in watch.losses_of_signal(sent).items()]
        seen += [
            Seen(f"{name}.{e}", "signal_recovered", at) for e, at in watch.recoveries(sent).items()
        ]
    seen += _link_stages(changes)
    lit = {one.subject for one in seen if one.stage == "signal_recovered"}
    missing: list[tuple[str, EventStage]] = [
        (f"{name}.{circuit.egress}", "signal_recovered")
        for name in watches
        for circuit in sorted(transition.changes[name].add)
        if f"{name}.{circuit.egress}" not in lit
    ]
    missing += [(str(port), OF_LINK[stage, True]) for port, stage in unfinished]
    gap = max((watch.longest_gap for watch in watches.values()), default=0)
    return Reconfiguration(plan.name, transition.moved, sent, tuple(seen), tuple(missing), gap)


def rising_ports(fabric: Fabric, transition: Transition) -> set[Port]:
    """The server ports that a change of plan joins to others than before."""
    before = Plan("before", {n: c.keep | c.remove for n, c in transition.changes.items()})
    new_links = fabric.links(transition.plan) - fabric.links(before)
    return {port for link in new_links for port in (link.a, link.b)}


def rows(event: Reconfiguration, fabric: Fabric, number: int) -> Iterator[Row]:
    """The event as rows: each stage as a whole, each subject's own, and the outages."""
    time, conditions = event.sent.earliest, {"event": number}

    def row(subject: str, quantity: str, span: Span) -> Row:
        middle = (span.earliest + span.latest) // 2
        return Row(subject, quantity, middle, span.earliest, span.latest, "ns", time, conditions)

    for stage, span in event.stages().items():
        yield row(fabric.testbed.name, f"reconfiguration.{stage}", span)
    for seen, after in zip(event.seen, event.seen_after, strict=True):
        yield row(seen.subject, seen.stage, after)
    for subject, kind, span in event.outages():
        yield row(subject, f"outage.{kind}", span)


def _light_watches(bench: Bench, transition: Transition) -> dict[str, LightWatch]:
    """Light watches of the switches that change circuits and have power monitors."""
    watches = {}
    for name, change in transition.changes.items():
        switch = bench.switches[name]
        if (change.add or change.remove) and isinstance(switch, PowerMonitor):
            losing = {circuit.egress for circuit in change.remove}
            regaining = {circuit.egress for circuit in change.add}
            watches[name] = LightWatch(switch, losing, regaining)
    return watches


def _link_stages(changes: Iterable[tuple[Port, LinkEvent]]) -> list[Seen]:
    """Every port's first loss in every stage, and its recovery.

    A flapping link has recovered when it is up for good. Datagrams have recovered with the first
    one after the loss: a later silence may be a sender that was not scheduled.
    """
    retained: dict[tuple[Port, EventStage], Span] = {}
    for port, event in changes:
        stage = OF_LINK[event.stage, event.up]
        if stage == "first_datagram":
            recovered = retained.get((port, stage))
            lost = retained.get((port, "datagrams_lost"))
            if recovered is None or (lost is not None and recovered < lost):
                retained[port, stage] = event.at
        elif stage in _ENDS or (port, stage) not in retained:
            retained[port, stage] = event.at
    return [Seen(str(port), stage, at) for (port, stage), at in retained.items()]
