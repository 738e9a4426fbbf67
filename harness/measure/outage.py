"""Outage of each link and direction, from numbered datagrams.

Every port sends a numbered datagram to the far end every period. Numbers missing at a receiver
were sent while the link was down; the stamps of the last datagram before and the first after
bound the outage.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.closure import closure_row
from lightrig.harness.measure.links import DATAGRAM_PERIOD, LinkObservation
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.stages import Reconfiguration
from lightrig.harness.record import Row
from lightrig.harness.statistics import judge_bounds
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import Gap
from lightrig.testbeds import Plan, Port


@dataclass(frozen=True, slots=True)
class LossWindow:
    """Datagrams that one port did not receive; times on the bench's clock, in ns.

    Attributes:
        receiver: the port.
        before: which port sent the last datagram that arrived, and `last` its number.
        after: which port sent the first that arrived again, and `first` its number.
        began: the link went down between these: `last` was sent, and the next one had been
            sent and was lost.
        ended: it came back between these: the one before `first` was sent and was lost, and
            `first` was there.
    """

    receiver: Port
    before: Port
    last: int
    after: Port
    first: int
    began: Span
    ended: Span

    @property
    def length(self) -> Span:
        """Bounds of the outage of the direction, in ns."""
        length = self.ended.since(self.began)
        return Span(max(length.earliest, 0), max(length.latest, 0))

    @property
    def lost(self) -> int | None:
        """Number of lost datagrams; None where the sender has changed."""
        return self.first - self.last - 1 if self.before == self.after else None

    @property
    def direction(self) -> str:
        """Sender and receiver; where another sends afterwards, it too."""
        if self.before == self.after:
            return f"{self.before} > {self.receiver}"
        return f"{self.before} > {self.receiver} < {self.after}"


def measure_outage(
    fabric: Fabric,
    links: LinkObservation,
    recording: Recording,
    plan: Plan,
    *,
    datagram_period: int = DATAGRAM_PERIOD,
) -> list[LossWindow]:
    """Apply `plan` and record its stages, and how long each link direction was interrupted.

    Datagrams are numbered, one every `datagram_period` ns in each direction; limits on
    `outage.packets` are on the worst direction of each event. Raises what
    `measure_reconfiguration` does.
    """
    number = recording.next_event()
    links.set_datagram_period(datagram_period)
    with links.keeping_gaps():
        event = measure_reconfiguration(fabric, links, recording, plan, number=number)
        windows = loss_windows(links, event.sent.earliest)
    recording.record(outage_rows(windows, fabric, event, number, datagram_period))
    return windows


def loss_windows(links: LinkObservation, since: int) -> list[LossWindow]:
    """The longest interruption of each port that began after `since` (bench's clock, ns).

    A port that was dark before had no traffic to lose.
    """
    senders = links.senders()
    gaps = [
        (port, gap)
        for port, gap in links.take_gaps()
        if gap.last_stream in senders and gap.first_stream in senders
    ]
    wanted: defaultdict[Port, list[int]] = defaultdict(list)
    for _, gap in gaps:
        if gap.received.latest > since:
            wanted[senders[gap.last_stream]].append(gap.last_number + 1)
    left = links.departures(wanted)
    longest: dict[Port, LossWindow] = {}
    for port, gap in gaps:
        window = _window(port, gap, senders, left)
        if window.began.latest >= since:
            retained = longest.setdefault(port, window)
            if window.length.latest > retained.length.latest:
                longest[port] = window
    return [longest[port] for port in sorted(longest)]


def _window(
    port: Port,
    gap: Gap,
    senders: Mapping[int, Port],
    departures: Mapping[tuple[Port, int], Span],
) -> LossWindow:
    before = senders[gap.last_stream]
    # Without a send time of the first lost datagram, the first arrival bounds it from above.
    next_left = departures.get((before, gap.last_number + 1), gap.received)
    began = Span(gap.last_sent.earliest, max(next_left.latest, gap.last_sent.earliest))
    ended = Span(min(gap.lost_sent.earliest, gap.received.latest), gap.received.latest)
    after = senders[gap.first_stream]
    return LossWindow(port, before, gap.last_number, after, gap.first_number, began, ended)


def outage_rows(
    windows: Iterable[LossWindow], fabric: Fabric, event: Reconfiguration, number: int, period: int
) -> Iterator[Row]:
    """Each window as a row `outage.packets`; beside a known truth, how far its middle is off.

    `period` is that of the datagrams, in ns. In a simulated link the truth is of datagrams, and
    closure is the share of windows that hold it. In the kernel it is of carriers: packets may
    follow a carrier up to milliseconds later.
    """
    agree: list[bool] = []
    for window in windows:
        low, high = window.length
        middle, time = (low + high) // 2, window.began.earliest
        conditions = {"event": number, "datagram_period_ns": period}
        if window.lost is not None:
            conditions["lost"] = window.lost
        yield Row(window.direction, "outage.packets", middle, low, high, "ns", time, conditions)
        true = true_outage(window, fabric.bench, event.sent.earliest)
        if true is not None:
            agree.append(true.latest >= low and true.earliest <= high)
            off = abs(middle - (true.earliest + true.latest) // 2)
            yield Row(
                window.direction, "harness.outage_error", off, off, off, "ns", time, conditions
            )
    if agree and fabric.bench.clock.virtual:
        verdict, time = judge_bounds(agree), event.sent.earliest
        yield closure_row(fabric.testbed.name, "closure.outage_packets", verdict, time, number)


def true_outage(window: LossWindow, bench: Bench, since: int) -> Span | None:
    """True outage of a direction; None where there is no ground truth.

    For links in the kernel: from the first carrier loss of the previous two ends to the last
    carrier of the present two. For simulated links: by the receiver's datagrams.
    """
    truth = bench.truth
    if truth is None:
        return None
    if bench.clock.virtual:
        stage, losers, winners = "datagram", {window.receiver}, {window.receiver}
    else:
        stage, losers = "carrier", {window.receiver, window.before}
        winners = {window.receiver, window.after}
    down = [truth.first(str(port), stage, up=False, since=since) for port in losers]
    fallen = min((at for at in down if at is not None), default=None)
    if fallen is None or fallen.earliest > window.ended.latest:
        return None
    up = [truth.first(str(port), stage, up=True, since=fallen.earliest) for port in winners]
    risen = [at for at in up if at is not None]
    return max(risen).since(fallen) if len(risen) == len(up) else None
