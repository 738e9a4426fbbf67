"""`lightrig train` on photonic rails: profile a script, then run it on circuits that follow it."""

import itertools
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lightrig.harness.bench import Fabric
from lightrig.harness.jobs.measure.light_faults import FaultError
from lightrig.harness.jobs.printed_numbers import joined
from lightrig.harness.jobs.training import Printed, TrainingRequest, TrainingRequestError
from lightrig.harness.signals import postponed
from lightrig.harness.systems.opus.measurements.growth import (
    GrowingAnswer,
    answer_in_sizes,
    axis_of,
)
from lightrig.harness.systems.opus.measurements.predicted_run import predicted
from lightrig.harness.systems.opus.measurements.training_answer import TrainingAnswer, answer
from lightrig.harness.systems.opus.planning.operations import OpusError, RailJob
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.runtime import Script, Trained, TrainingJob, fitting_job
from lightrig.harness.systems.opus.runtime.link_watch import LinkLostError
from lightrig.harness.systems.opus.runtime.on_fabric import check_spare
from lightrig.harness.systems.opus.runtime.restarts import (
    RestartedTraining,
    form_again,
    restart_variables,
)
from lightrig.harness.systems.opus.runtime.training_faults import (
    TrainingFault,
    check_possible,
    parse_training_fault,
)
from lightrig.instruments.clock import Span
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.jobs.traffic.training import RankLostError, TrainingFailedError
from lightrig.testbeds import LightrigError, Testbed

_FEWEST_STEPS = 3
"""The first is left out, and an interval of what the others wait needs two."""

_RUN_ID = "TORCHELASTIC_RUN_ID"


def train(
    fabric: Fabric, request: TrainingRequest, printed: Printed
) -> TrainingAnswer | GrowingAnswer:
    """Run a script twice, on a ring of all ranks and on circuits; return what they cost it.

    In each size that is requested, one after the other; with several of them the answer says
    what waits would be in larger ones.

    Raises:
        NoPyTorchError: a server has none.
        NotRoutedError: a server is simulated.
        OpusError: the script has too few steps.
        TrainingFailedError, LinkLostError: the first run has failed.
        TrainingRequestError: the job does not fit the testbed, or a fault does not.
        TrainingStoppedError: the second one has, more often than restarts are allowed.
    """
    try:
        ranks = request.ranks
        if (request.also or request.spares) and ranks is None:
            ranks = _needed(fabric.testbed, request.parallel)
        jobs = [_job(fabric.testbed, request.name, request.parallel, ranks)]
        jobs += [
            _job(fabric.testbed, request.name, size, _needed(fabric.testbed, size))
            for size in request.also
        ]
        sizes = [(job.stages, len(job.stage_of) // job.stages) for job in jobs]
        axis = axis_of(sizes) if request.also else None
        _check_spares(fabric.testbed, request, jobs)
        faults = [parse_training_fault(text, fabric.testbed) for text in request.faults]
        check_possible(faults, fabric)
        if faults and request.also:
            raise OpusError("a fault is made in a job of one size: --fault or --also")
    except (OpusError, FaultError, ValueError) as error:
        raise TrainingRequestError(str(error)) from error
    answers = [_trained(fabric, request, job, faults, printed) for job in jobs]
    return answers[0] if axis is None else answer_in_sizes(axis, answers)


def _check_spares(testbed: Testbed, request: TrainingRequest, jobs: Sequence[RailJob]) -> None:
    """Raise `OpusError` for a spare server that no restart of a job could use."""
    if request.spares and not request.max_restarts:
        raise OpusError("--spare is for a restart: allow one by --max-restarts 1")
    if len(set(request.spares)) < len(request.spares):
        raise OpusError("--spare names a server twice")
    for spare in request.spares:
        try:
            for job in jobs:
                check_spare(testbed, job, spare)
        except OpusError as error:
            raise OpusError(f"--spare {spare}: {error}") from error


def _job(testbed: Testbed, name: str, parallel: Mapping[str, int], ranks: int | None) -> RailJob:
    degrees = dict(parallel)
    stages = _stages(degrees)
    degrees.pop("pp", None)
    return fitting_job(testbed, name, stages, list(degrees.values()), ranks)


def _stages(degrees: Mapping[str, int]) -> int:
    return degrees.get("pp", 1 if degrees else 2)


def _needed(testbed: Testbed, degrees: Mapping[str, int]) -> int:
    """Return how many ranks these degrees need, with one on each NIC of a server."""
    rails = max(len(server.nics) for server in testbed.servers.values())
    return _stages(degrees) * math.prod(v for name, v in degrees.items() if name != "pp") * rails


def _trained(
    fabric: Fabric,
    request: TrainingRequest,
    job: RailJob,
    faults: Sequence[TrainingFault],
    printed: Printed,
) -> TrainingAnswer:
    running = TrainingJob(fabric, job, request.spares)
    number = uuid.uuid4().hex[:8]
    restart = ""

    def restarted(error: LightrigError, count: int) -> None:
        nonlocal restart
        restart = f", restart {count}"
        cause = str(error).partition("\n")[0]
        server = error.link.port.owner if isinstance(error, LinkLostError) else ""
        server = error.instrument if isinstance(error, InstrumentError) else server
        rank = next((rank.rank for rank in running.ranks if rank.name == server), 0)
        printed("failure", rank, f"{cause}; restart {count} of {request.max_restarts}")

    try:
        tables, ring = _profiled(request, running, f"ring-{number}", printed, restarted)
        restart = ""
        # The ring's operations are joined otherwise than the table's: they cannot be counted.
        steps = tables[0].profiled_steps
        if steps < _FEWEST_STEPS:
            raise OpusError(
                f"{request.name} has {steps} steps that are alike, expected at least "
                f"{_FEWEST_STEPS}: the first is left out, and an interval needs two"
            )
        rates = {
            end.port: nic.rate_bps
            for server in fabric.testbed.servers.values()
            for nic in server.nics.values()
            for end in nic.ports
        }
        took = running.circuits.took
        step = predicted(job, ring, tables, request.mode, took)
        request.predicted(step)
        if request.max_restarts or faults:
            _check_restartable(request, tables, len(ring.steps[0]))
        running.renew()  # torchrun starts each run in processes of its own, too
        running.printed = lambda rank, line: printed(f"on circuits{restart}", rank, line)
        running.environment = {_RUN_ID: f"circuits-{number}"}
        training = RestartedTraining(running, request.max_restarts, faults, restarted)
        trained = training.run(_script(request, running), tables, request.mode)
        hosts = running.lateness(_time_of(trained))
        if not training.failures and len(trained.steps[0]) < len(ring.steps[0]):
            raise OpusError(
                f"{request.name} took {len(trained.steps[0])} steps on circuits, and "
                f"{len(ring.steps[0])} on the ring of all ranks: if it goes on from a checkpoint "
                f"of that run, name its checkpoints by {_RUN_ID}, or by {{run}} in its arguments"
            )
    finally:
        # After it comes the answer, which a signal must prevent.
        with postponed():
            running.close()
    return answer(
        ring=ring,
        trained=trained,
        tables=tables,
        mode=request.mode,
        simulated=sorted(fabric.bench.simulated),
        pattern=request.results,
        source=request.source,
        failures=training.failures,
        faults=training.made,
        last=running.attempt,
        whole=len(running.profiled) == 1,
        hosts=hosts,
        rates=rates,
        predicted=step,
    )


def _time_of(trained: Trained) -> Span:
    """Return when the first step ended, or the first operation began, and when the last ended."""
    every = [done for operations in trained.operations.values() for done in operations]
    begins, ends = [done.asked.earliest for done in every], [done.ended.latest for done in every]
    first = [
        trained.operations[rank][steps[0] - 1].ended.latest
        for rank, steps in trained.steps.items()
        if steps and steps[0]
    ]
    begin = max(first) if len(first) == len(trained.operations) else min(begins, default=0)
    return Span(begin, max([begin, *ends]))


def _profiled(
    request: TrainingRequest,
    running: TrainingJob,
    run: str,
    printed: Printed,
    restarted: Callable[[LightrigError, int], None],
) -> tuple[tuple[PhaseTable, ...], Trained]:
    """Run the script on the ring of all ranks, again after each failure as often as is allowed.

    What its ranks printed is joined over all attempts; the tables are those of the last one.
    """
    for count in itertools.count():
        part = "on the ring of all ranks" + (f", restart {count}" if count else "")
        running.printed = partial(printed, part)
        variables = restart_variables(count, request.max_restarts)
        running.environment = {_RUN_ID: run, **variables}
        try:
            tables, ring = running.profile(_script(request, running))
        except (RankLostError, TrainingFailedError, LinkLostError) as error:
            if count == request.max_restarts:
                raise
            restarted(error, count + 1)
            form_again(running, error)
            running.renew()
        else:
            ring.printed = joined(request.results, *running.profiled)
            return tables, ring
    raise AssertionError("restarts are counted without an end")


def _script(request: TrainingRequest, running: TrainingJob) -> Script:
    """Return the script with its arguments for the run whose ID is set."""
    run = running.environment[_RUN_ID]
    arguments = tuple(argument.replace("{run}", run) for argument in request.arguments)
    return Script(request.source, request.name, arguments)


def _check_restartable(request: TrainingRequest, tables: Sequence[PhaseTable], steps: int) -> None:
    """Raise `OpusError` where it is not known which operations follow a restart."""
    if not steps:
        raise OpusError(
            f"{request.name} has no optimizer of PyTorch: its steps are not known, which "
            "--max-restarts and --fault need"
        )
    if request.max_restarts and any(table.whole for table in tables):
        unlike = ", ".join(f"{step} ({count} operations)" for step, count in tables[0].unlike)
        raise OpusError(
            f"{request.name} cannot be started again: its steps are not alike on the rails, so it "
            f"is not known which operations follow a checkpoint; unlike are {unlike or 'the last'}"
        )
