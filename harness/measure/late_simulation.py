"""Events in which the simulation itself was late; loaded only where a world is simulated.

Between namespaces a simulated switch moves links of the kernel. On a busy machine they may follow
its light late: then the harness measures, rightly, a carrier that the switch does not answer for.
Such an event is set aside and replaced by a new one. The delay of the simulation alone decides,
from the light to the kernel's own stamps of its change; what was measured is not looked at.
"""

from lightrig.harness.bench import Bench
from lightrig.harness.measure.recording import NotEnoughDataError, Recording
from lightrig.harness.measure.stages import Reconfiguration
from lightrig.harness.record import Row
from lightrig.testbeds import format_duration, format_share

MOST_DELAY = 50_000_000
"""Longest delay of the kernel's links behind the light, in ns, of an event that is judged."""

MOST_SHARE = 0.1
"""Largest share of a test's events that may be set aside; beyond, the test is inconclusive."""


class SimulatedRecording(Recording):
    """Recording of a test whose links may be simulated: sets late events aside, and counts them."""

    _longest = 0
    _noted = 0

    def sets_aside(self, bench: Bench, event: Reconfiguration, number: int) -> bool:
        """Set an event aside if the simulation was late in it; its stages become rows of that."""
        delay = bench.world.longest_delay(event.sent.earliest) if bench.world else None
        if delay is None or delay.by <= MOST_DELAY:
            return False
        self.set_aside += 1
        self._longest = max(self._longest, delay.by)
        time, of_event = event.sent.earliest, {"event": number}
        by, port = delay.by, str(delay.port)
        late = Row(port, "set_aside.delay", by, by, by, "ns", time, of_event)
        stages = [
            Row(stage, "set_aside.stage", (low + high) // 2, low, high, "ns", time, of_event)
            for stage, (low, high) in event.stages().items()
        ]
        self.record([late, *stages], judged=False)
        return True

    def too_many_set_aside(self, wanted: int) -> bool:
        """Whether so many are set aside that a test of `wanted` other events decides nothing."""
        return self.set_aside > MOST_SHARE * (wanted + self.set_aside)

    def judge(self, *families: str) -> None:
        """Judge as `Recording.judge` does; too many events set aside make it inconclusive.

        Raises what that does: a limit that the other events break is broken all the same.
        """
        __tracebackhide__ = True
        counted = f"{self.test}: {self.set_aside} of {self.events} events set aside, not judged"
        sentence = (
            f"{counted}: the simulation's own links followed its light more than "
            f"{format_duration(MOST_DELAY)} late, up to {format_duration(self._longest)}"
        )
        if self.set_aside > self._noted:
            self._noted = self.set_aside
            self.note(sentence)
        super().judge(*families)
        if self.too_many_set_aside(self.events - self.set_aside):
            sentence += f"; more than {format_share(MOST_SHARE)} decide nothing."
            if self._undecided is None:
                raise NotEnoughDataError(sentence)
            self._undecided(sentence)
