"""Faults one after the other under a job, and the longest fault that it survives."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.jobs.bench.jobs import CommandJobs, JobCollective, Jobs
from lightrig.harness.jobs.measure.light_faults import Fault
from lightrig.harness.jobs.measure.round_phase import RoundPhase
from lightrig.harness.jobs.measure.survival import (
    NOT_FELT,
    RECOVERY,
    Survival,
    WatchedJob,
    job_under_fault,
)
from lightrig.harness.jobs.statistics.staircase import Staircase, Threshold
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.record import Row, Scalar
from lightrig.testbeds import Plan
from lightrig.testbeds.quantities import format_duration

_POLL_PERIOD, _DATAGRAM_PERIOD = 5_000_000, 20_000_000
"""Periods in ns that suit stalls of 0.2 s and more, and take little processor time from jobs."""


def quiet_observation(bench: Bench) -> LinkObservation:
    """Return an observation of links that costs the servers little."""
    return LinkObservation(bench, _DATAGRAM_PERIOD, _POLL_PERIOD)


@dataclass(frozen=True)
class FaultRun:
    """A job that is started anew for each fault.

    Attributes:
        plan: has a ring of all servers.
        reform: whether the job is started anew after an error too, once the light is back.
        timeout: how long after the light has come back the job may take to go on, in ns.
        phase: of a round at which the light is to go; None for the moments that are drawn.
        reroute: whether packets are led over the links that are left while others are dark; not
            under a command, whose routes are its own.
    """

    fabric: Fabric
    links: LinkObservation
    jobs: Jobs | CommandJobs
    plan: Plan
    collective: JobCollective
    reform: bool = False
    timeout: int = RECOVERY
    phase: RoundPhase | None = None
    reroute: bool = False

    def under(self, fault: Fault) -> Survival:
        """Return what became of the job under one fault; the plan is in place afterwards."""
        bring_up(self.fabric, self.links, self.plan)
        ours = self.jobs if isinstance(self.jobs, Jobs) else None
        return job_under_fault(
            self.fabric,
            self.links,
            self._start(),
            self.plan,
            fault,
            timeout=self.timeout,
            lose=ours.lose if ours else None,
            reform=self._start if self.reform else None,
            reroute=ours.route if ours and self.reroute else None,
            phase=self.phase,
            drawn=fault.partner is None and not fault.what.to,
        )

    def _start(self) -> WatchedJob:
        return self.jobs.start(self.plan, self.collective)


class LongestFault:
    """Durations chosen one after the other, and the longest that half of the faults survive.

    Args:
        least, most: bounds of the durations, in ns.
    """

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most, self._trials = least, most, 0
        self._stairs = Staircase(least / 1e9, most / 1e9)

    def faults(self, drawn: Iterable[Fault]) -> Iterator[Fault]:
        """Yield the faults with the duration to try next; each must be `found` before the next."""
        for fault in drawn:
            duration = round(self._stairs.next_level() * 1e9)
            yield replace(fault, what=replace(fault.what, duration=duration))

    def found(self, survival: Survival) -> None:
        """Take the outcome of a fault; one that the job cannot have felt says nothing."""
        if survival.outcome == NOT_FELT:
            return
        self._trials += 1
        # Not what was asked for: a busy machine may bring the light back late.
        self._stairs.answered(survival.duration / 1e9, failed=not survival.went_on)

    def row(self, subject: str, time: int) -> Row:
        """Return the longest duration as a row; one that was not reached is marked as a bound."""
        found, least, most = self.longest, self._least / 1e9, self._most / 1e9
        conditions: dict[str, Scalar] = {"trials": self._trials, "shown": str(self)}
        if math.isinf(found.value):
            ends, conditions["bound"] = [min(found.lower, most)] * 3, "at least"
        elif not found.value:
            ends, conditions["bound"] = [max(found.upper, least)] * 3, "less than"
        else:
            ends = [found.value, found.lower, min(found.upper, most)]
        value, lower, upper = (round(each * 1e9) for each in ends)
        quantity = "survival.longest_cut"
        return Row(subject, quantity, value, lower, upper, "ns", time, conditions)

    @property
    def longest(self) -> Threshold:
        """The longest duration so far, in s, with its interval."""
        return self._stairs.threshold()

    def __str__(self) -> str:
        found, least, most = self.longest, self._least / 1e9, self._most / 1e9
        if math.isinf(found.value):
            return f"at least {_seconds(min(found.lower, most))}"
        if not found.value:
            return f"less than {_seconds(max(found.upper, least))}"
        return (
            f"{_seconds(found.value)} (95 % interval {_seconds(found.lower)} to "
            f"{_seconds(min(found.upper, most))})"
        )


def _seconds(value: float) -> str:
    return format_duration(value * 1e9)
