"""Training requests that a region cannot run: refused before anything moves, and by name."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.jobs.training import RESULTS, TrainingRequest, TrainingRequestError
from lightrig.harness.systems.mixnet.generator import render
from lightrig.harness.systems.mixnet.measurements.train_script import (
    ExpertsError,
    check_request,
    layers_of,
)
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


def test_several_regions_need_a_controller_each(tmp_path: Path) -> None:
    (tmp_path / "regions.yaml").write_text(render(4, 2, 2, 1, 2, namespaces=True))
    with pytest.raises(TrainingRequestError, match="2 circuit switches"):
        check_request(load(tmp_path / "regions.yaml"), REQUEST)


def test_layers_are_counted_by_four_all_to_alls_each() -> None:
    assert layers_of("moe.py", [8, 8, 8], 3) == 2


@pytest.mark.parametrize(
    ("counts", "steps", "why"),
    [
        ([], 0, "moe.py ended before the first step"),
        ([], 2, "moe.py has 0 all-to-alls of rows in its first step, expected four a layer"),
        ([6, 6], 2, "moe.py has 6 all-to-alls"),
        ([8, 4], 2, "moe.py has 4 all-to-alls of rows in step 1, and 8 in the one before"),
        ([8], 2, "moe.py has 0 all-to-alls of rows in step 1"),
        ([8, 8, 4], 2, "moe.py has 4 all-to-alls of rows in what follows its last step"),
    ],
)
def test_other_scripts_are_refused_with_what_was_found(
    counts: list[int], steps: int, why: str
) -> None:
    with pytest.raises(ExpertsError, match=why):
        layers_of("moe.py", counts, steps)
