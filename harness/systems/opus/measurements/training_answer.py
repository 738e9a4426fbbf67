"""Time that a training script spends on circuits in each step, measured and for other switches."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from lightrig.harness.jobs.predicted_steps import PredictedStep
from lightrig.harness.jobs.printed_numbers import NumbersComparison, compare
from lightrig.harness.jobs.recorded_steps import (
    RecordedOperation,
    median_step,
    recorded_step,
)
from lightrig.harness.jobs.statistics.means import MeanEstimate, mean_of, predicted_mean
from lightrig.harness.record import Row, Scalar
from lightrig.harness.systems.opus.measurements.step_parts import (
    CIRCUITS,
    FRONT_END,
    LIGHT,
    LINK,
    PARTS,
    SWITCH,
    StepParts,
    parts_by_step,
)
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
from lightrig.harness.workloads.graph import Workload, WorkloadError
from lightrig.instruments.jobs.traffic.idle import HostLateness
from lightrig.instruments.jobs.traffic.training import Done
from lightrig.testbeds import Port, format_rate

MS = 1_000_000
SWITCHING = tuple(each * MS for each in (1, 3, 10, 30, 100, 300, 1000))
"""Switching times, in ns, for which the wait of a step is computed."""
_NEGLIGIBLE = 0.1
"""Share of light and link up to which it does not matter that no stamp tells them apart."""
_PORTS = 8
"""Most ports whose bytes are shown for a rate; `--json` has all."""
_MATTERS = 0.01
"""Share of a step, or of a busy link's bytes, from which on something is shown, or inconclusive."""


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
                mean_of([shift.waited for shift in each]).at_least_zero(),
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


@dataclass(frozen=True, slots=True)
class PortTraffic:
    """Bytes that the kernel counted at a NIC port of the job, and the port's rate in bit/s."""

    port: str
    sent: int
    received: int
    rate: float


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
        step, shares, circuits, waited: means over steps, in ns; none for fewer than two. The shares
            are of the parts of a step, and `circuits` is the sum of those that wait for circuits.
        unknown: by how much the share of light may be longer or shorter, and that of links the
            other way round, in ns: no stamp tells one from the other.
        change: mean over changes of circuits, from the command until links were back, in ns.
        exposed: wait of a step by switching time, both in ns, computed, in `mode`; the interval
            is that of another run's mean.
        alike: standard deviation, in ns, by which waits of another run may differ as a whole.
        hidden: the part of a step's changes that passes before operations are wanted, by
            switching time, computed by the same replay.
        stamps: greatest uncertainty of a rank's stamps on the bench's clock, in ns.
        incidents: retries, fallbacks and refused changes, and faults that were made.
        hosts: how late each was to wake a rank that does nothing.
        links: bytes that each NIC port of the job sent and received in the run, and its rate.
        failures: what each failure cost that a restart followed. All else but `comparison` is of
            the steps since the last one.
        recorded: a step of median length as a workload, or why there is none.
        predicted: what `step` was to be, computed from the run on the ring before the run on
            circuits began, or why it was not.
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
    circuits: MeanEstimate | None
    unknown: float
    waited: MeanEstimate | None
    change: MeanEstimate | None
    exposed: Mapping[int, MeanEstimate]
    alike: float
    hidden: Mapping[int, MeanEstimate]
    stamps: int
    incidents: tuple[str, ...]
    hosts: tuple[HostLateness, ...] = ()
    links: tuple[PortTraffic, ...] = ()
    failures: tuple[FailureCost, ...] = ()
    recorded: Workload | str = "nothing was recorded"
    predicted: PredictedStep | str = "nothing was predicted"

    @property
    def as_printed_before(self) -> bool:
        """Whether the ranks printed the same numbers in both runs, and printed any."""
        return bool(self.comparison.count) and not self.comparison.different

    def document(self) -> dict[str, Any]:
        """Return all of it as JSON has it: times in ns, each mean with its interval and n."""
        curves = {
            name: [{"switching_ns": switching, **asdict(wait)} for switching, wait in curve.items()]
            for name, curve in (("exposed", self.exposed), ("hidden", self.hidden))
        }
        recorded = not isinstance(self.recorded, str)
        step = self.predicted
        plain = {"none": step} if isinstance(step, str) else step.document()
        found = asdict(replace(self, recorded="", predicted=""))
        return found | curves | {"recorded": recorded, "predicted": plain}

    def rows(self, at: int, about: Mapping[str, Scalar]) -> Iterator[Row]:
        """Yield rows that limits can judge: means over steps with their intervals."""
        means = {
            "train.step": self.step,
            "train.front_end": self.shares.get(FRONT_END),
            "train.exposed_wait": self.waited,
        }
        for quantity, mean in means.items():
            if mean is None:
                continue
            value, lower, upper = map(round, (mean.value, mean.lower, mean.upper))
            yield Row("job", quantity, value, lower, upper, "ns", at, {**about, "n": mean.n})

    @property
    def still(self) -> bool:
        """Whether circuits stay as they are in all steps that are counted."""
        return self.circuits is not None and not self.phases and not self.circuits.upper

    def _parts(self) -> Iterator[str]:
        """Yield the parts of a step, the waits for circuits last, with their own parts."""
        if self.circuits is None:
            return
        between = self.shares[LIGHT].value + self.shares[LINK].value
        unclear = () if self.unknown <= _NEGLIGIBLE * between else (LIGHT, LINK)
        shown = [(f"{name:<21}", self.shares[name]) for name in PARTS if name not in CIRCUITS]
        shown += [(f"{'waits for circuits':<21}", self.circuits)]
        if not self.still:
            shown += [(f"  {name:<19}", self.shares[name]) for name in CIRCUITS]
        for name, share in shown:
            steps = "" if name.strip() in unclear else self._inconclusive(share)
            yield f"          {name} {share}{steps}"
        if unclear and not self.still:
            yield ("          no stamp tells light from link, and no number of steps would: no "
                   "power monitor was read between acknowledgement and carrier")  # fmt: skip

    def _links(self) -> Iterator[str]:
        """Yield the bytes that links carried in the run, a line for each rate."""
        for rate in sorted({each.rate for each in self.links}):
            used = [each for each in self.links if each.rate == rate]
            most = max(each.sent + each.received for each in used)
            used = [each for each in used if each.sent + each.received > _MATTERS * most]
            carried = ", ".join(
                f"{each.port} {each.sent / 1e6:.1f} MB out, {each.received / 1e6:.1f} MB in"
                for each in used[:_PORTS]
            )
            more = f", and {len(used) - _PORTS} more" if len(used) > _PORTS else ""
            carried = carried or "nothing"
            yield f"links     of {format_rate(rate)} carried in this run: {carried}{more}"

    def _inconclusive_waits(self) -> Iterator[str]:
        """Say which computed waits one run cannot tell from 0, and how many steps would."""
        unclear = {at: wait for at, wait in self.exposed.items() if wait.lower <= 0 < wait.value}
        if not unclear:
            return
        steps = [
            wait.n * ((wait.upper - wait.value) ** 2 - self.alike**2) / certain
            for wait in unclear.values()
            for certain in [wait.value**2 - self.alike**2]
            if certain > 0
        ]
        times = ", ".join(f"{at / MS:.4g} ms" for at in unclear)
        would = f"about {math.ceil(max(steps)) + 1} steps" if steps else "no number of steps"
        few = " (where changes of another run may be slower as a whole, none)"
        some = few if 0 < len(steps) < len(unclear) else ""
        yield f"          one run cannot tell those at {times} from 0: {would} would{some}"

    def _inconclusive(self, share: MeanEstimate) -> str:
        """Return how many steps would tell a part from 0 that may be 0 or matter."""
        steps = share.steps_needed
        if steps is None or self.step is None or share.upper < _MATTERS * self.step.value:
            return ""
        return f"; one run cannot tell it from 0, about {steps} steps would"

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
            yield f"step      {self.step}, measured, of which a rank, in the mean over ranks,"
        yield from self._parts()
        if isinstance(self.predicted, str):
            yield f"predicted nothing: {self.predicted}"
        else:
            yield from self.predicted.lines(self.step)
        yield f"steps     {self.steps} alike" + "".join(
            f"; {'after the last one' if number > self.steps + len(self.unlike) - 1 else number}: "
            f"{count} operations, unlike the others"
            for number, count in self.unlike
        )
        yield f"circuits  {self.phases} changes of phase and {self.operations} operations a step"
        if self.change is not None:
            yield f"          a change takes {self.change}"
        if self.still:
            yield ("          none changes in a step: nothing is waited for, however long a change "
                   "takes")  # fmt: skip
        elif self.waited is not None:
            yield f"          the phases of a step wait {self.waited}, measured, with control:"
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
        if self.exposed and not self.still:
            yield (f"          would wait in {self.mode} mode, and hide, computed by a replay of "
                   "this run, where a change takes")  # fmt: skip
            for switching, wait in self.exposed.items():
                hides = self.hidden[switching]
                yield f"          {switching / MS:6.4g} ms: {wait}; {hides.value / MS:.1f} ms"
            yield from self._inconclusive_waits()
        for use in self.front_end:
            lines = ", ".join(map(str, use.lines)) or "unknown"
            yield (f"front end {use.count} x {use.kind}, {use.size} bytes, {use.time / MS:.1f} ms "
                   f"of a rank, line {lines}")  # fmt: skip
        yield from self._links()
        for host in self.hosts:
            yield f"host      {host}"
            if host.slow:
                yield ("          that lengthens control and computing, and widens intervals of "
                       "switch, light and link")  # fmt: skip
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
    whole: bool = True,
    hosts: Sequence[HostLateness] = (),
    rates: Mapping[Port, float] | None = None,
    predicted: PredictedStep | str = "nothing was predicted",
) -> TrainingAnswer:
    """Return what a run on circuits cost, beside the profiled run on the ring of all ranks.

    failures: that restarts followed, and `last` the attempt that ended well. faults: as made.
    whole: whether the run on the ring had all steps, and was not started again. hosts: how late
    they were. rates: of NIC ports, in bit/s. predicted: the step, before the run on circuits.
    """
    assert trained.rails is not None
    attempts = [failure.attempt.listener.lines for failure in failures]
    comparison = compare(pattern, ring.printed, *attempts, trained.printed)
    count = len(ring.steps.get(0, ())) if whole else 0
    parts = parts_by_step(trained, tables)
    parts = parts if len(parts) > 1 else []
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
    late = max((host.mean for host in hosts), default=0.0)
    shares = _shares(parts, late)
    circuits = None
    if parts:
        circuits = _mean(parts, CIRCUITS).at_least_zero(late * fmean(each.waits for each in parts))
    exposed = {
        switching: predicted_mean([wait for wait, _ in steps], alike).at_least_zero()
        for switching, steps in computed.items()
    }
    hidden = {
        switching: mean_of([hidden for _, hidden in steps]) for switching, steps in computed.items()
    }
    if circuits is not None and not tables[0].shifts and not circuits.upper:
        none = MeanEstimate(0.0, 0.0, 0.0, len(parts))
        exposed = hidden = dict.fromkeys(SWITCHING, none)
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
        step=_mean(parts, PARTS) if parts else None,
        shares=shares,
        circuits=circuits,
        unknown=fmean(each.unknown for each in parts) if parts else 0.0,
        waited=mean_of(waited).at_least_zero() if len(waited) > 1 else None,
        change=change,
        exposed=exposed,
        alike=alike,
        hidden=hidden,
        stamps=max(
            done.asked.latest - done.asked.earliest
            for operations in trained.operations.values()
            for done in operations
        ),
        incidents=(*map(str, trained.rails.journal.incidents), *faults),
        hosts=tuple(hosts),
        links=tuple(
            PortTraffic(str(port), sent, received, (rates or {})[port])
            for port, (sent, received) in trained.traffic.items()
        ),
        failures=tuple(failure_costs(failures, last, count, comparison.begins) if last else ()),
        recorded=recorded_of(trained, tables),
        predicted=predicted,
    )


def recorded_of(trained: Trained, tables: Sequence[PhaseTable]) -> Workload | str:
    """Return the usual step of median length, without the first, or why there is none."""
    assert trained.rails is not None
    job = trained.rails.job
    bounds = [table.steps_in(len(trained.operations[rank])) for rank, table in enumerate(tables)]
    count = min(map(len, bounds))
    if count < 3:
        return f"{count} steps are alike, and the first is left out: three are needed"
    ends = [
        [max(done.ended.latest for done in trained.operations[rank][:end]) for _, end in steps]
        for rank, steps in enumerate(bounds)
    ]
    lengths = {
        step: max(of[step] for of in ends) - max(of[step - 1] for of in ends)
        for step in range(1, count)
    }
    chosen = median_step(lengths)
    ranks = [
        [
            RecordedOperation(
                done.operation.kind,
                job.groups[done.operation.group].ranks,
                done.operation.size,
                done.asked.latest,
                done.ended.latest,
                done.parts,
            )
            for done in trained.operations[rank][slice(*steps[chosen])]
        ]
        for rank, steps in enumerate(bounds)
    ]
    try:
        return recorded_step(ranks, [of[chosen - 1] for of in ends], job.stage_of)
    except WorkloadError as error:
        return str(error)


def _shares(steps: Sequence[StepParts], late: float) -> dict[str, MeanEstimate]:
    """Return the mean of each part of a step.

    late: by how much a host is late in the mean, in ns. It stamps what a switch or a server did
    so much too late, once a change, so that their parts may be as much longer or shorter. Those of
    light and link are also as wide as what no stamp tells.
    """
    if not steps:
        return {}
    unknown, stamped = fmean(each.unknown for each in steps), late * fmean(s.waits for s in steps)
    wider = {SWITCH: stamped, LIGHT: stamped + unknown, LINK: stamped + unknown}
    return {name: _mean(steps, [name]).at_least_zero(wider.get(name, 0.0)) for name in PARTS}


def _mean(steps: Sequence[StepParts], names: Collection[str]) -> MeanEstimate:
    """Return the mean over steps of the sum of some parts."""
    return mean_of(
        [round(sum(each.parts[name] for name in names)) for each in steps]
    ).at_least_zero()
