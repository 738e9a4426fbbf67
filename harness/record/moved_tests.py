"""Tests whose files have moved: rows of earlier runs are read under their present names."""

from functools import cache

from lightrig.packs import packs


@cache
def former_files() -> dict[str, str]:
    """Return the present path of a suite by each former one, as the packs state them."""
    return {old: new for pack in packs().values() for old, new in pack.former_suites.items()}


def present_test(name: str) -> str:
    """Return the present name of a test, such as `suites/jobs/test_rdma.py::test_latency[lab]`."""
    file, colons, case = name.partition("::")
    return former_files().get(file, file) + colons + case
