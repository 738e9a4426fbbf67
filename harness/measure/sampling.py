"""Events of a test: as many as its limits need, by plans that are fixed before the first."""

from collections.abc import Callable, Collection, Iterator

from lightrig.harness.measure.recording import Recording
from lightrig.harness.statistics.limits import sample_plan, samples_needed
from lightrig.testbeds import Limit, format_duration

LONGEST_STAGE = 600_000_000_000
"""Longest second stage of a plan in real time, in ns, by the pace of the first stage."""


def events_needed(limits: Collection[Limit], usual: int) -> int:
    """Number of events that can pass `limits` if it is fixed; `usual` if none asks for any."""
    return max(filter(None, map(samples_needed, limits)), default=usual)


class Events:
    """Iterates over the events of a test, from 0; one that is set aside is replaced by a new one.

    Where all limits that ask for a number of events have a plan of two stages, the second stage
    follows only if the first does not decide them all. It is left out where it would take too long.

    Args:
        recording: of the test, which judges its limits.
        limits: those on quantiles that the test judges.
        usual: number of events where no limit asks for any.
        now: returns the time in ns.
        given: number of events, whatever the limits ask for.
        real: whether time is real.
    """

    def __init__(
        self,
        recording: Recording,
        limits: Collection[Limit],
        usual: int,
        now: Callable[[], int],
        *,
        given: int | None = None,
        real: bool = False,
    ) -> None:
        self._recording = recording
        self._now = now
        self._real = real
        self._limits = [limit for limit in limits if samples_needed(limit) is not None]
        found = {limit.quantity: sample_plan(limit) for limit in self._limits}
        plans = {quantity: plan for quantity, plan in found.items() if plan is not None}
        looks = {look.samples for plan in plans.values() for look in plan}
        # One that needs a fixed number has it in common with all others.
        staged = looks and len(plans) == len(found) and not given
        self._plans = plans if staged else {}
        self._looks = sorted(looks) if staged else [given or events_needed(limits, usual)]

    def __iter__(self) -> Iterator[int]:
        recording, began = self._recording, self._now()
        recording.follow(self._plans, began)
        index = taken = 0
        look = self._looks[0]
        while True:
            while taken < look and not recording.too_many_set_aside(look):
                before = recording.set_aside
                yield index
                index += 1
                taken += recording.set_aside == before
            more = min(self._needed(), self._looks[-1] - taken)
            if (
                more <= 0
                or recording.too_many_set_aside(taken)
                or not self._permits(more, taken, began)
            ):
                return
            look = taken + more

    def _needed(self) -> int:
        """Number of events after which the next of the limits that are not decided may be."""
        verdicts = map(self._recording.verdict, self._limits)
        return max(
            (one.needed or 0 for one in verdicts if one.outcome == "not enough data"), default=0
        )

    def _permits(self, more: int, taken: int, began: int) -> bool:
        """Whether `more` events do not take too long; says so either way."""
        lasting = (self._now() - began) * more // taken
        stage = f"{taken} events do not decide all limits; {more} more take {_about(lasting)}"
        if self._real and lasting > LONGEST_STAGE:
            most = format_duration(LONGEST_STAGE)
            self._recording.note(f"{stage}, which is more than {most}: they are left out")
            return False
        self._recording.announce(stage)
        return True


def _about(duration: int) -> str:
    return f"about {max(round(duration / 1e9), 1):,} s"
