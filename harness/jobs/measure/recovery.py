"""Traffic while circuits change: when it runs again, how fast, and whether it survived."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row, Scalar
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.core.traffic import Traffic, TrafficSource
from lightrig.instruments.jobs.flows.bandwidth import bus_bandwidth
from lightrig.testbeds import LightrigError, Plan


class WrongTrafficError(LightrigError):
    """All-reduces came out wrong while circuits changed."""


@dataclass(frozen=True)
class Recovery:
    """Consecutive all-reduces during one change of plan.

    Attributes:
        before, after: the names of the plans.
        sent: stamps around the command to the switches, on the bench's clock.
        routed: when the servers had routes for the new plan.
        traffic: every operation of every rank.
    """

    before: str
    after: str
    sent: Span
    routed: Span
    traffic: Traffic

    @property
    def survived(self) -> bool:
        """Whether every rank went on until it was asked to stop."""
        return not self.traffic.failures

    def first_completed(self) -> Span | None:
        """Latency from the command to the end of the first all-reduce begun after it, in ns.

        None where there is none: the traffic did not survive, or was stopped before.
        """
        for began, ended in self.traffic.completed():
            if began.earliest >= self.sent.latest:
                return ended.since(self.sent)
        return None

    def interruption(self) -> Span | None:
        """Excess of the longest operation since the command over the median before it.

        Bounds in ns; None where no operation completed before or after the command.
        """
        completed = self.traffic.completed()
        before = [e.latest - b.earliest for b, e in completed if e.latest < self.sent.earliest]
        longest = max(
            (e.since(b) for b, e in completed if e.latest >= self.sent.earliest), default=None
        )
        if longest is None or not before:
            return None
        usual = round(median(before))
        return Span(max(longest.earliest - usual, 0), max(longest.latest - usual, 0))

    def bandwidths(self) -> list[tuple[Span, int]]:
        """For each completed operation when it ended after the command, and its bus bandwidth.

        In ns, below zero for what ended before it, and bit/s. An operation lasts from the end of
        the one before to its own, so that a pause counts.
        """
        ranks, size = len(self.traffic.ranks), self.traffic.size
        found, previous = [], None
        for _, ended in self.traffic.completed():
            if previous is not None:
                lasted = max(ended.latest - previous.latest, 1)
                bandwidth = round(bus_bandwidth("all_reduce", ranks, size, lasted))
                found.append((ended.since(self.sent), bandwidth))
            previous = ended
        return found


def measure_recovery(
    fabric: Fabric,
    links: LinkObservation,
    recording: Recording,
    source: TrafficSource,
    ranks: Sequence[str],
    plans: tuple[Plan, Plan],
    route: Callable[[Plan], object],
    *,
    size: int,
    before: int = 1_000_000_000,
    after: int = 3_000_000_000,
) -> Recovery:
    """Change plans under traffic and record its recovery; see `traffic_under_change`."""
    links.pause()  # on servers that are one machine, watching takes what others need
    found = traffic_under_change(
        fabric, source, ranks, plans, route, size=size, before=before, after=after
    )
    recording.record(recovery_rows(found, fabric, recording.next_event()))
    return found


def traffic_under_change(
    fabric: Fabric,
    source: TrafficSource,
    ranks: Sequence[str],
    plans: tuple[Plan, Plan],
    route: Callable[[Plan], object],
    *,
    size: int,
    before: int,
    after: int,
) -> Recovery:
    """Keep all-reduces going while the fabric goes from the first plan, in place, to the second.

    Args:
        fabric: whose circuits change.
        source: keeps the traffic going.
        ranks: the servers in ring order of the first plan.
        plans: the one in place, and the one to go to.
        route: gives the servers routes over a plan's links, once the switches have said done.
        size: of an all-reduce, in bytes.
        before: how long to let it run first, in ns.
        after: how long afterwards, in ns.

    Raises:
        WrongTrafficError: values came out wrong.
        CollectiveFailedError: the traffic could not be started, or a rank answers no more.
        InstrumentError: a switch or a server refused.
    """
    clock = fabric.bench.clock
    running = source.start(ranks, size)
    try:
        clock.sleep(before)
        transition = fabric.prepare(plans[1])
        sent = transition.begin()
        transition.acknowledged()
        transition.verify()
        asked = clock.now()
        route(plans[1])
        routed = Span(asked, clock.now())
        clock.sleep(after)
    finally:
        traffic = running.stop()
    if traffic.wrong:
        raise WrongTrafficError(
            f"{traffic.wrong} values came out wrong in all-reduces among {', '.join(ranks)} while "
            f"{plans[0].name} became {plans[1].name} ({traffic.tool})"
        )
    return Recovery(plans[0].name, plans[1].name, sent, routed, traffic)


def recovery_rows(found: Recovery, fabric: Fabric, number: int) -> Iterator[Row]:
    """The event as rows: whether it survived, the first all-reduce, and the bandwidth around it."""
    name, time = fabric.testbed.name, found.sent.earliest
    ring = " - ".join(found.traffic.ranks)
    size, tool = found.traffic.size, found.traffic.tool
    row_conditions: dict[str, Scalar] = {"event": number, "size": size, "tool": tool}
    alive = int(found.survived)
    yield Row(name, "recovery.survived", alive, alive, alive, "1", time, row_conditions)
    first, pause = found.first_completed(), found.interruption()
    for quantity, span in (("first_collective", first), ("interruption", pause)):
        if span is not None:
            low, high = span
            middle = (low + high) // 2
            yield Row(name, f"recovery.{quantity}", middle, low, high, "ns", time, row_conditions)
    low, high = found.routed.since(found.sent)
    yield Row(name, "recovery.routed", (low + high) // 2, low, high, "ns", time, row_conditions)
    for after, bandwidth in found.bandwidths():
        conditions = {"event": number, "size": size, "after_ns": after.latest}
        quantity = "recovery.bus_bandwidth"
        yield Row(ring, quantity, bandwidth, None, None, "bit/s", time, conditions)
