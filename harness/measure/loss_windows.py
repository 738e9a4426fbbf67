"""Interruptions of each direction of a link, from numbered datagrams.

Every port sends a numbered datagram to the far end every period. Numbers missing at a receiver
were sent while the link was down; the stamps of the last datagram before and the first after
bound the outage. A silence alone bounds nothing: the sender may not have been scheduled.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lightrig.harness.measure.links import LinkObservation
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import Gap
from lightrig.testbeds import Port
from lightrig.testbeds.plans import direction_subject

_MOST_QUESTIONS = 5
"""Questions to the servers about one event: with a link that flaps, each may bring a new gap."""


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
        longest: bounds of the length where several interruptions may be the longest one; then
            `began` and `ended` hold those of each.
    """

    receiver: Port
    before: Port
    last: int
    after: Port
    first: int
    began: Span
    ended: Span
    longest: Span | None = None

    @property
    def length(self) -> Span:
        """Bounds of the outage of the direction, in ns."""
        if self.longest:
            return self.longest
        length = self.ended.since(self.began)
        return Span(max(length.earliest, 0), max(length.latest, 0))

    @property
    def lost(self) -> int | None:
        """Number of lost datagrams; None where the sender has changed."""
        return self.first - self.last - 1 if self.before == self.after else None

    @property
    def direction(self) -> str:
        """Sender and receiver; where another sends afterwards, it too."""
        return direction_subject(self.before, self.receiver, self.after)


def loss_windows(links: LinkObservation, since: int) -> list[LossWindow]:
    """The longest interruption of each port that began after `since` (bench's clock, ns).

    A port that was dark before had no traffic to lose.
    """
    senders = links.senders()
    left, asked = dict[tuple[Port, int], Span](), 0
    # A gap is known when it ends, and when it began once its sender has been asked for the number
    # that was lost first. Servers answer with the gaps until then, so each question may bring more.
    for number in range(_MOST_QUESTIONS):
        new = links.gaps[asked:]
        wanted = _first_lost(new, senders, since)
        if number and not wanted:
            break
        asked += len(new)
        left.update(links.departures(wanted))
    gaps = [
        (port, gap)
        for port, gap in links.gaps
        if gap.last_stream in senders and gap.first_stream in senders
    ]
    windows: defaultdict[Port, list[LossWindow]] = defaultdict(list)
    for port, gap in gaps:
        window = _window(port, gap, senders, left)
        if window.began.latest >= since:
            windows[port].append(window)
    return [_longest(windows[port]) for port in sorted(windows)]


def _longest(windows: Sequence[LossWindow]) -> LossWindow:
    """Return the longest interruption, with the bounds of all that may be it."""
    # Tuples compare by their lower bound first, the time that certainly passed: a full buffer of
    # the receiver bounds none from below, and is no rival.
    longest = max(windows, key=lambda window: window.length)
    least = longest.length.earliest
    rivals = [w for w in windows if w.began != w.ended and least < w.length.latest]
    if len(rivals) < 2:
        return longest
    return replace(
        longest,
        began=_around(each.began for each in rivals),
        ended=_around(each.ended for each in rivals),
        longest=Span(least, max(each.length.latest for each in rivals)),
    )


def _around(spans: Iterable[Span]) -> Span:
    earliest, latest = zip(*spans, strict=True)
    return Span(min(earliest), max(latest))


def _first_lost(
    gaps: Iterable[tuple[Port, Gap]], senders: Mapping[int, Port], since: int
) -> dict[Port, list[int]]:
    """Return the first lost datagram of each gap that ended after `since`, by its sender."""
    wanted: defaultdict[Port, list[int]] = defaultdict(list)
    for _, gap in gaps:
        if gap.last_stream in senders and gap.received.latest > since:
            wanted[senders[gap.last_stream]].append(gap.last_number + 1)
    return wanted


def losses(links: LinkObservation, since: int) -> dict[Port, Span]:
    """Time when each port that receives nothing any more lost its link, after `since`.

    A silence is a loss where its sender went on: the first datagram that is missing had been
    sent before the socket was empty in that silence, and does not come late either.
    """
    senders = links.senders()
    silences = dict(links.silences())
    lasts = {
        port: event.last
        for port, event in silences.items()
        if event.at.latest > since and event.last is not None and event.last.stream in senders
    }
    if not lasts:
        return {}
    wanted: defaultdict[Port, list[int]] = defaultdict(list)
    for last in lasts.values():
        wanted[senders[last.stream]].append(last.number + 1)
    departures = links.departures(wanted)
    lost = {}
    for port, last in lasts.items():
        departure = departures.get((senders[last.stream], last.number + 1))
        # The next datagram had left before the socket was empty: it was lost, its sender not idle.
        if departure is not None and departure.latest <= silences[port].at.latest:
            lost[port] = Span(last.sent.earliest, max(departure.latest, last.sent.earliest))
    if not lost:
        return {}
    lasting = links.silences_after(max(bounds.latest for bounds in lost.values()))
    return {port: at for port, at in lost.items() if lasting.get(port) is silences[port]}


def _window(
    port: Port,
    gap: Gap,
    senders: Mapping[int, Port],
    departures: Mapping[tuple[Port, int], Span],
) -> LossWindow:
    before, after = senders[gap.last_stream], senders[gap.first_stream]
    if gap.backlog:
        # What is missing may have been lost by the receiver, and shows nothing of the link.
        missing = Span(gap.last_sent.earliest, gap.received.latest)
        began = ended = missing
        return LossWindow(port, before, gap.last_number, after, gap.first_number, began, ended)
    # Without a send time of the first lost datagram, the first arrival bounds it from above.
    next_left = departures.get((before, gap.last_number + 1), gap.received)
    began = Span(gap.last_sent.earliest, max(next_left.latest, gap.last_sent.earliest))
    ended = Span(min(gap.lost_sent.earliest, gap.received.latest), gap.received.latest)
    return LossWindow(port, before, gap.last_number, after, gap.first_number, began, ended)
