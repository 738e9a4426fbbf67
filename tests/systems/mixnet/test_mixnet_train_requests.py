"""Training requests that a region cannot run: refused before anything moves, and by name."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.jobs.training import RESULTS, TrainingRequest, TrainingRequestError
from lightrig.harness.systems.mixnet.generator import render
from lightrig.harness.systems.mixnet.measurements.train_script import check_request
from lightrig.testbeds import Testbed, load

REQUEST = TrainingRequest("", "moe.py", (), {}, "provisioning", RESULTS)


def region(tmp_path: Path, *, namespaces: bool) -> Testbed:
    (tmp_path / "region.yaml").write_text(render(6, 2, 2, 1, namespaces=namespaces))
    return load(tmp_path / "region.yaml")


@pytest.mark.parametrize("parallel", [{}, {"ep": 12}, {"ep": 12, "tp": 2, "dp": 6, "pp": 1}])
def test_a_region_has_a_rank_for_each_gpu(tmp_path: Path, parallel: Mapping[str, int]) -> None:
    testbed = region(tmp_path, namespaces=True)
    assert check_request(testbed, replace(REQUEST, parallel=parallel)) == 12
    assert check_request(testbed, replace(REQUEST, ranks=12)) == 12


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"parallel": {"ep": 5}}, "ep=5: 5 does not divide the 12 ranks"),
        ({"parallel": {"ep": 24}}, "ep=24: 24 does not divide the 12 ranks"),
        ({"parallel": {"dp": 3, "tp": 2}}, "tp x pp x dp of --parallel are not the 12 ranks"),
        ({"parallel": {"cp": 2}}, "cp=2: there is no such degree, only ep, dp, tp, pp"),
        ({"parallel": {"tenants": 2}}, "several tenants would move each other's"),
        ({"ranks": 4}, "--ranks 4: a region has a rank for each of its 12 GPUs"),
        ({"spares": ["server5"]}, "--spare: only a job on rails has that"),
        ({"faults": ["cut:1s,step=2"], "max_restarts": 1}, "--fault, --max-restarts: only a job"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, given: dict[str, Any], why: str) -> None:
    with pytest.raises(TrainingRequestError, match=why):
        check_request(region(tmp_path, namespaces=True), replace(REQUEST, **given))


def test_rdma_with_fuselink_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TrainingRequestError, match="RDMA with FuseLink does not run: a queue pair"):
        check_request(region(tmp_path, namespaces=False), REQUEST)


def test_each_of_several_regions_has_ranks_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "regions.yaml").write_text(render(4, 2, 2, 1, 2, namespaces=True))
    assert check_request(load(tmp_path / "regions.yaml"), REQUEST) == 16
