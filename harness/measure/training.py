"""What a training job on photonic rails has shown, as rows and as plain numbers."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.bench import Bench, Fabric
from harness.bench.opus import Trained, TrainingJob, Wait
from harness.fabrics.opus.auditor import Confirmed, Ended, Rewiring
from harness.fabrics.opus.operations import ASYMMETRIC, Operation
from harness.fabrics.opus.schedule import PhaseTable
from harness.fabrics.opus.step_time import exposed
from harness.measure.light import LightWatch, watch_until_complete
from harness.record import Row, Scalar
from instruments.capabilities import PowerMonitor
from instruments.clock import Span
from testbeds import Plan

_LIGHT_TIMEOUT = 500_000_000
"""How long a change that no reading has shown is looked for, in ns: ranks wait meanwhile."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What a rank has printed of a step, and when."""

    rank: int
    step: int
    value: float
    at: Span


def losses(trained: Trained) -> list[Loss]:
    """The lines `step N loss X` of all ranks, a step after the other."""
    found = []
    for rank, lines in trained.said.items():
        for at, line in lines:
            words = line.split()
            if len(words) == 4 and (words[0], words[2]) == ("step", "loss"):
                found.append(Loss(rank, int(words[1]), float(words[3]), at))
    return sorted(found, key=lambda loss: (loss.step, loss.rank))


def step_times(trained: Trained) -> list[Span]:
    """How long each step took but the first one, until the last rank had its loss, in ns."""
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
        ranks = [rank for rank, own in enumerate(job.stage_of) if own == stage]
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

    dimension: what the circuits passed to. flows: for each operation its window and its wait, in
    ns: from the end of the phase before until its last rank wanted it, and from then until it ran.
    """

    dimension: int
    flows: tuple[tuple[int, int], ...]

    @property
    def waited(self) -> int:
        """How long the one waited that waited longest, in ns."""
        return max(wait for _, wait in self.flows)

    def exposed(self, change: int) -> int:
        """What is left of a change of `change` ns that begins when the phase before has ended."""
        return max(exposed(change, window) for window, _ in self.flows)


def shifts(trained: Trained, tables: Sequence[PhaseTable]) -> list[Shift]:
    """Every change from one phase to the next; each rank has as many phases as the others."""
    assert trained.rails is not None
    journal = trained.rails.journal
    waits = {(wait.rank, wait.operation): wait for wait in journal.waits}
    ended = [one for one in journal.happenings if isinstance(one, Ended)]
    ends = {(one.rank, one.operation): one.at for one in ended}
    phases = {rank: _phases(trained, rank, table) for rank, table in enumerate(tables)}
    found = []
    for number in range(1, min(map(len, phases.values()))):
        before = [ends[rank, str(op)] for rank, own in phases.items() for op in own[number - 1]]
        firsts: dict[str, list[Wait]] = {}
        for rank, own in phases.items():
            firsts.setdefault(str(own[number][0]), []).append(waits[rank, str(own[number][0])])
        flows = []
        for each in firsts.values():
            came = max(wait.at for wait in each)
            start = max(wait.at + wait.length for wait in each)
            flows.append((came - max(before), start - came))
        found.append(Shift(phases[0][number][0].dimension, tuple(flows)))
    return found


def control(trained: Trained, tables: Sequence[PhaseTable]) -> list[int]:
    """What control took of each step at most, in ns.

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
        before, count = len(table.before), len(table.operations)
        own = [(one.operation.group, one.operation.index) for one in trained.operations[rank]]
        for step, first in enumerate(range(before, len(own) - count + 1, count)):
            sums.setdefault(step, []).append(sum(waited[key] for key in own[first : first + count]))
    return [max(each) for _, each in sorted(sums.items())]


def changes(trained: Trained) -> list[int]:
    """How long each change of circuits took, from the word until links were back, in ns."""
    return [at - change.at for change, at in _confirmed(trained)]


def rows(trained: Trained, about: Mapping[str, Scalar]) -> Iterator[Row]:
    """`training.loss` of each rank and step, and `training.step` from one to the next."""
    for loss in losses(trained):
        at, held = loss.at.earliest, {**about, "step": loss.step}
        value = loss.value
        yield Row(f"rank {loss.rank}", "training.loss", value, value, value, "1", at, held)
    began = losses(trained)[0].at.earliest
    for number, took in enumerate(step_times(trained), 1):
        middle = (took.earliest + took.latest) // 2
        held = {**about, "event": number}
        yield Row("job", "training.step", middle, took.earliest, took.latest, "ns", began, held)


def timeline(trained: Trained, job: TrainingJob) -> Iterator[Row]:
    """Who did what when: intervals, whose `from_ns` counts from the first of them.

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
    for subject, kind, between, held in found:
        if between.latest > begun:
            length = between.latest - between.earliest
            start = between.earliest - begun
            yield Row(
                subject, kind, length, length, length, "ns", begun, {**held, "from_ns": start}
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

    def apply(self, plan: Plan, *, closes: bool = True) -> None:
        """See `Fabric.apply`."""
        if not self._lit:
            super().apply(plan, closes=closes)
            return
        transition = self.prepare(plan, closes=closes)
        watches = {}
        for name, change in transition.changes.items():
            switch = self.bench.switches[name]
            if change.add and isinstance(switch, PowerMonitor):
                egresses = {circuit.egress for circuit in change.add}
                leaving = egresses & {circuit.egress for circuit in change.remove}
                watches[name] = LightWatch(switch, leaving, egresses)
        for watch in watches.values():
            watch.take()
        sent = transition.begin()
        watch_until_complete(self.bench, list(watches.values()), _LIGHT_TIMEOUT)
        transition.acknowledged()
        transition.verify()
        for name, watch in watches.items():
            gone = watch.gone(sent)
            for egress, back in watch.back(sent).items():
                since = gone.get(egress, sent)
                middle = (since.earliest + since.latest) // 2, (back.earliest + back.latest) // 2
                self.dark.append((f"{name}.{egress}", Span(middle[0], max(middle))))


def _confirmed(trained: Trained) -> Iterator[tuple[Rewiring, int]]:
    assert trained.rails is not None
    told: dict[tuple[str, str], Rewiring] = {}
    for happening in trained.rails.journal.happenings:
        match happening:
            case Rewiring():
                told.setdefault((happening.switch, happening.change), happening)
            case Confirmed():
                yield told[happening.switch, happening.change], happening.at


def _step_ends(trained: Trained, tables: Sequence[PhaseTable], ranks: Sequence[int]) -> list[int]:
    before, count = (len(each) for each in (tables[ranks[0]].before, tables[ranks[0]].operations))
    steps = (len(trained.operations[ranks[0]]) - before) // count
    return [
        max(trained.operations[rank][before + step * count - 1].ended.latest for rank in ranks)
        for step in range(1, steps + 1)
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
