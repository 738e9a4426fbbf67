"""`lightrig train` on a region: a mixture of experts by Gloo alone, then on circuits."""

from collections.abc import Mapping, Sequence
from math import prod

from lightrig.harness.bench import Fabric
from lightrig.harness.jobs.first_step import check_first_step
from lightrig.harness.jobs.printed_numbers import compare
from lightrig.harness.jobs.training import Printed, TrainingRequest, TrainingRequestError
from lightrig.harness.signals import postponed
from lightrig.harness.systems.mixnet.measurements.link_bytes import link_bytes
from lightrig.harness.systems.mixnet.measurements.packet_operations import packet_operations
from lightrig.harness.systems.mixnet.measurements.training_answer import ExpertsAnswer, answer
from lightrig.harness.systems.mixnet.planning.course import Course, CourseError
from lightrig.harness.systems.mixnet.planning.expert_regions import ExpertRegion
from lightrig.harness.systems.mixnet.planning.region import Region, RegionError
from lightrig.harness.systems.mixnet.runtime.training import ExpertTraining
from lightrig.instruments.jobs.traffic.rank_session import ScriptRun
from lightrig.instruments.jobs.traffic.training import PrintedLines, Script
from lightrig.testbeds import Testbed

_DEGREES = ("ep", "dp", "tp", "pp")


def train(fabric: Fabric, request: TrainingRequest, printed: Printed) -> ExpertsAnswer:
    """Run a script twice, by Gloo over packets alone and on circuits that follow its gates.

    With a degree `dp`, sums of all ranks go over rings of the servers, in both runs (§5.3). In the
    mode `provisioning` a layer's first all-to-all is predicted; in `default` it waits for the gate.

    Raises:
        NoPyTorchError: a server has none.
        CourseError: the script has all-to-alls of rows that are no passes of experts.
        NoStepError: it ended before its first step.
        RegionError: its experts exchange rows over several regions.
        TrainingFailedError, RankLostError: a run has failed.
        TrainingRequestError: the job does not fit the testbed.
    """
    ranks = check_request(fabric.testbed, request)
    script = Script(request.source, request.name, tuple(request.arguments))
    rings = request.parallel.get("dp", 1) > 1
    training = ExpertTraining(fabric)
    try:
        alone, courses = training.alone(
            script,
            PrintedLines(lambda rank, line: printed("on packets", rank, line)),
            rings=rings,
        )
        _check_run(request, alone, courses)
        training.session.renew()  # torchrun starts each run in processes of its own, too
        trained = training.train_regions(
            script,
            courses,
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
        mode=request.mode,
        simulated=sorted(fabric.bench.simulated),
        comparison=compare(request.results, alone.printed, trained.printed),
        courses=courses,
        trained=trained,
        packets=packet_operations(trained.operations, ranks),
        links=link_bytes(fabric.testbed, trained.periods),
    )


def _check_run(
    request: TrainingRequest, alone: ScriptRun, courses: Sequence[tuple[ExpertRegion, Course]]
) -> None:
    """Raise `CourseError` for a first run that had no steps, or other groups than were stated."""
    check_first_step(alone, request.name, "on packets")
    if not alone.steps or not alone.steps[0]:
        raise CourseError(f"{request.name} has no step of an optimizer of PyTorch on rank 0")
    if not courses:
        raise CourseError(
            f"{request.name} has no all-to-alls of rows between servers: there are no experts "
            "whose gates circuits could follow"
        )
    degree = request.parallel.get("ep")
    for region, _ in courses:
        for group in region.groups:
            if degree not in (None, len(group)):
                raise CourseError(
                    f"--parallel ep={degree}: {request.name} exchanges rows among {len(group)} "
                    f"ranks, {', '.join(str(region.ranks[rank]) for rank in group)}"
                )


def check_request(testbed: Testbed, request: TrainingRequest) -> int:
    """Return the number of ranks; raise `TrainingRequestError` for what cannot run here."""
    try:
        whole, _ = Region.whole(testbed)
    except RegionError as error:
        raise TrainingRequestError(str(error)) from error
    ranks = sum(server.gpu_count for server in whole.with_ranks.servers)
    of_rails = {
        "--fault": request.faults,
        "--spare": request.spares,
        "--max-restarts": request.max_restarts,
        "--also": request.also,
    }
    if given := [name for name, value in of_rails.items() if value]:
        raise TrainingRequestError(f"{', '.join(given)}: only a job on rails has that")
    if not testbed.only_namespaces:
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
                "--parallel tenants: the gates of one job move a region's circuits; several "
                "tenants would move each other's (MixNet §9 leaves them open)"
            )
        if name not in _DEGREES:
            raise TrainingRequestError(
                f"--parallel {name}={degree}: there is no such degree, only {', '.join(_DEGREES)}"
            )
        if ranks % degree:
            raise TrainingRequestError(
                f"--parallel {name}={degree}: {degree} does not divide the {ranks} ranks"
            )
    if "dp" in parallel and ranks != prod(parallel.get(name, 1) for name in ("tp", "pp", "dp")):
        raise TrainingRequestError(
            f"tp x pp x dp of --parallel are not the {ranks} ranks; ep is a part of tp x dp"
        )
