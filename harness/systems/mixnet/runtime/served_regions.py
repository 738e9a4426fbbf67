"""The regions of a job whose circuits a service moves, by a controller for each (MixNet §5)."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lightrig.harness.bench import Fabric
from lightrig.harness.bench.bench import Bench
from lightrig.harness.jobs.training import TrainingRequest, TrainingRequestError
from lightrig.harness.orchestration.served_job import ServedJob, ServiceError, job_name, placed
from lightrig.harness.systems.mixnet.planning.demand import Matrix
from lightrig.testbeds import Link, Port, Testbed


class ServedRegions(Fabric):
    """The servers of a job that a service has placed, and their circuits through it.

    Args:
        bench: with these servers alone, in the order of ranks.
        served: the job.
    """

    def __init__(self, bench: Bench, served: ServedJob) -> None:
        super().__init__(bench)
        self._served = served
        self._turns: defaultdict[int, Iterator[int]] = defaultdict(lambda: itertools.count(1))

    def planned(self, region: int, servers: Sequence[str], demand: Matrix) -> tuple[Link, ...]:
        """Return the links that the region's controller plans for a demand.

        Raises `ServiceError`.
        """
        return self._ask("plan", region, servers, demand, 1)

    def set(self, region: int, servers: Sequence[str], demand: Matrix) -> tuple[Link, ...]:
        """Have the controller set them; return them. Raises `ServiceError`."""
        return self._ask("demand", region, servers, demand, next(self._turns[region]))

    def _ask(
        self, do: str, region: int, servers: Sequence[str], demand: Matrix, turn: int
    ) -> tuple[Link, ...]:
        if tuple(servers) not in self._served.groups:
            places = "; ".join(", ".join(group) for group in self._served.groups)
            raise ServiceError(
                f"{', '.join(servers)} exchange rows, and the service has placed the job's regions "
                f"on {places}: state its degrees by --parallel"
            )
        group = self._served.groups.index(tuple(servers))
        answered = self._served.send(
            {"do": do, "region": group, "turn": turn, "demand": demand.tolist()}
        )
        return tuple(Link(*map(_port, ends)) for ends in answered["links"])


@contextmanager
def served_fabric(
    testbed: Testbed, request: TrainingRequest, path: Path, about: str
) -> Iterator[Fabric]:
    """Give the fabric of a training job that a service places, and withdraw it afterwards.

    Raises `TrainingRequestError` where the request does not state its size, `ServiceError`, and as
    `bind_only`.
    """
    shape = shape_of(testbed, request)
    job = partial(ServedJob, path, job_name(request.name), shape)
    with placed(job, testbed, about) as (bench, served):
        yield ServedRegions(bench, served)


def shape_of(testbed: Testbed, request: TrainingRequest) -> dict[str, int]:
    """Return the regions of a job by its degrees: tp x pp x dp ranks, of which ep x tp a region.

    Without dp there are as many replicas as an expert-parallel group has ranks. Raises
    `TrainingRequestError`.
    """
    degrees = request.parallel
    if "ep" not in degrees:
        raise TrainingRequestError("on circuits of a service a job of experts states --parallel ep")
    each = degrees["ep"] * degrees.get("tp", 1)
    ranks = degrees.get("dp", degrees["ep"]) * degrees.get("tp", 1) * degrees.get("pp", 1)
    gpus = {max(server.gpus.count, 1) for server in testbed.servers.values()}
    if len(gpus) != 1:
        raise TrainingRequestError(
            f"{testbed.path}: servers have {sorted(gpus)} GPUs, expected one"
        )
    (gpus_each,) = gpus
    if ranks % each or each % gpus_each or math.ceil(each / gpus_each) < 2:
        raise TrainingRequestError(
            f"ep and tp make regions of {each} of {ranks} ranks, expected a part of them on two or "
            f"more whole servers of {gpus_each} GPUs"
        )
    return {"servers": each // gpus_each, "regions": ranks // each}


def _port(text: str) -> Port:
    owner, _, name = text.partition(".")
    return Port(owner, name)
