"""`lightrig train` on photonic rails: profile a script, then run it on circuits that follow it."""

import math
from collections.abc import Mapping

from lightrig.harness.bench import Fabric
from lightrig.harness.signals import postponed
from lightrig.harness.system_registry import Printed, TrainingRequest, TrainingRequestError
from lightrig.harness.systems.opus.measurements.growth import (
    GrowingAnswer,
    answer_in_sizes,
    axis_of,
)
from lightrig.harness.systems.opus.measurements.training_answer import TrainingAnswer, answer
from lightrig.harness.systems.opus.planning.operations import Job, OpusError
from lightrig.harness.systems.opus.runtime import Script, TrainingJob, fitting_job
from lightrig.testbeds import Testbed

_FEWEST_STEPS = 3
"""The first is left out, and an interval of what the others wait needs two."""


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
        RailsLostError: a switch is lost, and the ring of all ranks too.
        TrainingFailedError: a rank's script has failed.
        TrainingRequestError: the job does not fit the testbed.
    """
    try:
        ranks = request.ranks
        if request.also and ranks is None:
            ranks = _needed(fabric.testbed, request.parallel)
        jobs = [_job(fabric.testbed, request.name, request.parallel, ranks)]
        jobs += [
            _job(fabric.testbed, request.name, size, _needed(fabric.testbed, size))
            for size in request.also
        ]
        sizes = [(job.stages, len(job.stage_of) // job.stages) for job in jobs]
        axis = axis_of(sizes) if request.also else None
    except (OpusError, ValueError) as error:
        raise TrainingRequestError(str(error)) from error
    answers = [_trained(fabric, request, job, printed) for job in jobs]
    return answers[0] if axis is None else answer_in_sizes(axis, answers)


def _job(testbed: Testbed, name: str, parallel: Mapping[str, int], ranks: int | None) -> Job:
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
    fabric: Fabric, request: TrainingRequest, job: Job, printed: Printed
) -> TrainingAnswer:
    script = Script(request.source, request.name, tuple(request.arguments))
    running = TrainingJob(fabric, job)
    try:
        running.printed = lambda rank, line: printed("on the ring of all ranks", rank, line)
        tables, ring = running.profile(script)
        steps = len(tables[0].steps_in(len(ring.operations[0])))
        if steps < _FEWEST_STEPS:
            raise OpusError(
                f"{request.name} has {steps} steps that are alike, expected at least "
                f"{_FEWEST_STEPS}: the first is left out, and an interval needs two"
            )
        running.renew()  # torchrun starts each run in processes of its own, too
        running.printed = lambda rank, line: printed("on circuits", rank, line)
        trained = running.train(script, tables, request.mode)
    finally:
        # After it comes the answer, which a signal must prevent.
        with postponed():
            running.close()
    return answer(
        *(ring, trained, tables),
        mode=request.mode,
        simulated=sorted(fabric.bench.simulated),
        pattern=request.results,
        source=request.source,
    )
