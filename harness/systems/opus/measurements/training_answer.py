"""Time that a training script spends on circuits in each step, measured and for other switches."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lightrig.harness.systems.opus.measurements.training import (
    MeanEstimate,
    changes,
    mean_of,
    shifts,
    waits_by_step,
)
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.runtime import Trained

MS = 1_000_000
SWITCHING = tuple(each * MS for each in (1, 3, 10, 30, 100, 300, 1000))
"""Switching times, in ns, for which the wait of a step is computed."""
SHARES = ("computes", "waits for other ranks", "waits for circuits", "moves data")
"""Shares of a step, from the one that counts where no other does to the one that always counts."""
Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Numbers that ranks print, compared one by one between two runs of one script.

    pattern: whose group, or whole match, is a number. count: how many there were in the first run.
    different: rank, what it printed first, and then; "" for what one run lacks.
    """

    pattern: str
    count: int
    different: tuple[tuple[int, str, str], ...]


def compare(pattern: str, ring: Trained, trained: Trained) -> Comparison:
    """Compare what all ranks printed in two runs, as texts: equal to the last digit."""
    count, different = 0, []
    for rank in sorted({*ring.printed, *trained.printed}):
        first, then = (
            [
                found[found.lastindex or 0]
                for _, line in run.printed.get(rank, ())
                for found in re.finditer(pattern, line)
            ]
            for run in (ring, trained)
        )
        count += len(first)
        pairs = itertools.zip_longest(first, then, fillvalue="")
        different += [(rank, a, b) for a, b in pairs if a != b]
    return Comparison(pattern, count, tuple(different))


def shares_by_step(trained: Trained, tables: Sequence[PhaseTable]) -> list[dict[str, float]]:
    """Return for each step but the first what a rank did for how long, in ns, as a mean over ranks.

    A step lasts from the end of one step's last operation to the end of the next one's. An
    operation waits for other ranks until the last of them wants it, for circuits until the last
    of them has begun, and moves data until its end. Of operations at once, data count before
    circuits and these before ranks; what is left is computation, and all else between operations.
    The shares of a step add up to its duration.
    """
    came: dict[tuple[str, int], int] = {}
    begun: dict[tuple[str, int], int] = {}
    for done in itertools.chain.from_iterable(trained.operations.values()):
        key = done.operation.group, done.operation.index
        came[key] = max(came.get(key, 0), done.asked.latest)
        begun[key] = max(begun.get(key, 0), done.began.latest)
    by_rank = []
    for rank, table in enumerate(tables):
        operations, count = trained.operations[rank], len(table.operations)
        ends = [done.ended.latest for done in operations[len(table.before) + count - 1 :: count]]
        kinds: dict[str, list[Interval]] = {kind: [] for kind in SHARES[1:]}
        for done in operations:
            key = done.operation.group, done.operation.index
            asked, ended = done.asked.latest, done.ended.latest
            there = min(max(came[key], asked), ended)
            ready = min(max(begun[key], there), ended)
            for kind, between in zip(
                kinds, ((asked, there), (there, ready), (ready, ended)), strict=True
            ):
                kinds[kind].append(between)
        by_rank.append([_shares(kinds, step) for step in itertools.pairwise(ends)])
    return [
        {kind: sum(each[kind] for each in step) / len(by_rank) for kind in SHARES}
        for step in zip(*by_rank, strict=False)
    ]


def exposed_by_step(trained: Trained, tables: Sequence[PhaseTable], switching: int) -> list[int]:
    """Return what the phases of each whole step would wait at a switching time, in ns.

    Computed from the windows between phases in this run, as `waits_by_step` counts phases.
    """
    each = tables[0].shifts
    exposed = [shift.exposed(switching) for shift in shifts(trained, tables)]
    return [sum(exposed[at : at + each]) for at in range(each - 1, len(exposed) - each + 1, each)]


@dataclass(frozen=True)
class TrainingAnswer:
    """Cost of circuits to a training job.

    Attributes:
        ranks, stages, rails: of the job.
        mode: when circuits are requested.
        simulated: parts of the bench that are simulated.
        comparison: of what the ranks printed on the giant ring and on circuits.
        operations, phases: of a step, on the first rank.
        step, shares, waited: means over steps, in ns.
        change: mean over changes of circuits, from the command until links were back, in ns.
        exposed: wait of a step by switching time, both in ns, computed.
        stamps: greatest uncertainty of a rank's stamps on the bench's clock, in ns.
        incidents: retries, fallbacks and refused changes.
    """

    ranks: int
    stages: int
    rails: int
    mode: str
    simulated: tuple[str, ...]
    comparison: Comparison
    operations: int
    phases: int
    step: MeanEstimate
    shares: Mapping[str, MeanEstimate]
    waited: MeanEstimate | None
    change: MeanEstimate | None
    exposed: Mapping[int, MeanEstimate]
    stamps: int
    incidents: tuple[str, ...]

    @property
    def as_printed_before(self) -> bool:
        """Whether the ranks printed the same numbers in both runs, and printed any."""
        return bool(self.comparison.count) and not self.comparison.different

    def document(self) -> dict[str, Any]:
        """Return all of it as JSON has it: times in ns, each mean with its interval and n."""
        return asdict(self) | {"exposed": [
            {"switching_ns": switching, **asdict(wait)} for switching, wait in self.exposed.items()
        ]}  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Yield what a person reads, the result first."""
        compared = self.comparison
        if not compared.count:
            yield (f"results   NOT compared: no rank printed a number that {compared.pattern!r} "
                   "finds; state another pattern with --results")  # fmt: skip
        elif compared.different:
            yield (f"results   {len(compared.different)} of {compared.count} numbers DIFFER from "
                   "those on the ring of all ranks:")  # fmt: skip
            for rank, first, then in compared.different[:4]:
                on_ring = first or "nothing"
                yield f"          rank {rank} printed {then or 'nothing'}, on the ring {on_ring}"
        else:
            yield f"results   {compared.count} numbers, each equal to that on the ring of all ranks"
        yield f"step      {self.step}, of which a rank, in the mean over ranks,"
        for kind, share in self.shares.items():
            yield f"          {kind:<21} {share}"
        yield f"circuits  {self.phases} changes of phase and {self.operations} operations a step"
        if self.change is not None:
            yield f"          a change takes {self.change}"
        if self.waited is not None:
            yield f"          the phases of a step wait {self.waited}, measured"
        if self.exposed:
            yield "          and would wait, computed from this run's windows, where a change takes"
            for switching, wait in self.exposed.items():
                yield f"          {switching / MS:6.4g} ms: {wait}"
        if self.stamps:
            yield f"stamps    of servers are uncertain by up to {self.stamps / MS:.3f} ms"
        if self.simulated:
            yield f"simulated {', '.join(self.simulated)}"
        for incident in self.incidents:
            yield f"incident  {incident}"


def answer(
    ring: Trained,
    trained: Trained,
    tables: Sequence[PhaseTable],
    *,
    mode: str,
    simulated: Sequence[str],
    pattern: str,
) -> TrainingAnswer:
    """Return what a run on circuits cost, beside the profiled run on the ring of all ranks.

    Raises `ValueError` for a script of fewer than three steps.
    """
    assert trained.rails is not None
    shares = shares_by_step(trained, tables)
    changed = changes(trained)
    change = mean_of(changed) if len(changed) > 1 else None
    waited = waits_by_step(trained, tables)
    # The measured time is among them: the computed wait can be compared with the measured one.
    switchings = sorted({*SWITCHING, *([round(change.value)] if change else [])})
    return TrainingAnswer(
        ranks=len(tables),
        stages=trained.rails.job.stages,
        rails=trained.rails.job.rails,
        mode=mode,
        simulated=tuple(simulated),
        comparison=compare(pattern, ring, trained),
        operations=len(tables[0].operations),
        phases=tables[0].shifts,
        step=mean_of([round(sum(step.values())) for step in shares]),
        shares={kind: mean_of([round(step[kind]) for step in shares]) for kind in SHARES},
        waited=mean_of(waited) if len(waited) > 1 else None,
        change=change,
        exposed={
            switching: mean_of(exposed_by_step(trained, tables, switching))
            for switching in (switchings if len(waited) > 1 else ())
        },
        stamps=max(
            done.asked.latest - done.asked.earliest
            for operations in trained.operations.values()
            for done in operations
        ),
        incidents=tuple(map(str, trained.rails.journal.incidents)),
    )


def _shares(kinds: Mapping[str, Sequence[Interval]], step: Interval) -> dict[str, float]:
    """Divide a step among kinds of intervals, of which a later one counts before an earlier."""
    begin, end = step
    covered: list[Interval] = []
    shares: dict[str, float] = {}
    for kind in reversed(list(kinds)):
        inside = [(max(a, begin), min(b, end)) for a, b in kinds[kind]]
        before = _length(covered)
        covered += [(a, b) for a, b in inside if a < b]
        shares[kind] = _length(covered) - before
    return shares | {SHARES[0]: end - begin - _length(covered)}


def _length(intervals: Sequence[Interval]) -> int:
    """Return how much time intervals cover together."""
    total, until = 0, None
    for begin, end in sorted(intervals):
        if until is None or begin > until:
            total, until = total + end - begin, end
        elif end > until:
            total, until = total + end - until, end
    return total
