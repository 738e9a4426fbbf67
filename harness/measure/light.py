"""When light left an egress and when it came back, from a switch's own power monitors."""

from collections.abc import Collection

from harness.bench import Bench
from instruments.capabilities import PowerMonitor, PowerReading
from instruments.clock import Span

NO_LIGHT_DBM = -40.0
"""Below this a monitor sees no light, only its own floor."""

HALF_POWER_DB = 3.0
STABLE_DB = 0.5


class LightWatch:
    """Readings of one switch's monitors around one change of its circuits.

    A reading averages over the monitor's window before the sample, and the sample lies
    somewhere between question and answer. A change of light therefore lies between the
    last reading that did not show it, less its window, and the first that did.

    Args:
        monitor: the switch.
        leaving: egress ports whose light the change takes away.
        coming: egress ports that the change brings light to.
    """

    def __init__(
        self, monitor: PowerMonitor, leaving: Collection[int], coming: Collection[int]
    ) -> None:
        self._monitor = monitor
        self._leaving = frozenset(leaving)
        self._coming = frozenset(coming)
        self._ports = sorted(self._leaving | self._coming)
        self._readings: list[PowerReading] = []
        self._dark_since: dict[int, int] = {}
        self._settled: set[int] = set()

    def take(self) -> None:
        """Take one reading; the first one must be taken before the change."""
        reading = self._monitor.power(self._ports)
        self._readings.append(reading)
        index = len(self._readings) - 1
        if index == 0:
            return
        before, last = self._readings[0].dbm, self._readings[-2].dbm
        for port, power in reading.dbm.items():
            lit_before = before[port] > NO_LIGHT_DBM
            if port not in self._dark_since and (
                not lit_before or power < before[port] - HALF_POWER_DB
            ):
                self._dark_since[port] = index
            if (
                port in self._dark_since
                and power > NO_LIGHT_DBM
                and abs(power - last[port]) < STABLE_DB
            ):
                self._settled.add(port)

    @property
    def window(self) -> int:
        """The monitor's averaging window, in ns."""
        return self._readings[-1].window

    @property
    def complete(self) -> bool:
        """Whether all light that had to leave has left, and all that had to come is stable."""
        return self._leaving <= self._dark_since.keys() and self._coming <= self._settled

    def gone(self, sent: Span) -> dict[int, Span]:
        """When light left, by egress; ports where that was not seen are absent."""
        return {
            port: self._between(self._dark_since[port], sent)
            for port in sorted(self._leaving & self._dark_since.keys())
        }

    def back(self, sent: Span) -> dict[int, Span]:
        """When light came, by egress; ports where it did not are absent."""
        spans = {}
        for port in sorted(self._coming & self._settled):
            levels = [reading.dbm[port] for reading in self._readings]
            enough = levels[-1] - HALF_POWER_DB
            # Counted from the end: what is left of a stronger light that was there before
            # may be more than the new light will ever be.
            first = len(levels)
            while levels[first - 1] >= enough:
                first -= 1
            spans[port] = self._between(first, sent)
        return spans

    def _between(self, index: int, sent: Span) -> Span:
        last_without, first_with = self._readings[index - 1], self._readings[index]
        # The command is what moves the mirrors: nothing of it happens before it is sent.
        earliest = max(last_without.asked - last_without.window, sent.earliest)
        return Span(earliest, first_with.answered)


def watch_until_complete(bench: Bench, watches: Collection[LightWatch], timeout: int) -> None:
    """Read every watch once a window until all are complete, or `timeout` ns have passed."""
    clock = bench.clock
    due = clock.now()
    deadline = due + timeout
    open_watches = list(watches)
    while open_watches and due < deadline:
        due += min(watch.window for watch in open_watches)
        clock.sleep(due - clock.now())
        for watch in open_watches:
            watch.take()
        open_watches = [watch for watch in open_watches if not watch.complete]
