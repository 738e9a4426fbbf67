"""Clusters, jobs and marks of the tests of ACOS's mechanisms."""

from functools import cache

import pytest

from lightrig.harness.systems.acos.planning.datacentre import Hall, build_hall
from lightrig.harness.systems.acos.planning.rack import CLUSTERS, Degrees, build
from lightrig.harness.systems.acos.planning.rack_plans import configure, supported, topology_errors
from lightrig.harness.systems.acos.planning.rings import NODES

JOB = Degrees(8, 4, 2, 16)
SPARES = range(NODES + 1)


def claim(*names):
    return pytest.mark.claim(*(f"acos:{name}" for name in names))


def exception(*values, reason):
    """Return a case of which the paper's statement does not hold."""
    return pytest.param(*values, marks=pytest.mark.xfail(reason=reason, strict=True))


@cache
def rack(name):
    return build(CLUSTERS[name])


@cache
def hall(ring, *, node=False, racks=False):
    return build_hall(Hall(ring, node_backups=node, rack_backups=racks))


def jobs_of(name):
    return supported(CLUSTERS[name])


def job_name(value):
    if not isinstance(value, Degrees):
        return None
    return f"TP{value.tp}-DP{value.dp}-PP{value.pp}" + (f"-EP{value.ep}" if value.ep else "")


def errors(name, job, *spare):
    made = rack(name)
    return topology_errors(made, configure(made, job, *spare))


def job_with(name, tp):
    return [job for job in jobs_of(name) if job.tp == tp and job.ep == 16][-1]
