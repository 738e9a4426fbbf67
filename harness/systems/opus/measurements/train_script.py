"""`lightrig train` on photonic rails: profile a script, then run it on circuits that follow it."""

from lightrig.harness.bench import Fabric
from lightrig.harness.signals import postponed
from lightrig.harness.system_registry import Printed, TrainingRequest, TrainingRequestError
from lightrig.harness.systems.opus.measurements.training_answer import TrainingAnswer, answer
from lightrig.harness.systems.opus.planning.operations import OpusError
from lightrig.harness.systems.opus.runtime import Script, TrainingJob, fitting_job

_FEWEST_STEPS = 3
"""The first is left out, and an interval of what the others wait needs two."""


def train(fabric: Fabric, request: TrainingRequest, printed: Printed) -> TrainingAnswer:
    """Run a script twice, on a ring of all ranks and on circuits; return what they cost it.

    Raises:
        NoPyTorchError: a server has none.
        NotRoutedError: a server is simulated.
        OpusError: the script has too few steps.
        RailsLostError: a switch is lost, and the ring of all ranks too.
        TrainingFailedError: a rank's script has failed.
        TrainingRequestError: the job does not fit the testbed.
    """
    parallel = dict(request.parallel)
    stages = parallel.pop("pp", 1 if parallel else 2)
    try:
        degrees = list(parallel.values())
        job = fitting_job(fabric.testbed, request.name, stages, degrees, request.ranks)
    except OpusError as error:
        raise TrainingRequestError(str(error)) from error
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
