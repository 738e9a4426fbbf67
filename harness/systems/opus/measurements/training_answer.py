"""Time that a training script spends on circuits in each step, measured and for other switches."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lightrig.harness.jobs.statistics.means import MeanEstimate, mean_of, predicted_mean
from lightrig.harness.record import Row, Scalar
from lightrig.harness.systems.opus.measurements.printed_numbers import NumbersComparison, compare
from lightrig.harness.systems.opus.measurements.training import (
    Shift,
    changes,
    computed_by_step,
    deviation_of_steps,
    mean_commands,
    passes_alike,
    shifts_by_step,
)
from lightrig.harness.systems.opus.measurements.training_failures import (
    FailureCost,
    failure_costs,
)
from lightrig.harness.systems.opus.planning.operations import ASYMMETRIC
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.runtime import Trained
from lightrig.harness.systems.opus.runtime.restarts import Failure
from lightrig.harness.systems.opus.runtime.training import Attempt
from lightrig.instruments.jobs.traffic.training import Done

MS = 1_000_000
SWITCHING = tuple(each * MS for each in (1, 3, 10, 30, 100, 300, 1000))
"""Switching times, in ns, for which the wait of a step is computed."""
SHARES = (
    *("computes", "waits for other ranks", "uses the front end", "waits for circuits"),
    "moves data",
)
"""Shares of a step, from the one that counts where no other does to the one that always counts."""
Interval = tuple[int, int]


def shares_by_step(trained: Trained, tables: Sequence[PhaseTable]) -> list[dict[str, float]]:
    """Return for each step but the first what a rank did for how long, in ns, as a mean over ranks.

    A step lasts from the end of one step's last operation to the end of the next one's. An
    operation waits for other ranks until the last of them wants it, for circuits until the last
    of them has begun, and moves data until its end; one that no rail carries uses the front end
    from when the last rank wants it. Of operations at once, data count before circuits, these
    before the front end and that before ranks; what is left is computation, and all else between
    operations. The shares of a step add up to its duration.
    """
    came: dict[tuple[str, int], int] = {}
    begun: dict[tuple[str, int], int] = {}
    for done in itertools.chain(*trained.operations.values(), *trained.front_end.values()):
        key = done.operation.group, done.operation.index
        came[key] = max(came.get(key, 0), done.asked.latest)
        begun[key] = max(begun.get(key, 0), done.began.latest)
    by_rank = []
    for rank, table in enumerate(tables):
        operations = trained.operations[rank]
        bounds = [
            (operations[begin - 1].ended.latest, operations[end - 1].ended.latest)
            for begin, end in table.steps_in(len(operations))[1:]
        ]
        kinds: dict[str, list[Interval]] = {kind: [] for kind in SHARES[1:]}
        for done in (*operations, *trained.front_end.get(rank, ())):
            key = done.operation.group, done.operation.index
            asked, ended = done.asked.latest, done.ended.latest
            there = min(max(came[key], asked), ended)
            kinds["waits for other ranks"].append((asked, there))
            if done.operation.group.startswith("front end"):
                kinds["uses the front end"].append((there, ended))
            else:
                ready = min(max(begun[key], there), ended)
                kinds["waits for circuits"].append((there, ready))
                kinds["moves data"].append((ready, ended))
        by_rank.append([_shares(kinds, step) for step in bounds])
    return [
        {kind: sum(each[kind] for each in step) / len(by_rank) for kind in SHARES}
        for step in zip(*by_rank, strict=False)
    ]


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """One change of circuits in a usual step, as all steps had it.

    to: the parallelism whose phase begins. lines: of the script that want its first operations.
    source: the first of them. waits: of its first operations, in ns.
    """

    to: str
    lines: tuple[int, ...]
    source: str
    waits: MeanEstimate


@dataclass(frozen=True, slots=True)
class FrontEndUse:
    """Operations of one kind that no rail carries, of the whole run.

    count and size, in bytes, of all ranks. time: of the rank that they took longest, in ns.
    lines: of the script.
    """

    kind: str
    count: int
    size: int
    time: int
    lines: tuple[int, ...]


def phase_changes(steps: Sequence[Sequence[Shift]], source: Sequence[str]) -> list[PhaseChange]:
    """Return the changes of a usual step in their order; nothing for fewer than two `steps`."""
    if len(steps) < 2:
        return []
    found = []
    for each in zip(*steps, strict=False):
        lines = tuple(sorted({line for shift in each for line in shift.lines}))
        dimension = each[0].dimension
        found.append(
            PhaseChange(
                "pipeline" if dimension == ASYMMETRIC else f"data {dimension}",
                lines,
                source[lines[0] - 1].strip() if lines else "",
                mean_of([shift.waited for shift in each]),
            )
        )
    return found


def front_end_uses(trained: Trained) -> list[FrontEndUse]:
    """Return what no rail carries, kind by kind."""
    kinds: dict[str, list[tuple[int, Done]]] = {}
    for rank, operations in sorted(trained.front_end.items()):
        for done in operations:
            kinds.setdefault(done.operation.kind.strip("_"), []).append((rank, done))
    found = []
    for kind, each in kinds.items():
        took: Counter[int] = Counter()
        for rank, done in each:
            took[rank] += done.ended.latest - done.asked.latest
        lines = {done.line for _, done in each if done.line is not None}
        size = sum(done.operation.size for _, done in each)
        found.append(FrontEndUse(kind, len(each), size, max(took.values()), tuple(sorted(lines))))
    return found


@dataclass(frozen=True)
class TrainingAnswer:
    """Cost of circuits to a training job.

    Attributes:
        ranks, stages, rails: of the job.
        mode: when circuits are requested.
        simulated: parts of the bench that are simulated.
        comparison: of what the ranks printed on the giant ring and on circuits.
        operations, phases: of a usual step, on the first rank.
        steps: that were like each other. unlike: numbers of others and how many operations they
            have, on the first rank; what follows the last step counts as one more.
        changes: of circuits in a usual step; like `waited`, `exposed` and `hidden` only where all
            ranks pass through the same phases.
        front_end: what no rail carries.
        step, shares, waited: means over steps, in ns; none for fewer than two.
        change: mean over changes of circuits, from the command until links were back, in ns.
        exposed: wait of a step by switching time, both in ns, computed, in `mode`; the interval
            is that of another run's mean.
        hidden: the part of a step's changes that passes before operations are wanted, by
            switching time, computed by the same replay.
        stamps: greatest uncertainty of a rank's stamps on the bench's clock, in ns.
        incidents: retries, fallbacks and refused changes, and faults that were made.
        failures: what each failure cost that a restart followed. All else but `comparison` is of
            the steps since the last one.
    """

    ranks: int
    stages: int
    rails: int
    mode: str
    simulated: tuple[str, ...]
    comparison: NumbersComparison
    operations: int
    phases: int
    steps: int
    unlike: tuple[tuple[int, int], ...]
    changes: tuple[PhaseChange, ...]
    front_end: tuple[FrontEndUse, ...]
    step: MeanEstimate | None
    shares: Mapping[str, MeanEstimate]
    waited: MeanEstimate | None
    change: MeanEstimate | None
    exposed: Mapping[int, MeanEstimate]
    hidden: Mapping[int, MeanEstimate]
    stamps: int
    incidents: tuple[str, ...]
    failures: tuple[FailureCost, ...] = ()

    @property
    def as_printed_before(self) -> bool:
        """Whether the ranks printed the same numbers in both runs, and printed any."""
        return bool(self.comparison.count) and not self.comparison.different

    def document(self) -> dict[str, Any]:
        """Return all of it as JSON has it: times in ns, each mean with its interval and n."""
        return asdict(self) | {
            name: [{"switching_ns": switching, **asdict(wait)} for switching, wait in curve.items()]
            for name, curve in (("exposed", self.exposed), ("hidden", self.hidden))
        }

    def rows(self, at: int, about: Mapping[str, Scalar]) -> Iterator[Row]:
        """Yield rows that limits can judge: means over steps with their intervals."""
        means = {
            "train.step": self.step,
            "train.front_end": self.shares.get("uses the front end"),
            "train.exposed_wait": self.waited,
        }
        for quantity, mean in means.items():
            if mean is None:
                continue
            value, lower, upper = map(round, (mean.value, mean.lower, mean.upper))
            yield Row("job", quantity, value, lower, upper, "ns", at, {**about, "n": mean.n})

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
            again = f"; {compared.again} were printed again, and equal" if compared.again else ""
            yield (f"results   {compared.count} numbers, each equal to that on the ring of all "
                   f"ranks{again}")  # fmt: skip
        for failure in self.failures:
            yield from failure.lines()
        if self.failures:
            yield "          what follows is of the steps since the last restart"
        if self.step is None:
            yield "step      too few steps since then for a mean with an interval"
        else:
            yield f"step      {self.step}, of which a rank, in the mean over ranks,"
        for kind, share in self.shares.items():
            yield f"          {kind:<21} {share}"
        yield f"steps     {self.steps} alike" + "".join(
            f"; {'after the last one' if number > self.steps + len(self.unlike) - 1 else number}: "
            f"{count} operations, unlike the others"
            for number, count in self.unlike
        )
        yield f"circuits  {self.phases} changes of phase and {self.operations} operations a step"
        if self.change is not None:
            yield f"          a change takes {self.change}"
        if self.waited is not None:
            yield f"          the phases of a step wait {self.waited}, measured:"
        else:
            yield "          what phases wait is not stated: ranks pass through different phases"
        for change in self.changes:
            lines = ", ".join(map(str, change.lines)) or "unknown"
            yield f"          to {change.to:<8} line {lines}: {change.source}"
            yield f"                      waits {change.waits}"
        if self.changes:
            most = max(self.changes, key=lambda change: change.waits.value)
            lines = ", ".join(map(str, most.lines)) or "unknown"
            yield f"          most is saved where the change to {most.to} at line {lines} is hidden"
        if self.exposed:
            yield (f"          would wait in {self.mode} mode, and hide, computed by a replay of "
                   "this run, where a change takes")  # fmt: skip
            for switching, wait in self.exposed.items():
                hides = self.hidden[switching]
                yield f"          {switching / MS:6.4g} ms: {wait}; {hides.value / MS:.1f} ms"
        for use in self.front_end:
            lines = ", ".join(map(str, use.lines)) or "unknown"
            yield (f"front end {use.count} x {use.kind}, {use.size} bytes, {use.time / MS:.1f} ms "
                   f"of a rank, line {lines}")  # fmt: skip
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
    source: str = "",
    failures: Sequence[Failure] = (),
    faults: Sequence[str] = (),
    last: Attempt | None = None,
) -> TrainingAnswer:
    """Return what a run on circuits cost, beside the profiled run on the ring of all ranks.

    failures: that restarts followed, and `last` the attempt that ended well. faults: as made.
    """
    assert trained.rails is not None
    attempts = [failure.attempt.listener.lines for failure in failures]
    comparison = compare(pattern, ring.printed, *attempts, trained.printed)
    count = len(ring.steps.get(0, ()))
    shares = shares_by_step(trained, tables)
    shares = shares if len(shares) > 1 else []
    changed = changes(trained)
    change = mean_of(changed) if len(changed) > 1 else None
    steps = shifts_by_step(trained, tables) if passes_alike(trained, tables) else []
    waited = [sum(shift.waited for shift in step) for step in steps]
    # The measured time is among them: the computed wait can be compared with the measured one.
    switchings = sorted({*SWITCHING, *([round(change.value)] if change else [])})
    measured = round(change.value) if change else 0
    computed = {
        switching: computed_by_step(
            trained, tables, round((switching - measured) / mean_commands(trained))
        )
        for switching in (switchings if change and len(waited) > 1 else [])
    }
    alike = deviation_of_steps(trained, tables)
    return TrainingAnswer(
        ranks=len(tables),
        stages=trained.rails.job.stages,
        rails=trained.rails.job.rails,
        mode=mode,
        simulated=tuple(simulated),
        comparison=comparison,
        operations=len(tables[0].operations),
        phases=tables[0].shifts,
        steps=len(tables[0].steps_in(len(trained.operations[0]))),
        unlike=tables[0].unlike,
        changes=tuple(phase_changes(steps, source.splitlines())),
        front_end=tuple(front_end_uses(trained)),
        step=mean_of([round(sum(step.values())) for step in shares]) if shares else None,
        shares={
            kind: mean_of([round(step[kind]) for step in shares])
            for kind in (SHARES if shares else ())
        },
        waited=mean_of(waited) if len(waited) > 1 else None,
        change=change,
        exposed={
            switching: predicted_mean([wait for wait, _ in steps], alike)
            for switching, steps in computed.items()
        },
        hidden={
            switching: mean_of([hidden for _, hidden in steps])
            for switching, steps in computed.items()
        },
        stamps=max(
            done.asked.latest - done.asked.earliest
            for operations in trained.operations.values()
            for done in operations
        ),
        incidents=(*map(str, trained.rails.journal.incidents), *faults),
        failures=tuple(failure_costs(failures, last, count, comparison.begins) if last else ()),
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
