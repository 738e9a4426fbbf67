"""Results of a training job on photonic rails, as rows and as plain numbers."""

import contextlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.bench.fabric import Applied
from lightrig.harness.measure.light import LightWatch, watch_until_complete
from lightrig.harness.record import Row, Scalar
from lightrig.harness.systems.opus.measurements.replay import (
    Replay,
    Waits,
    confirmed_changes,
    replayed,
    waits_of,
)
from lightrig.harness.systems.opus.planning.operations import ASYMMETRIC, Operation
from lightrig.harness.systems.opus.planning.run_events import Ended, Rewiring
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.runtime.training import Trained, TrainingJob
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import PowerMonitor
from lightrig.testbeds import Plan

_LIGHT_TIMEOUT = 500_000_000
"""Timeout of a change that no reading shows, in ns; ranks wait meanwhile."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Loss of a step, as a rank printed it, and when."""

    rank: int
    step: int
    value: float
    at: Span


def exposed(reconfiguration: int, window: int) -> int:
    """Return the part of a reconfiguration that its window does not hide, in ns (Opus §4.2)."""
    return max(0, reconfiguration - max(0, window))


def losses(trained: Trained) -> list[Loss]:
    """The lines `step N loss X` of all ranks, a step after the other."""
    found = []
    for rank, lines in trained.printed.items():
        for at, line in lines:
            fields = line.split()
            if len(fields) == 4 and (fields[0], fields[2]) == ("step", "loss"):
                found.append(Loss(rank, int(fields[1]), float(fields[3]), at))
    return sorted(found, key=lambda loss: (loss.step, loss.rank))


def step_times(trained: Trained) -> list[Span]:
    """Return the duration of each step but the first, until the last rank had its loss, in ns."""
    ends: dict[int, list[Span]] = {}
    for loss in losses(trained):
        ends.setdefault(loss.step, []).append(loss.at)
    whole = [
        Span(max(a.earliest for a in each), max(a.latest for a in each)) for each in ends.values()
    ]
    return [
        Span(after.earliest - before.latest, after.latest - before.earliest)
        for before, after in itertools.pairwise(whole)
    ]


def reconfigurations(trained: Trained, tables: Sequence[PhaseTable]) -> dict[int, list[int]]:
    """For each pipeline stage, how often its circuits passed to another parallelism in each step.

    Counted from what the switches confirmed; a step ends with its last operation on the stage.
    """
    rails = trained.rails
    assert rails is not None
    job = rails.job
    owners = {
        circuit: group
        for wiring in rails.wirings
        for name, circuits in wiring.of_group.items()
        for circuit, group in ((circuit, job.groups[name]) for circuit in circuits)
    }
    counts: dict[int, list[int]] = {}
    for stage in range(job.stages):
        ranks = [rank for rank, one in enumerate(job.stage_of) if one == stage]
        ends = _step_ends(trained, tables, ranks)
        counts[stage] = [0] * len(ends)
        first = tables[ranks[0]].at(0)
        assert first is not None
        owner = first.dimension
        for change, at in _confirmed(trained):
            made = {
                owners[circuit].dimension
                for circuit in change.add
                if circuit in owners and set(owners[circuit].ranks) & set(ranks)
            }
            if made and made != {owner} and (step := _step(ends, at)) is not None:
                (owner,) = made
                counts[stage][step] += 1
    return counts


@dataclass(frozen=True, slots=True)
class Shift:
    """The first operations of a phase, as those that took part in each had to wait.

    dimension: what the circuits passed to. position: of its first operation on the first rank.
    lines: of the script that wanted the first operations, where they are known.
    flows: for each operation its window and its wait, in ns: from the end of the phase before
    until its last rank wanted it, and from then until it ran. names: of these operations.
    """

    dimension: int
    position: int
    lines: tuple[int, ...]
    flows: tuple[tuple[int, int], ...]
    names: tuple[str, ...]

    @property
    def waited(self) -> int:
        """Longest wait, in ns."""
        return max(wait for _, wait in self.flows)

    def exposed(self, change: int) -> int:
        """Return the part of a change of `change` ns that no window hides, in ns."""
        return max(exposed(change, window) for window, _ in self.flows)


def shifts(
    trained: Trained, tables: Sequence[PhaseTable], replay: Waits | None = None
) -> list[Shift]:
    """Every change from one phase to the next; each rank has as many phases as the others.

    replay: waits in the place of the run's.
    """
    assert trained.rails is not None
    journal = trained.rails.journal
    waits = waits_of(journal) if replay is None else replay
    ranks_of: defaultdict[str, list[int]] = defaultdict(list)
    for rank, name in waits:
        ranks_of[name].append(rank)
    ended = [one for one in journal.events if isinstance(one, Ended)]
    ends = {(one.rank, one.operation): one.at for one in ended}
    phases = {rank: _phases(trained, rank, table) for rank, table in enumerate(tables)}
    found = []
    positions = dict.fromkeys(phases, 0)
    for number in range(1, min(map(len, phases.values()))):
        for rank, of_rank in phases.items():
            positions[rank] += len(of_rank[number - 1])
        lines = {trained.operations[rank][at].line for rank, at in positions.items()}
        before = [
            ends[rank, str(operation)]
            for rank, of_rank in phases.items()
            for operation in of_rank[number - 1]
        ]
        flows = []
        names = tuple(dict.fromkeys(str(of_rank[number][0]) for of_rank in phases.values()))
        for name in names:
            # Also ranks that begin the phase with another operation, as a stage between two does.
            each = [waits[rank, name] for rank in ranks_of[name]]
            came = max(wait.at for wait in each)
            start = max(wait.at + wait.length for wait in each)
            flows.append((came - max(before), start - came))
        found.append(
            Shift(
                phases[0][number][0].dimension,
                positions[0],
                tuple(sorted(line for line in lines if line is not None)),
                tuple(flows),
                names,
            )
        )
    return found


def waits_by_step(trained: Trained, tables: Sequence[PhaseTable]) -> list[int]:
    """Return what the first operations of the phases of each whole step waited, summed up, in ns.

    The phases of the first step are left out: its first one waits for no circuit.
    """
    return [sum(shift.waited for shift in step) for step in shifts_by_step(trained, tables)]


def computed_by_step(
    trained: Trained, tables: Sequence[PhaseTable], longer: int
) -> list[tuple[int, int]]:
    """Return what `waits_by_step` would, and what of changes is hidden, in ns, for each step.

    Both by one replay, as if each command had taken `longer` ns more, or less. Hidden is what
    passes of a change before an operation is wanted: of the one that waits longest.
    """
    assert trained.rails is not None
    replay = replayed(trained.rails.journal, longer)
    return [
        (sum(shift.waited for shift in step), sum(_hidden(shift, replay) for shift in step))
        for step in shifts_by_step(trained, tables, replay.waits)
    ]


def _hidden(shift: Shift, replay: Replay) -> int:
    pairs = zip(shift.flows, shift.names, strict=True)
    waits = [(wait, replay.hidden.get(name, 0)) for (_, wait), name in pairs]
    longest = max(wait for wait, _ in waits)
    return min(hidden for wait, hidden in waits if wait == longest)


def passes_alike(trained: Trained, tables: Sequence[PhaseTable]) -> bool:
    """Whether all ranks pass through the same phases: `shifts` counts them in all at once."""
    every = [_phases(trained, rank, table) for rank, table in enumerate(tables)]
    return len({tuple(phase[0].dimension for phase in phases) for phases in every}) == 1


def shifts_by_step(
    trained: Trained, tables: Sequence[PhaseTable], replay: Waits | None = None
) -> list[list[Shift]]:
    """Return the phase changes of each usual step but the first; `replay` as for `shifts`."""
    found = shifts(trained, tables, replay)
    return [
        [shift for shift in found if begin <= shift.position < end]
        for begin, end in tables[0].steps_in(len(trained.operations[0]))[1:]
    ]


def deviation_of_steps(trained: Trained, tables: Sequence[PhaseTable]) -> float:
    """Return by how much steps differ whose changes all take a standard deviation more, in ns.

    So much another run of a busier machine may differ as a whole. Changes of as many commands are
    compared with each other.
    """
    lengths: defaultdict[int, list[int]] = defaultdict(list)
    for change, at in _confirmed(trained):
        lengths[change.commands].append(at - change.at)
    count = sum(map(len, lengths.values()))
    squares = sum(pvariance(each) * len(each) for each in lengths.values())
    steps = len(tables[0].steps_in(len(trained.operations[0])))
    return math.sqrt(squares / max(1, count - len(lengths))) * count / steps


def control(trained: Trained, tables: Sequence[PhaseTable]) -> list[int]:
    """Return an upper bound of the control time in each step, in ns.

    That is how long operations waited for their word, on the rank's own clock and with the
    messages both ways, after their last rank had come: of the rank whose sum is the greatest.
    """
    asked: dict[tuple[str, int], list[int]] = {}
    begun: dict[tuple[str, int], list[int]] = {}
    for operations in trained.operations.values():
        for done in operations:
            key = done.operation.group, done.operation.index
            asked.setdefault(key, []).append(done.asked.latest)
            begun.setdefault(key, []).append(done.began.latest)
    waited = {key: max(begun[key]) - max(asked[key]) for key in asked}
    sums: dict[int, list[int]] = {}
    for rank, table in enumerate(tables):
        keys = [(one.operation.group, one.operation.index) for one in trained.operations[rank]]
        for step, (begin, end) in enumerate(table.steps_in(len(keys))):
            sums.setdefault(step, []).append(sum(waited[key] for key in keys[begin:end]))
    return [max(each) for _, each in sorted(sums.items())]


def changes(trained: Trained) -> list[int]:
    """Return the duration of each change of circuits, from command to restored links, in ns."""
    return [at - change.at for change, at in _confirmed(trained)]


def mean_commands(trained: Trained) -> float:
    """Return how many commands a change of circuits took, as a mean over all of them."""
    return fmean(change.commands for change, _ in _confirmed(trained))


def rows(trained: Trained, about: Mapping[str, Scalar]) -> Iterator[Row]:
    """`training.loss` of each rank and step, and `training.step` from one to the next."""
    for loss in losses(trained):
        at, conditions = loss.at.earliest, {**about, "step": loss.step}
        value = loss.value
        yield Row(f"rank {loss.rank}", "training.loss", value, value, value, "1", at, conditions)
    began = losses(trained)[0].at.earliest
    for number, took in enumerate(step_times(trained), 1):
        middle = (took.earliest + took.latest) // 2
        conditions = {**about, "event": number}
        yield Row(
            "job", "training.step", middle, took.earliest, took.latest, "ns", began, conditions
        )


def timeline(trained: Trained, job: TrainingJob) -> Iterator[Row]:
    """Yield intervals of traffic, switches, light and carriers, from the first of them on.

    `rails.traffic` of a rank's operations, `rails.switch` of a switch's changes, `rails.light` of
    an egress without light, and `rails.carrier` of a NIC port without carrier.
    """
    found: list[tuple[str, str, Span, dict[str, Scalar]]] = []
    for rank, operations in trained.operations.items():
        for done in operations:
            dimension = job.job.groups[done.operation.group].dimension
            kind = "PP" if dimension == ASYMMETRIC else f"DP {dimension}"
            between = Span(done.began.latest, done.ended.latest)
            about: dict[str, Scalar] = {"of": kind, "bytes": done.operation.size}
            found.append((f"rank {rank}", "rails.traffic", between, about))
    for change, at in _confirmed(trained):
        found.append((change.switch, "rails.switch", Span(change.at, at), {}))
    dark = job.fabric.dark if isinstance(job.fabric, LitFabric) else []
    found += [(str(port), "rails.carrier", between, {}) for port, between in job.outages()]
    found += [(egress, "rails.light", between, {}) for egress, between in dark]
    begun = min(between.earliest for _, kind, between, _ in found if kind == "rails.traffic")
    for subject, kind, between, conditions in found:
        if between.latest > begun:
            length = between.latest - between.earliest
            start = between.earliest - begun
            yield Row(
                subject, kind, length, length, length, "ns", begun, {**conditions, "from_ns": start}
            )


class LitFabric(Fabric):
    """A fabric that can follow the light of its changes by the switches' own monitors.

    `dark` are the egresses that lost their light while that was so, from when until when. A
    change takes some windows of the monitors longer then.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.dark: list[tuple[str, Span]] = []
        self._lit = False

    @contextlib.contextmanager
    def lit(self) -> Iterator[None]:
        """Meanwhile follow the light."""
        self._lit, self.dark = True, []
        try:
            yield
        finally:
            self._lit = False

    def apply(self, plan: Plan, *, check_budget: bool = True) -> Applied:
        """See `Fabric.apply`."""
        if not self._lit:
            return super().apply(plan, check_budget=check_budget)
        transition = self.prepare(plan, check_budget=check_budget)
        watches = {}
        for name, change in transition.changes.items():
            switch = self.bench.switches[name]
            if change.add and isinstance(switch, PowerMonitor):
                egresses = {circuit.egress for circuit in change.add}
                leaving = egresses & {circuit.egress for circuit in change.remove}
                watches[name] = LightWatch(
                    monitor=switch,
                    leaving=leaving,
                    coming=egresses,
                    latency=self.bench.testbed.switches[name].monitor_latency_ns,
                )
        for watch in watches.values():
            watch.take()
        sent = transition.begin()
        watch_until_complete(self.bench, list(watches.values()), _LIGHT_TIMEOUT)
        applied = Applied(sent, transition.acknowledged())
        transition.verify()
        for name, watch in watches.items():
            lost, back = watch.losses_of_signal(sent), watch.recoveries(sent)
            lost_at, back_at = watch.loss_points(lost), watch.recovery_points(back)
            for egress, until in back.items():
                since = lost_at.get(egress, sum(lost.get(egress, sent)) // 2)
                end = back_at.get(egress, sum(until) // 2)
                self.dark.append((f"{name}.{egress}", Span(since, max(since, end))))
        return applied


def _confirmed(trained: Trained) -> Iterator[tuple[Rewiring, int]]:
    assert trained.rails is not None
    return confirmed_changes(trained.rails.journal)


def _step_ends(trained: Trained, tables: Sequence[PhaseTable], ranks: Sequence[int]) -> list[int]:
    return [
        max(trained.operations[rank][end - 1].ended.latest for rank in ranks)
        for _, end in tables[ranks[0]].steps_in(len(trained.operations[ranks[0]]))
    ]


def _step(ends: Sequence[int], at: int) -> int | None:
    return next((step for step, end in enumerate(ends) if at <= end), None)


def _phases(trained: Trained, rank: int, table: PhaseTable) -> list[list[Operation]]:
    phases: list[list[Operation]] = []
    for position in range(len(trained.operations[rank])):
        operation = table.at(position)
        assert operation is not None
        if not phases or phases[-1][-1].dimension != operation.dimension:
            phases.append([])
        phases[-1].append(operation)
    return phases
