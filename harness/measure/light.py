"""Loss of signal and signal recovery at egress ports, from a switch's power monitors."""

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from lightrig.harness.bench import Bench
from lightrig.harness.measure.slow_watch import longest_blind
from lightrig.harness.measure.stages import Seen
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import PowerMonitor, PowerReading
from lightrig.instruments.core.stages import CARRIER_DOWN, LOS
from lightrig.testbeds import Link
from lightrig.testbeds.cabling import Cabling

NO_LIGHT_DBM = -40.0
"""Below this a monitor sees no light, only its own floor."""

STEADY_DB = 0.5
"""Largest difference between readings of the same light: twice the noise."""

CHANGE_DB = 1.5
"""Smallest certain difference if a third of the window was dark; less is ambiguous."""


class LightWatch:
    """Readings of one switch's monitors around one change of its circuits.

    A reading averages over the monitor's window before the sample, and the sample lies
    somewhere between question and answer. A change of light therefore lies between the
    last reading that did not show it, less its window, and the first that did. A dark interval
    shorter than a window may not be detected.

    The middle of these bounds is off by a part of the window. Where only one change lies in the
    window of a reading, its averaged power shows which share of the window was dark, and with it
    when the change was: `loss_points` and `recovery_points`. This supposes that the monitor
    averages power, evenly; the bounds do not.

    Args:
        monitor: the switch.
        leaving: egress ports whose light the change takes away.
        coming: egress ports that the change brings light to.
        latency: greatest delay of a reading behind the light, besides its window, in ns.

    Attributes:
        latency: as given.
        longest_gap: the longest time between two readings, in ns; a shorter darkness may go
            unseen.
    """

    def __init__(
        self,
        monitor: PowerMonitor,
        leaving: Collection[int],
        coming: Collection[int],
        latency: int = 0,
    ) -> None:
        self._monitor = monitor
        self.latency = latency
        self._leaving = frozenset(leaving)
        self._coming = frozenset(coming)
        self._ports = sorted(self._leaving | self._coming)
        self._readings: list[PowerReading] = []
        self._changed: dict[int, int] = {}
        self._of_ports: dict[int, list[float]] = {}
        self.longest_gap = 0
        self._darkened: set[int] = set()
        self._steady = dict.fromkeys(self._ports, 0)

    def take(self) -> None:
        """Take one reading; the first one must be taken before the change."""
        reading = self._monitor.power(self._ports)
        self._readings.append(reading)
        self._of_ports.clear()
        index = len(self._readings) - 1
        if index == 0:
            return
        before, last = self._readings[0].dbm, self._readings[-2].dbm
        gap = longest_blind(Span(each.asked, each.answered) for each in self._readings[-2:])
        self.longest_gap = max(self.longest_gap, gap)
        # Samples closer than a window share light, and look alike for that reason alone.
        apart = gap >= reading.window
        changed, steady = self._changed, self._steady
        for port, power in reading.dbm.items():
            if port not in changed:
                if abs(power - before[port]) <= CHANGE_DB:
                    continue
                changed[port] = index
            if power <= NO_LIGHT_DBM:
                self._darkened.add(port)
                steady[port] = 0
            elif abs(power - last[port]) > STEADY_DB:
                steady[port] = 0
            elif apart:
                steady[port] += 1

    @property
    def window(self) -> int:
        """The monitor's averaging window, in ns."""
        return self._readings[-1].window

    @property
    def point_error(self) -> int:
        """Error of a moment by averaged power, in ns, of a monitor that averages unevenly.

        Three quarters of a window; a sample lies anywhere between query and reply besides.
        """
        slowest = max(reading.answered - reading.asked for reading in self._readings)
        return (slowest + self.latency) // 2 + 3 * self.window // 4

    @property
    def complete(self) -> bool:
        """Whether all light that had to leave has left, and all that had to come is steady."""
        return self._leaving <= self._changed.keys() and all(map(self._settled, self._coming))

    def _settled(self, port: int) -> bool:
        # Without a reading of darkness alone, one of old light and dark may by chance equal
        # the next, of dark and new light; a third reading resolves it.
        return self._steady[port] >= (1 if self._was_dark(port) else 2)

    def _was_dark(self, port: int) -> bool:
        return port in self._darkened or self._readings[0].dbm[port] <= NO_LIGHT_DBM

    @property
    def watched(self) -> Span:
        """Until when changes of light show, see `Watch.until`.

        What lies between the last two readings, and is over before the last, shows in neither.
        """
        last_but_one = self._readings[-2 if len(self._readings) > 1 else -1]
        return Span(last_but_one.answered - self.latency, self._readings[-1].answered)

    def losses_of_signal(self, sent: Span) -> dict[int, Span]:
        """Interval of each loss of signal, by egress; ports where it was not seen are absent."""
        spans = {}
        for port in sorted(self._leaving & self._changed.keys()):
            before = self._readings[0].dbm[port]
            if before <= NO_LIGHT_DBM:
                continue
            first, same = self._changed[port], self._last_alike(port)
            # Dark and a stronger new light together may look like the old light did.
            rose = self._readings[first].dbm[port] > before
            spans[port] = self.between(same - 1 if rose else same, first, sent)
        return spans

    def recoveries(self, sent: Span) -> dict[int, Span]:
        """Interval of each signal recovery, by egress; ports without one are absent."""
        spans = {}
        for port in sorted(self._coming & self._changed.keys()):
            if not self._settled(port):
                continue
            levels = self._levels(port)
            last = _last_unlike(levels, STEADY_DB)
            if last < 0:
                continue
            # Noise alone may part two readings of one light by more than STEADY_DB, so only a
            # reading that differs by twice that ends the time without the new light.
            without = _last_unlike(levels, 2 * STEADY_DB)
            # Old and stronger light together with dark may look like the new light does.
            fell = levels[last] > levels[-1] and not self._was_dark(port)
            spans[port] = self.between(without, last + 2 if fell else last + 1, sent)
        return spans

    def loss_points(self, losses: Mapping[int, Span]) -> dict[int, int]:
        """Moment of each loss of signal by averaged power; ports where that is open are absent.

        losses: what `losses_of_signal` returned.
        """
        points = {}
        for port, bounds in losses.items():
            levels, same = self._levels(port), self._last_alike(port, STEADY_DB / 2)
            shown, then = levels[same + 1], (*levels[same + 2 :], levels[-1])[0]
            if shown <= NO_LIGHT_DBM:
                at = self._between_windows(same)
            # New light in the same window is ruled out by less than all of it in the next one.
            elif shown <= levels[0] and (port not in self._coming or then < levels[-1] - STEADY_DB):
                at = self._before_sample(same + 1, 1 - 10 ** ((shown - levels[0]) / 10))
            else:
                continue
            points[port] = min(max(at, bounds.earliest), bounds.latest)
        return points

    def recovery_points(self, recoveries: Mapping[int, Span]) -> dict[int, int]:
        """Moment of each signal recovery by averaged power; ports where that is open are absent.

        recoveries: what `recoveries` returned.
        """
        points = {}
        for port, bounds in recoveries.items():
            levels = self._levels(port)
            last = _last_unlike(levels, STEADY_DB / 2)
            # Old light in the same window is ruled out by less than all of it in the one before.
            old = port in self._leaving and levels[0] > NO_LIGHT_DBM
            if levels[last] <= NO_LIGHT_DBM:
                at = self._between_windows(last)
            elif levels[last] <= levels[-1] and (
                not old or (last > 0 and levels[last - 1] < levels[0] - STEADY_DB)
            ):
                at = self._before_sample(last, 10 ** ((levels[last] - levels[-1]) / 10))
            else:
                continue
            points[port] = min(max(at, bounds.earliest), bounds.latest)
        return points

    def _levels(self, port: int) -> list[float]:
        levels = self._of_ports.get(port)
        if levels is None:
            levels = self._of_ports[port] = [reading.dbm[port] for reading in self._readings]
        return levels

    def _last_alike(self, port: int, tolerance: float = STEADY_DB) -> int:
        """Return the last reading before the loss of signal that shows all of the old light."""
        levels, same = self._levels(port), self._changed[port] - 1
        while abs(levels[same] - levels[0]) > tolerance:
            same -= 1
        return same

    def _before_sample(self, index: int, share: float) -> int:
        """Return the moment that lies `share` of a window before the sample of a reading."""
        reading = self._readings[index]
        sample = (reading.asked + reading.answered) // 2
        return sample - round(share * reading.window) - self.latency // 2

    def _between_windows(self, index: int) -> int:
        """Return the middle from the sample of a reading until the window of the next one."""
        return (self._before_sample(index, 0) + self._before_sample(index + 1, 1)) // 2

    def between(self, without: int, shown: int, sent: Span) -> Span:
        """From a reading that did not show a change to one that did."""
        answered = self._readings[min(shown, len(self._readings) - 1)].answered
        if without < 0:
            return Span(sent.earliest, answered)
        # The command is what moves the mirrors: nothing of it happens before it is sent.
        reading = self._readings[without]
        earliest = reading.asked - reading.window - self.latency
        return Span(max(earliest, sent.earliest), answered)


def _last_unlike(levels: Sequence[float], tolerance: float) -> int:
    """Return the last reading that differs from the newest by more; -1 where none does."""
    now = levels[-1]
    for number in reversed(range(len(levels))):
        if abs(levels[number] - now) > tolerance:
            return number
    return -1


def take_all(bench: Bench, watches: Collection[LightWatch]) -> None:
    """Take one reading of every watch, of several switches side by side.

    One after another, dozens of switches would be read too seldom to see a short darkness.
    """
    if len(watches) > 1:
        bench.clock.parallel(*(watch.take for watch in watches))
        return
    for watch in watches:
        watch.take()


def dither(number: int) -> float:
    """Phase of the polls of event `number`, from 0 to 1.

    Multiples of the golden ratio spread evenly, however many there are. With polls that are
    locked to the command, every event of the same duration has the same interval, whose middle
    is off by up to half the time between two polls, and no median of them averages that.
    """
    return number * _GOLDEN % 1


_GOLDEN = (5**0.5 - 1) / 2


def watch_until_complete(
    bench: Bench, watches: Collection[LightWatch], timeout: int, *, phase: float = 0.0
) -> None:
    """Read every watch until all are complete, or `timeout` ns have passed.

    From an answer to the next question a window passes, so that no two samples share light.
    phase: by which part of a window the first reading comes earlier; see `dither`.
    """
    clock = bench.clock
    deadline = clock.now() + timeout
    open_watches = list(watches)
    wait = 1 - phase
    while open_watches and clock.now() < deadline:
        clock.sleep(round(wait * max(watch.window for watch in open_watches)))
        wait = 1.0
        take_all(bench, open_watches)
        open_watches = [watch for watch in open_watches if not watch.complete]


def late_monitors(
    seen: Sequence[Seen], links: Iterable[Link], cabling: Cabling, tolerances: Mapping[str, int]
) -> dict[str, int]:
    """Return by how many ns, at least, the monitors of switches were late, by switch.

    links: those that were up before. A port loses carrier because its own receiver is dark, or
    because the far end's is and says so, hence after the earlier of both losses of signal. Ports
    of which one is not monitored show nothing.

    Bounds of light that lie wholly behind the carrier prove a delay. The points within them, by
    averaged power, show a delay of less than a window, such as readings that are those of the query
    before: where the median over a switch's links lies behind the carrier by more than
    `tolerances`, the error in ns of a point whose monitor does not average evenly.
    """
    lost, points = dict[str, Span](), dict[str, int | None]()
    downs: defaultdict[str, list[int]] = defaultdict(list)
    for subject, stage, at, point in seen:
        if stage == CARRIER_DOWN.name:
            downs[subject].append(at.latest)
        elif stage == LOS.name:
            lost[subject], points[subject] = at, point
    late: dict[str, int] = {}
    behind: dict[str, list[int]] = {}
    for link in links:
        ends = [cabling.egress_of(port) for port in (link.a, link.b)]
        subjects = [f"{end[0]}.{end[1]}" for end in ends if end is not None]
        light: list[Span] = [lost[subject] for subject in subjects if subject in lost]
        down = [*downs[str(link.a)], *downs[str(link.b)]]
        if len(light) < len(ends) or not down:
            continue
        excess = min(at.earliest for at in light) - min(down)
        if excess > 0:
            for switch, _ in filter(None, ends):
                late[switch] = max(late.get(switch, 0), excess)
        known = [point for subject in subjects if (point := points.get(subject)) is not None]
        if len(known) == len(ends):
            for switch in {end[0] for end in ends if end is not None}:
                behind.setdefault(switch, []).append(min(known) - min(down) - tolerances[switch])
    for switch, each in behind.items():
        if (excess := round(statistics.median(each))) > 0:
            late[switch] = max(late.get(switch, 0), excess)
    return late


def late_sentence(late: dict[str, int], number: int) -> str:
    """Return what monitors that are late show, and what to do."""
    found = ", ".join(f"{name} by {ns / 1e6:.1f} ms or more" for name, ns in sorted(late.items()))
    return (
        f"reconfiguration {number}: loss of signal after the loss of carrier that it causes: "
        f"monitors are late ({found}), or a server's clock is wrong; light in "
        "such events has an upper bound only, which no limit judges; state `monitor_latency` of "
        "the switch in the testbed file"
    )
