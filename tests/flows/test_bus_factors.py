"""Bus factors against nccl-tests' documentation, for every collective."""

import pytest

from lightrig.instruments.jobs.flows.bandwidth import bus_bandwidth, bus_factor

# doc/PERFORMANCE.md of nccl-tests: AllReduce 2 * (n - 1) / n; AllGather, ReduceScatter and
# AlltoAll (n - 1) / n; SendRecv 1.
FACTORS = {
    "all_reduce": {2: 1.0, 4: 1.5, 8: 1.75},
    "all_gather": {2: 0.5, 4: 0.75, 8: 0.875},
    "reduce_scatter": {2: 0.5, 4: 0.75, 8: 0.875},
    "all_to_all": {2: 0.5, 4: 0.75, 8: 0.875},
    "send_receive": {2: 1.0, 4: 1.0, 8: 1.0},
}


@pytest.mark.parametrize("collective", FACTORS)
def test_bus_factors_are_those_of_nccl_tests(collective):
    for ranks, factor in FACTORS[collective].items():
        assert bus_factor(collective, ranks) == factor
        assert bus_bandwidth(collective, ranks, 1_000_000, 1e6) == pytest.approx(8e9 * factor)
