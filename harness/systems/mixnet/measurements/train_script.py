"""`lightrig train` on a region: a mixture of experts by Gloo alone, then on circuits."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from lightrig.harness.bench import Fabric
from lightrig.harness.jobs.printed_numbers import compare
from lightrig.harness.jobs.training import Printed, TrainingRequest, TrainingRequestError
from lightrig.harness.signals import postponed
from lightrig.harness.systems.mixnet.measurements.link_bytes import link_bytes
from lightrig.harness.systems.mixnet.measurements.training_answer import ExpertsAnswer, answer
from lightrig.harness.systems.mixnet.planning.calendar import exchanges
from lightrig.harness.systems.mixnet.planning.cross_connects import plan_testbed
from lightrig.harness.systems.mixnet.planning.region import Region, RegionError
from lightrig.harness.systems.mixnet.runtime.training import ExpertTraining
from lightrig.instruments.jobs.traffic.training import PrintedLines, Script
from lightrig.testbeds import LightrigError, Testbed

_DEGREES = ("ep", "dp", "tp", "pp")
_A_LAYER = len(list(exchanges(1)))


class ExpertsError(LightrigError):
    """A script that is no mixture of experts whose circuits can follow its gates."""


def train(fabric: Fabric, request: TrainingRequest, printed: Printed) -> ExpertsAnswer:
    """Run a script twice, by Gloo over packets alone and on circuits that follow its gates.

    With a degree `dp`, sums of all ranks go over rings of the servers, in both runs (§5.3). In the
    mode `provisioning` a layer's first all-to-all is predicted; in `default` it waits for the gate.

    Raises:
        NoPyTorchError: a server has none.
        ExpertsError: the script has other all-to-alls than four a layer.
        TrainingFailedError, RankLostError: a run has failed.
        TrainingRequestError: the job does not fit the testbed.
    """
    ranks = check_request(fabric.testbed, request)
    script = Script(request.source, request.name, tuple(request.arguments))
    everyone = np.triu(np.ones((len(fabric.testbed.servers),) * 2), 1)
    plan = plan_testbed(fabric.testbed, everyone, "before the first gate")
    rings = request.parallel.get("dp", 1) > 1
    training = ExpertTraining(fabric)
    try:
        alone, counts = training.alone(
            script,
            plan,
            PrintedLines(lambda rank, line: printed("on packets", rank, line)),
            rings=rings,
        )
        layers = layers_of(request.name, counts, len(alone.steps[0]))
        training.session.renew()  # torchrun starts each run in processes of its own, too
        trained = training.train(
            script,
            layers,
            plan,
            "predict" if request.mode == "provisioning" else "block",
            count=True,
            rings=rings,
            listener=PrintedLines(lambda rank, line: printed("on circuits", rank, line)),
        )
    finally:
        with postponed():
            training.close()
    return answer(
        ranks=ranks,
        layers=layers,
        mode=request.mode,
        simulated=sorted(fabric.bench.simulated),
        comparison=compare(request.results, alone.printed, trained.printed),
        trained=trained,
        links=link_bytes(fabric.testbed, trained.periods),
    )


def layers_of(name: str, counts: Sequence[int], steps: int) -> int:
    """Return the layers of a script by its all-to-alls of rows in each of its steps.

    Raises `ExpertsError`.
    """
    if not steps:
        raise ExpertsError(f"{name} ended before the first step of an optimizer")
    of_steps = [*counts, *[0] * (steps - len(counts))]
    layers, rest = divmod(of_steps[0], _A_LAYER)
    if rest or not layers:
        raise ExpertsError(
            f"{name} has {of_steps[0]} all-to-alls of rows in its first step, expected four a "
            "layer: dispatch, combine, and those of their gradients"
        )
    for step, (before, count) in enumerate(itertools.pairwise(of_steps), 1):
        if count != before:
            where = f"step {step}" if step < steps else "what follows its last step"
            raise ExpertsError(
                f"{name} has {count} all-to-alls of rows in {where}, and {before} in the one "
                "before: the calendar has no evaluation passes"
            )
    return layers


def check_request(testbed: Testbed, request: TrainingRequest) -> int:
    """Return the number of ranks; raise `TrainingRequestError` for what cannot run here."""
    try:
        region = Region.of(testbed).with_ranks
    except RegionError as error:
        raise TrainingRequestError(str(error)) from error
    ranks = sum(server.gpu_count for server in region.servers)
    of_rails = {
        "--fault": request.faults,
        "--spare": request.spares,
        "--max-restarts": request.max_restarts,
        "--also": request.also,
    }
    if given := [name for name, value in of_rails.items() if value]:
        raise TrainingRequestError(f"{', '.join(given)}: only a job on rails has that")
    if not testbed.only_local_namespaces:
        rdma = any(spec.rdma for spec in testbed.nic_ports)
        raise TrainingRequestError(
            f"{testbed.path}: lanes lead TCP between servers that are namespaces. "
            + ("RDMA with FuseLink does not run: " if rdma else "Other servers do not run: ")
            + "a queue pair stays on the NIC that it was made on, and FuseLink, which would relay "
            "its memory over other GPUs' NICs, has not been published"
        )
    if request.ranks not in (None, ranks):
        raise TrainingRequestError(
            f"--ranks {request.ranks}: a region has a rank for each of its {ranks} GPUs"
        )
    _check_degrees(request.parallel, ranks)
    return ranks


def _check_degrees(parallel: Mapping[str, int], ranks: int) -> None:
    for name, degree in parallel.items():
        if name == "tenants":
            raise TrainingRequestError(
                "--parallel tenants: a region has one expert-parallel group, whose gates move its "
                "circuits; several tenants would move each other's (MixNet §9 leaves them open)"
            )
        if name not in _DEGREES:
            raise TrainingRequestError(
                f"--parallel {name}={degree}: there is no such degree, only {', '.join(_DEGREES)}"
            )
        if ranks % degree:
            raise TrainingRequestError(
                f"--parallel {name}={degree}: {degree} does not divide the {ranks} ranks"
            )
