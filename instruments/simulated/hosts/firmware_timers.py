"""The timers of a simulated NIC's firmware: how long its last link-up took.

When they start anew: the fields' descriptions of mstflint's register layouts (PDDR, link-up page):
on moving to disable, and, where the speed is forced, from active or phy up to polling. Until a
state is reached its timer is 0.
"""

from typing import NamedTuple

from lightrig.instruments.simulated.world.links import LinkTimeline
from lightrig.instruments.simulated.world.randomness import Stream
from lightrig.testbeds import Delay

_MS = 1_000_000

_ACTIVATION = Delay(30 * _MS, 8 * _MS)
"""From PHY up to active; assumed, no figure is published. Alignment to code words, which is over
with PHY up, takes two markers or three: they come every 8,192 code words of 5,440 bits, or 105 us
at 425 Gb/s (IEEE 802.3 clause 119; 91 for 100 Gb/s: 4,096 of 5,280 bits, or 210 us)."""

_EARLIER = Delay(2_000 * _MS, 300 * _MS)
"""From signal to PHY up, of the link-up before the world began; assumed: about what a module of
eight lanes leaves of the 3 s from light to link up that are `SimulatedNic.bring_up`."""


class LinkUp(NamedTuple):
    """Moments of a link-up, in ns of the bench's clock."""

    signal: int
    phy: int
    active: int


class Timers(NamedTuple):
    """What the firmware's page shows, in whole ms."""

    signal_to_phy: int
    phy_to_active: int
    whole: int


class FirmwareTimers:
    """Timers of one port.

    Args:
        timeline: of its link.
        draws: its chance.

    Attributes:
        history: link-ups of late, also those that no timer shows.
    """

    def __init__(self, timeline: LinkTimeline, draws: Stream) -> None:
        self._timeline, self._draws = timeline, draws
        self.history: list[LinkUp] = []
        signal = draws.duration(_EARLIER) // _MS
        active = draws.duration(_ACTIVATION) // _MS
        self._shown = Timers(signal, active, signal + active)
        self._signal: int | None = None
        self._activation = 0
        self._is_shown = False
        self.restarts = False

    def lose(self, at: int) -> None:
        """Take that the link is lost at `at`."""
        self._follow(at)
        self._signal = None
        if self.restarts:
            self._shown = Timers(0, 0, 0)

    def begin(self, signal: int, *, disabled: bool = False) -> None:
        """Take that a signal comes to the NIC at a moment. disabled: the port was until then."""
        self._follow(signal)
        self._signal = signal
        self._activation = self._draws.duration(_ACTIVATION)
        self._is_shown = self.restarts or disabled
        if self._is_shown:
            self._shown = Timers(0, 0, 0)

    def read(self, now: int) -> Timers:
        """Return what the firmware shows at `now`."""
        self._follow(now)
        return self._shown

    def _follow(self, now: int) -> None:
        """Take over the link-up that is under way, as far as it has come."""
        if self._signal is None:
            return
        for at, stage, up, _ in self._timeline.transitions:
            if stage == "firmware" and up and self._signal <= at:
                phy = max(self._signal, at - self._activation)
                if phy <= now and self._is_shown:
                    self._shown = Timers((phy - self._signal) // _MS, 0, 0)
                if at <= now:
                    self._end(LinkUp(self._signal, phy, at))
                return

    def _end(self, one: LinkUp) -> None:
        self.history.append(one)
        del self.history[:-32]
        self._signal = None
        if self._is_shown:
            whole = (one.active - one.signal) // _MS
            self._shown = Timers(
                (one.phy - one.signal) // _MS, (one.active - one.phy) // _MS, whole
            )
