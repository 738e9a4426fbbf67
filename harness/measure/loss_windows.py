"""Interruptions of each direction of a link, from numbered datagrams.

Every port sends a numbered datagram to the far end every period. Numbers missing at a receiver
were sent while the link was down; the stamps of the last datagram before and the first after
bound the outage. A silence alone bounds nothing: the sender may not have been scheduled.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lightrig.harness.measure.links import LinkObservation
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import Gap
from lightrig.testbeds import Port
from lightrig.testbeds.plans import direction_subject

_MOST_QUESTIONS = 5
"""Questions to the servers about one event: with a link that flaps, each may bring a new gap."""

_LONGEST_RUN = 4
"""Numbers in a row that a link may lose by chance: at 5 % each, once in 160,000."""

_RARE = 1e-4
"""Chance that more numbers in a row are lost than are taken to be lost by chance."""


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
        overtaken: how many of the numbers between came late, and so were not lost.
    """

    receiver: Port
    before: Port
    last: int
    after: Port
    first: int
    began: Span
    ended: Span
    longest: Span | None = None
    overtaken: int = 0

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
        lost = self.first - self.last - 1 - self.overtaken
        return lost if self.before == self.after else None

    @property
    def direction(self) -> str:
        """Sender and receiver; where another sends afterwards, it too."""
        return direction_subject(self.before, self.receiver, self.after)


def loss_windows(links: LinkObservation, since: int) -> list[LossWindow]:
    """The longest interruption of each port that began after `since` (bench's clock, ns).

    A port that was dark before had no traffic to lose. Numbers that came late are not lost, and
    what a link loses all the time is no interruption: see `steady_losses`.
    """
    senders = links.senders()
    left, asked = dict[tuple[Port, int], Span](), 0
    found: list[_Interruption] = []
    # A gap is known when it ends, and when it began once its sender has been asked for the number
    # that was lost first. Servers answer with the gaps until then, so each question may bring more,
    # of which the numbers that were overtaken come only after `await_late`.
    for number in range(_MOST_QUESTIONS):
        known = len(links.gaps)
        links.await_late()
        if not links.late:
            known = len(links.gaps)
        late = {(port, one.stream, one.number) for port, one in links.late}
        chances = _chances(links, late)
        new = [
            _Interruption.of(port, gap, late, chances.get((port, gap.last_stream), 0))
            for port, gap in links.gaps[asked:known]
            if gap.last_stream in senders and gap.first_stream in senders
        ]
        asked = known
        found += [each for each in new if each is not None]
        wanted: defaultdict[Port, list[int]] = defaultdict(list)
        for each in new:
            if each is not None and each.gap.received.latest > since:
                for stream, of in each.wanted():
                    wanted[senders[stream]].append(of)
        if number and not wanted and asked == len(links.gaps):
            break
        left.update(links.departures(wanted))
    windows: defaultdict[Port, list[LossWindow]] = defaultdict(list)
    for each in found:
        window = each.window(senders, left)
        if window.began.latest >= since:
            windows[each.port].append(window)
    return [_longest(windows[port]) for port in sorted(windows)]


class _Interruption(NamedTuple):
    """A gap of which something is missing that may not be lost by chance.

    Attributes:
        port: the receiving port.
        gap: as its server observed it.
        overtaken: how many of its numbers came late.
        went: the first number that was not lost by chance: its sender had lost the link.
        came: the last number that was not; None for the one before the first that arrived, whose
            send time the gap has.
        is_open: whether all of it may have been lost by chance, or by the receiver, and so bounds
            nothing.
    """

    port: Port
    gap: Gap
    overtaken: int
    went: int
    came: int | None
    is_open: bool

    @classmethod
    def of(
        cls, port: Port, gap: Gap, late: Collection[tuple[Port, int, int]], chance: int
    ) -> "_Interruption | None":
        """Return what is missing in a gap; None where it came late, or was lost by chance.

        chance: how many numbers in a row may be lost by chance.
        """
        last, first = gap.last_number, gap.first_number
        if gap.last_stream == gap.first_stream:
            missing = [n for n in range(last + 1, first) if (port, gap.last_stream, n) not in late]
            if len(missing) <= chance:
                return None
            at = min(chance, len(missing) - 1)
            went, came = missing[at], missing[-1 - at]
            overtaken, few = first - last - 1 - len(missing), len(missing) <= 2 * chance
        else:
            after = (n for n in itertools.count(last + 1) if (port, gap.last_stream, n) not in late)
            before = (
                n for n in itertools.count(first - 1, -1) if (port, gap.first_stream, n) not in late
            )
            went, came = (next(itertools.islice(each, chance, None)) for each in (after, before))
            overtaken, few = 0, False
        return cls(
            *(port, gap, overtaken, went, None if came == first - 1 else came, few or gap.backlog)
        )

    def wanted(self) -> Iterator[tuple[int, int]]:
        """Yield stream and number of datagrams whose departures bound the interruption."""
        yield self.gap.last_stream, self.went
        if self.came is not None:
            yield self.gap.first_stream, self.came - 1

    def window(
        self, senders: Mapping[int, Port], departures: Mapping[tuple[Port, int], Span]
    ) -> LossWindow:
        """Return the interruption on the bench's clock."""
        gap = self.gap
        before, after = senders[gap.last_stream], senders[gap.first_stream]
        if self.is_open:
            began = ended = Span(gap.last_sent.earliest, gap.received.latest)
        else:
            # Without a send time of the first lost datagram, the first arrival bounds it from
            # above. Where datagrams are long on their way, it was lost so much later at most.
            left = departures.get((before, self.went), gap.received).latest + gap.transit
            least = gap.last_sent.earliest
            began = Span(least, max(min(left, gap.received.latest), least))
            lost = gap.lost_sent
            if self.came is not None:  # sent after the one before it had left
                lost = departures.get((after, self.came - 1), gap.last_sent)
            ended = Span(min(lost.earliest, gap.received.latest), gap.received.latest)
        numbers = gap.last_number, after, gap.first_number
        return LossWindow(self.port, before, *numbers, began, ended, overtaken=self.overtaken)


@dataclass(frozen=True, slots=True)
class SteadyLoss:
    """Datagrams of one direction of a link that were lost or overtaken without an interruption.

    Attributes:
        sender, receiver: the ports.
        lost: how many were lost.
        received: how many came.
        late: how many of these came late.
        depth: by how many numbers at most.
    """

    sender: Port
    receiver: Port
    lost: int
    received: int
    late: int
    depth: int


def steady_losses(links: LinkObservation, windows: Iterable[LossWindow]) -> list[SteadyLoss]:
    """What each direction lost and had overtaken in an event, besides its interruptions.

    Directions without either are none of it. Only losses of up to `_LONGEST_RUN` numbers count.
    """
    senders, overtaken = links.senders(), links.late
    late = {(port, one.stream, one.number) for port, one in overtaken}
    of_windows = {(window.receiver, window.last, window.first) for window in windows}
    lost = _short_runs(links, late, of_windows)
    depths: defaultdict[tuple[Port, int], list[int]] = defaultdict(list)
    for port, one in overtaken:
        depths[port, one.stream].append(one.depth)
    return [
        SteadyLoss(
            *(senders[stream], port, lost.get((port, stream), 0), count),
            *(len(depths[port, stream]), max(depths[port, stream], default=0)),
        )
        for (port, stream), count in sorted(links.received.items())
        if stream in senders and (lost.get((port, stream)) or depths[port, stream])
    ]


def _short_runs(
    links: LinkObservation,
    late: Collection[tuple[Port, int, int]],
    without: Collection[tuple[Port, int, int]] = (),
) -> dict[tuple[Port, int], int]:
    """Return how many datagrams each direction lost in short runs, by receiver and stream.

    without: receiver, last and first number of gaps that do not count.
    """
    lost: defaultdict[tuple[Port, int], int] = defaultdict(int)
    for port, gap in links.gaps:
        last, first, stream = gap.last_number, gap.first_number, gap.last_stream
        if stream != gap.first_stream or gap.backlog or (port, last, first) in without:
            continue
        missing = sum((port, stream, n) not in late for n in range(last + 1, first))
        if missing <= _LONGEST_RUN:
            lost[port, stream] += missing
    return dict(lost)


def _chances(
    links: LinkObservation, late: Collection[tuple[Port, int, int]]
) -> dict[tuple[Port, int], int]:
    """Return how many numbers in a row each direction may lose by chance, by receiver and stream.

    One run may be an interruption, so two are the least that show a steady loss.
    """
    chances = {}
    for (port, stream), lost in _short_runs(links, late).items():
        received = links.received.get((port, stream), 0)
        if lost > 1 and received:
            share = min((lost + 2) / (lost + received), 0.5)
            chances[port, stream] = math.ceil(math.log(_RARE) / math.log(share))
    return chances


def _longest(windows: Sequence[LossWindow]) -> LossWindow:
    """Return the longest interruption, with the bounds of all that may be it.

    What a full buffer of the receiver has dropped may be none: it counts where another port sends
    afterwards, whose first datagram is behind it, or where nothing else was missed.
    """
    if len(windows) == 1:
        return windows[0]
    real = [w for w in windows if w.began != w.ended or w.before != w.after]
    # Tuples compare by their lower bound first: the time that certainly passed.
    longest = max(real or windows, key=lambda window: window.length)
    least = longest.length.earliest
    rivals = [window for window in real if least < window.length.latest]
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
